// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/solve/switch_model.hpp>
#include <kdvfs/detail/tune/launch_trace.hpp>
#include <kdvfs/detail/tune/plan_table_text.hpp>
#include <kdvfs/detail/tune/shrinkage.hpp>
#include <kdvfs/detail/tune/trace_planner.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/segments.hpp>

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
    std::string json{};       ///< as plan files have it
};

/// The profile, with kernels whose energy the counter could not resolve taken to draw at each clock
/// what they draw at the baseline, where the board's mean is taken if that is not resolved either.
/// Nothing is gained by such kernels then, but plans need not go back to the baseline for one that
/// is short: they are judged while they are followed.
inline Profile with_likely_energies(const Profile& profile) {
    const auto baseline = profile.baseline();
    Cost all;
    for (const KernelProfile& kernel : profile.kernels())
        if (const ProfilePoint* point = baseline ? kernel.find(*baseline) : nullptr)
            all += point->mean() * kernel.count;
    if (all.time <= Seconds{0}) return profile;
    Profile likely{profile.gpu()};
    for (const KernelProfile& kernel : profile.kernels()) {
        const ProfilePoint* const found = kernel.find(*baseline);
        const bool known = found != nullptr && found->is_resolved();
        const Watts power =
            known ? found->mean().energy / found->mean().time : all.energy / all.time;
        for (const ProfilePoint& point : kernel.points) {
            for (const ProfileSample& sample : point.samples) {
                ProfileRow row{kernel.key,
                               point.clock,
                               sample.cost,
                               kernel.group,
                               kernel.count,
                               sample.index,
                               point.clock == *baseline,
                               sample.energy_sd,
                               profile.block_of(sample)};
                if (!sample.is_resolved()) {
                    constexpr double unsure = 0.4;  // of the energy: as much as counts as resolved
                    row.cost.energy = power * row.cost.time;
                    row.energy_sd = row.cost.energy * unsure;
                }
                likely.add(row);
            }
        }
    }
    return likely;
}

/// Makes a plan. Takes up to seconds for iterations of thousands of launches. Never throws.
inline RunPlan plan_run(const RunPlanRequest& request) {
    try {
        CostTable table = shrunk_costs(with_likely_energies(request.profile));
        for (KernelCosts& kernel : table.kernels)
            for (std::size_t p = 0; p < kernel.points.size(); ++p)
                if (p != kernel.baseline) kernel.points[p].cost.time *= request.longer_by;
        SegmentOptions options;
        options.worthwhile_pct =
            request.one_clock ? std::numeric_limits<double>::infinity() : simplest_within_pct;
        SegmentPlan plan = plan_program(table, request.sequence, request.trace, request.switches,
                                        relaxed_waste(request.max_slowdown), options);
        RunPlan found{{}, -plan.energy_pct(), plan.time_pct(), {}, to_json(plan)};
        found.sequence = std::move(plan.sequence);
        return found;
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
