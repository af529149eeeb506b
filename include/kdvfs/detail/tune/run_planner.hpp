// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/tune/launch_trace.hpp>
#include <kdvfs/detail/tune/plan_table_text.hpp>
#include <kdvfs/detail/tune/shrinkage.hpp>
#include <kdvfs/detail/tune/trace_planner.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/launch_sequence.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/segments.hpp>
#include <kdvfs/tune/switch_model.hpp>

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <exception>
#include <future>
#include <limits>
#include <string>
#include <utility>

namespace kdvfs::inline v0_3::tune::detail {

/// What a plan is made from while a run goes on.
struct RunPlanRequest {
    Profile profile;
    LaunchSequence sequence;
    LaunchTrace trace;
    SwitchCosts switches;
    double max_slowdown = 0;  ///< of the plan, as a fraction
    bool one_clock = false;   ///< several clocks have broken their bound
    double longer_by = 1;     ///< factor: what plans before took, against what was promised
};

/// A plan, or why there is none.
struct RunPlan {
    PlannedSequence sequence{};
    double saving_pct = 0;    ///< of the energy, that it promises
    double slowdown_pct = 0;  ///< of the time, that it promises
    std::string none{};       ///< why there is no plan; empty where there is one
};

/// Makes a plan. Takes up to seconds for iterations of thousands of launches. Never throws.
inline RunPlan plan_run(const RunPlanRequest& request) {
    try {
        CostTable table = shrunk_costs(request.profile);
        for (KernelCosts& kernel : table.kernels)
            for (std::size_t p = 0; p < kernel.points.size(); ++p)
                if (p != kernel.baseline) kernel.points[p].cost.time *= request.longer_by;
        SegmentOptions options;
        options.worthwhile_pct =
            request.one_clock ? std::numeric_limits<double>::infinity() : simplest_within_pct;
        SegmentPlan plan = plan_program(table, request.sequence, request.trace, request.switches,
                                        relaxed_waste(request.max_slowdown), options);
        return {std::move(plan.sequence), -plan.energy_pct(), plan.time_pct(), {}};
    } catch (const Error& error) {
        return {.none = error.text().vendor_words};
    } catch (const std::exception& error) {
        return {.none = error.what()};
    }
}

/// A plan in the making, on a thread of its own that takes no signals. The destructor waits for it.
class RunPlanning {
public:
    explicit RunPlanning(RunPlanRequest request) {
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        plan_ = std::async(std::launch::async | std::launch::deferred,
                           [request = std::move(request)] { return plan_run(request); });
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    /// Whether `take` would not wait long. A plan that no thread could be had for is made by it.
    [[nodiscard]] bool is_ready() const {
        return plan_.wait_for(std::chrono::seconds{0}) != std::future_status::timeout;
    }
    /// Waits for the plan. Once.
    [[nodiscard]] RunPlan take() { return plan_.get(); }

private:
    std::future<RunPlan> plan_;
};

}  // namespace kdvfs::inline v0_3::tune::detail
