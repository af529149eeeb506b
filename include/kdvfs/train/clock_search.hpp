// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/network.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/stage_clocks.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace kdvfs::train::detail {

/// One clock for each operation of a pipeline.
struct ClockPlan {
    std::vector<std::uint32_t> clock;  ///< by operation, index into the `ClockTable`
    double energy = 0;                 ///< effective, joules
    std::uint32_t switches = 0;        ///< changes between neighbours of a stage
};

/// Searches for one clock per operation with which an iteration ends in time: first for little
/// energy, then for few switches. Begins with the slowest clocks that fit a schedule and then
/// chooses again for one stage after the other, while the other stages keep their times. No step
/// makes a plan worse.
class ClockSearch {
public:
    ClockSearch(const Pipeline& pipeline, const Network& network, std::int64_t length)
        : pipeline_{&pipeline}, network_{&network}, table_{pipeline}, length_{length} {
        index_waits();
    }

    [[nodiscard]] const ClockTable& table() const { return table_; }

    /// Each operation gets the clock that needs least until the time at which it is to end, `ends`;
    /// what it leaves over is the next one's.
    [[nodiscard]] ClockPlan slowest_that_fit(const std::vector<std::int64_t>& ends) const {
        ClockPlan plan;
        plan.clock.resize(network_->operations);
        std::vector<std::int64_t> time(network_->nodes, 0);
        for (std::uint32_t v = 0; v < network_->nodes; ++v)
            for (std::uint32_t k = network_->leaving_begin[v]; k < network_->leaving_begin[v + 1];
                 ++k) {
                const std::uint32_t a = network_->leaving[k];
                std::int64_t end = time[v];
                if (a < network_->operations) {
                    plan.clock[a] = table_.best_within(a, ends[a] - time[v]);
                    end += table_.at(a, plan.clock[a]).time;
                }
                std::int64_t& head = time[network_->arcs[a].head];
                head = std::max(head, end);
            }
        account(plan);
        return plan;
    }

    /// Lowers energy + worth * switches, stage by stage, `sweeps` times at most.
    void improve(ClockPlan& plan, double worth, std::uint32_t sweeps) {
        for (std::uint32_t sweep = 0; sweep < sweeps; ++sweep) {
            const double before = plan.energy + worth * plan.switches;
            for (std::uint32_t s = 0; s < pipeline_->stages; ++s) {
                StageClocks stage{table_, begin(s), slots(plan, s, sweep)};
                const StageClocks::Choice choice = stage.at_price(worth);
                // Where labels were thinned the choice can be worse than what is there.
                const Share now = share(plan.clock, begin(s), s);
                if (choice.clock.empty()) continue;
                const Share then = share(choice.clock, 0, s);
                if (then.energy + worth * then.switches < now.energy + worth * now.switches)
                    set(plan, s, choice);
            }
            account(plan);
            const double saved = before - plan.energy - worth * plan.switches;
            if (sweep >= 2 && saved < 1e-6 * std::abs(before)) break;
        }
    }

    /// The fewest switches that are found within `budget` joules. The plan is within it.
    void calm(ClockPlan& plan, double budget) {
        const std::uint32_t longest = longest_stage();
        calm_by_price(plan, budget);
        if (longest > 64) return;
        for (std::uint32_t sweep = 0; sweep < 6; ++sweep) calm_by_count(plan, budget, sweep);
    }

    /// Sums energy and switches anew.
    void account(ClockPlan& plan) const {
        plan.energy = 0;
        plan.switches = 0;
        for (std::uint32_t s = 0; s < pipeline_->stages; ++s) {
            const Share of = share(plan.clock, begin(s), s);
            plan.energy += of.energy;
            plan.switches += of.switches;
        }
    }

    /// When the iteration ends with this plan.
    [[nodiscard]] std::int64_t length(const ClockPlan& plan) {
        network_->earliest([&](std::uint32_t i) { return table_.at(i, plan.clock[i]).time; },
                           earliest_);
        return earliest_[network_->sink()];
    }
    /// When an operation starts in the plan whose length was asked for last.
    [[nodiscard]] std::int64_t start(std::uint32_t operation) const {
        return earliest_[network_->arcs[operation].tail];
    }

private:
    [[nodiscard]] std::uint32_t begin(std::uint32_t stage) const {
        return pipeline_->stage_begin[stage];
    }
    [[nodiscard]] std::uint32_t end(std::uint32_t stage) const {
        return pipeline_->stage_begin[stage + 1];
    }
    [[nodiscard]] std::uint32_t longest_stage() const {
        std::uint32_t longest = 0;
        for (std::uint32_t s = 0; s < pipeline_->stages; ++s)
            longest = std::max(longest, end(s) - begin(s));
        return longest;
    }

