// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/serve/step_clocks.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// One decision for all ranks of a tensor-parallel instance: they share each step, so a rank at a
/// lower clock slows all of them down. What decides comes with the step, from the engine's
/// scheduler; within a step nothing is exchanged.
namespace kdvfs::inline v0_3::serve {

/// What the scheduler sends with a step, beside what the step computes.
struct StepOrder {
    StepShape shape{};
    Seconds slack{std::numeric_limits<double>::infinity()};
    std::uint32_t table = 0;  ///< number of the table that decides
    Megahertz floor{};        ///< the lowest clock of a step without prompts
};

/// One rank: the tables that it has received, by number. Not thread-safe.
class RankClocks {
public:
    /// A table has arrived; which steps it is for, the orders say.
    /// @returns whether it was new
    bool receive(std::uint32_t number, StepClockTable table) {
        return tables_.emplace(number, std::move(table)).second;
    }
    [[nodiscard]] bool has(std::uint32_t number) const { return tables_.contains(number); }

    /// The clock of a step: the same on every rank. Orders come in the order of the steps, so that
    /// tables before the order's are dropped.
    /// @throws Error (invalid_input) where the order's table has not been received: the scheduler
    ///         has not waited for `TableSchedule::acknowledge`
    StepDecision decide(const StepOrder& order) {
        if (tables_.empty() || tables_.begin()->first != order.table) drop_before(order.table);
        return tables_.begin()->second.decide(order.shape, order.slack, order.floor);
    }

private:
    void drop_before(std::uint32_t number) {
        const auto found = tables_.find(number);
        if (found == tables_.end())
            throw Error{Errc::invalid_input,
                        {"decide a step's clock", "table " + std::to_string(number),
                         "this rank has not received it",
                         "order by a table only once all ranks have acknowledged it"}};
        tables_.erase(tables_.begin(), found);
    }

    std::map<std::uint32_t, StepClockTable> tables_;
};

/// The scheduler's side: limits what relaxed steps may put off (`StepClocks`), and changes to a new
/// table at the first step after all ranks have acknowledged it. Not thread-safe.
class TableSchedule {
public:
    explicit TableSchedule(std::size_t ranks) : acknowledged_(ranks, 0) {}

    /// Another plan is sent to the ranks, by whatever reaches them: MPI, files, the engine.
    /// @returns the number of its table, from 1 on
    std::uint32_t offer(StepPlan plan) {
        plans_.emplace(++last_, std::move(plan));
        return last_;
    }
    [[nodiscard]] const StepClockTable& table(std::uint32_t number) const {
        return plans_.at(number).clock_table();
    }
    /// A rank has received a table, and those before it.
    void acknowledge(std::size_t rank, std::uint32_t number) {
        acknowledged_.at(rank) = std::max(acknowledged_.at(rank), number);
    }

    /// The order for the next step.
    /// @throws Error (invalid_input) before all ranks have acknowledged a table
    StepOrder order(StepShape shape, Seconds slack) {
        const std::uint32_t number = *std::min_element(acknowledged_.begin(), acknowledged_.end());
        if (number == 0)
            throw Error{Errc::invalid_input,
                        {"order a step", "the first table", "not all ranks have acknowledged it",
                         "send it to all of them before the first step"}};
        if (number != current_) {
            current_ = number;
            plans_.erase(plans_.begin(), plans_.find(number));
            clocks_.emplace(plans_.at(number));
        }
        if (clocks_->decide(shape, slack).urgent) slack = StepClocks::none;
        return {shape, slack, number, clocks_->floor()};
    }
    /// The engine has nothing to do.
    void rest() {
        if (clocks_) clocks_->rest();
    }
    [[nodiscard]] const StepPlan& plan() const { return plans_.at(current_); }

private:
    std::map<std::uint32_t, StepPlan> plans_;
    std::vector<std::uint32_t> acknowledged_;  ///< by rank
    std::uint32_t last_ = 0;
    std::uint32_t current_ = 0;
    std::optional<StepClocks> clocks_;
};

}  // namespace kdvfs::inline v0_3::serve
