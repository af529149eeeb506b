// SPDX-License-Identifier: MIT
#pragma once

#include <bench/serving/clock_policies.hpp>
#include <bench/serving/requests.hpp>
#include <bench/serving/roofline_board.hpp>
#include <bench/serving/serving_engine.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/serve/step_sweep.hpp>
#include <kdvfs/serve/step_table.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::serve {

inline std::optional<std::vector<Request>> azure_hour() {
    const auto path = std::filesystem::path{KDVFS_SOURCE_DIR} / "../shared/data/azure/conv.csv";
    if (!std::filesystem::exists(path)) return std::nullopt;
    return read_requests(path);
}

/// What the rules of this simulation give for one cluster and one trace.
class ServedHour {
public:
    ServedHour(std::vector<Request> requests, std::size_t boards, const RooflineBoard& board = {})
        : requests_{std::move(requests)}, board_{board} {
        options_.boards = boards;
        std::vector<Request> beginning;
        for (const Request& request : requests_)
            if (request.arrival < Seconds{600}) beginning.push_back(request);
        serve_trace(board_, beginning, options_, fixed({2520}), &load_);
        base_ = serve_trace(board_, requests_, options_, fixed({2520}));
    }

    ServingCounts with_plan(StepPolicy policy, Seconds latency) {
        return with_plan(policy, latency, table_, load_);
    }
    ServingCounts with_plan(StepPolicy policy, Seconds latency, const StepTable& table,
                            const StepLoad& load) {
        StepTargets targets;
        targets.policy = policy;
        targets.switch_latency = options_.switch_latency = latency;
        plan_.emplace(make_step_plan(table, load, targets));
        return serve_trace(board_, requests_, options_,
                           [&] { return std::make_unique<PlannedClocks>(*plan_); });
    }
    /// By the plan alone, which knows nothing of prompts that are still to come.
    ServingCounts without_limit(StepPolicy policy) {
        struct PlanAlone final : ClockPolicy {
            explicit PlanAlone(const StepPlan& plan) : plan_{plan} {}
            Megahertz for_step(Seconds, StepShape shape, Seconds slack) override {
                return plan_.decide(shape, slack).clock;
            }
            Megahertz when_idle(Seconds) override { return plan_.idle_clock(); }
            [[nodiscard]] const StepPlan* slack_plan() const override { return &plan_; }
            const StepPlan& plan_;
        };
        with_plan(policy, Seconds{0.006});
        return serve_trace(board_, requests_, options_,
                           [&] { return std::make_unique<PlanAlone>(*plan_); });
    }
    ServingCounts with_fixed(Megahertz clock) {
        return serve_trace(board_, requests_, options_, fixed(clock));
    }
    ServingCounts with_loop() {
        return serve_trace(board_, requests_, options_,
                           [&] { return std::make_unique<EpochLoop>(table_, Seconds{0.1}, 512); });
    }
    /// Serves the first half hour while it sweeps, each board for itself.
    ServingCounts sweep(const StepSweepOptions& options, std::deque<StepSweep>& sweeps) {
        options_.switch_latency = options.switch_latency;
        return serve_trace(board_, half(), options_, [&] {
            sweeps.emplace_back(options);
            return std::make_unique<SweepingClocks>(sweeps.back());
        });
    }
    ServingCounts half_at_the_top() { return serve_trace(board_, half(), options_, fixed({2520})); }
    /// Percent of energy against the top clock.
    [[nodiscard]] double saved(const ServingCounts& counts) const {
        return 100 * (1 - counts.energy / base_.energy);
    }
    [[nodiscard]] double lost(const ServingCounts& counts) const {
        return base_.first_tokens_pct() - counts.first_tokens_pct();
    }
    [[nodiscard]] const ServingCounts& base() const { return base_; }
    [[nodiscard]] const StepPlan& plan() const { return *plan_; }

private:
    [[nodiscard]] std::vector<Request> half() const {
        const auto end = std::find_if(requests_.begin(), requests_.end(),
                                      [](const Request& r) { return r.arrival >= Seconds{1800}; });
        return {requests_.begin(), end};
    }
    static std::function<std::unique_ptr<ClockPolicy>()> fixed(Megahertz clock) {
        return [clock] { return std::make_unique<FixedClock>(clock); };
    }

    std::vector<Request> requests_;
    RooflineBoard board_;
    StepTable table_{sample_steps(board_)};
    ClusterOptions options_;
    StepLoad load_{StepBuckets{}};
    ServingCounts base_;
    std::optional<StepPlan> plan_;
};

}  // namespace kdvfs::serve