    /// What one stage contributes to a plan.
    struct Share {
        double energy = 0;
        std::uint32_t switches = 0;
    };
    /// `clocks[at]` is the clock of the stage's first operation.
    [[nodiscard]] Share share(const std::vector<std::uint32_t>& clocks, std::uint32_t at,
                              std::uint32_t stage) const {
        Share sum;
        for (std::uint32_t k = 0; k < end(stage) - begin(stage); ++k) {
            sum.energy += table_.at(begin(stage) + k, clocks[at + k]).energy;
            sum.switches += k > 0 && clocks[at + k] != clocks[at + k - 1] ? 1U : 0U;
        }
        return sum;
    }

    /// Who waits for whom between stages, by operation.
    void index_waits() {
        awaited_.resize(pipeline_->operations.size());
        awaiting_.resize(pipeline_->operations.size());
        for (const Dependency& d : pipeline_->dependencies) {
            if (pipeline_->operations[d.first].stage == pipeline_->operations[d.then].stage)
                continue;
            awaited_[d.then].push_back(d.first);
            awaiting_[d.first].push_back(d.then);
        }
    }

    /// When an operation starts if all are as early as possible (way 0), as late (1) or half way.
    [[nodiscard]] std::int64_t start(const ClockPlan& plan, std::uint32_t i,
                                     std::uint32_t way) const {
        const std::int64_t lasts = table_.at(i, plan.clock[i]).time;
        const std::int64_t early = earliest_[network_->arcs[i].tail];
        const std::int64_t late = latest_[network_->arcs[i].head] - lasts;
        return way == 0 ? early : way == 1 ? late : early + (late - early) / 2;
    }

    /// The time each operation of a stage has while the other stages keep theirs. Operations of a
    /// stage follow each other, so a slot may begin before the operation before has ended.
    [[nodiscard]] std::vector<Slot> slots(const ClockPlan& plan, std::uint32_t stage,
                                          std::uint32_t sweep) {
        static constexpr std::array<std::uint32_t, 3> ways{2, 0, 1};
        const std::uint32_t way = ways[sweep % ways.size()];
        const auto duration = [&](std::uint32_t i) { return table_.at(i, plan.clock[i]).time; };
        network_->earliest(duration, earliest_);
        network_->latest(duration, length_, latest_);
        std::vector<Slot> all;
        for (std::uint32_t i = begin(stage); i < end(stage); ++i) {
            Slot slot{0, length_};
            for (const std::uint32_t p : awaited_[i])
                slot.begin = std::max(slot.begin, start(plan, p, way) + duration(p));
            for (const std::uint32_t q : awaiting_[i])
                slot.end = std::min(slot.end, start(plan, q, way));
            all.push_back(slot);
        }
        return all;
    }

    void set(ClockPlan& plan, std::uint32_t stage, const StageClocks::Choice& choice) const {
        if (choice.clock.empty()) return;
        std::copy(choice.clock.begin(), choice.clock.end(), plan.clock.begin() + begin(stage));
    }

    /// Raises the price of a switch until the budget is used up; keeps the last plan within it.
    void calm_by_price(ClockPlan& plan, double budget) {
        double low = 0;
        double high = std::max(budget - plan.energy, 0.0);
        for (std::uint32_t round = 0; round < 8; ++round) {
            const double worth = low + (high - low) / (round < 2 ? 4 : 2);
            ClockPlan tried = plan;
            improve(tried, worth, 4);
            const bool fits = tried.energy <= budget;
            if (fits && tried.switches <= plan.switches) plan = tried;
            (fits ? low : high) = worth;
        }
    }

    /// Shares the budget between stages so that their switches are fewest.
    void calm_by_count(ClockPlan& plan, double budget, std::uint32_t sweep) {
        for (std::uint32_t s = 0; s < pipeline_->stages; ++s) {
            StageClocks stage{table_, begin(s), slots(plan, s, sweep)};
            const Share now = share(plan.clock, begin(s), s);
            const std::vector<StageClocks::Choice> choices = stage.by_switches(now.switches);
            const double allowed = now.energy + budget - plan.energy;
            for (const StageClocks::Choice& choice : choices) {
                if (choice.clock.empty() || choice.energy > allowed) continue;
                set(plan, s, choice);
                break;
            }
            account(plan);
        }
    }

    const Pipeline* pipeline_;
    const Network* network_;
    ClockTable table_;
    std::int64_t length_;
    std::vector<std::vector<std::uint32_t>> awaited_;
    std::vector<std::vector<std::uint32_t>> awaiting_;
    std::vector<std::int64_t> earliest_;
    std::vector<std::int64_t> latest_;
};

}  // namespace kdvfs::train::detail
