// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/plan.hpp>

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/train/clock_search.hpp>
#include <kdvfs/train/pipeline.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>

namespace kdvfs::inline v0_3::train {

namespace detail {

/// The clocks of one operation that lasts as long as the frontier says.
inline PlannedOperation at_two_clocks(const Curve& curve, const Operation& operation,
                                      std::int64_t duration, ClockPoint before) {
    const Hull& hull = curve.hull();
    const auto after = std::upper_bound(hull.time.begin(), hull.time.end(), duration);
    const auto k = static_cast<std::size_t>(after - hull.time.begin()) - 1;
    PlannedOperation planned;
    planned.duration = to_seconds(duration);
    const CurvePoint& fast = curve.points()[hull.corner[k]];
    const ClockPoint clock = curve.is_constant() && before != ClockPoint{} ? before : fast.clock;
    planned.clocks = {operation, clock, 1, clock};
    if (after == hull.time.end() || hull.time[k] == duration) {
        planned.effective = to_joules(curve.effective(hull.corner[k]));
        return planned;
    }
    const CurvePoint& slow = curve.points()[hull.corner[k + 1]];
    const double share = static_cast<double>(hull.time[k + 1] - duration) /
                         static_cast<double>(hull.time[k + 1] - hull.time[k]);
    planned.effective = to_joules(curve.effective(hull.corner[k])) * share +
                        to_joules(curve.effective(hull.corner[k + 1])) * (1 - share);
    planned.clocks = {operation, fast.clock, share, slow.clock};
    if (slow.clock == before) planned.clocks = {operation, slow.clock, 1 - share, fast.clock};
    return planned;
}

inline void plan_two_clocks(const Pipeline& pipeline, const Timing& timing, PipelinePlan& plan) {
    ClockPoint before{};
    for (std::uint32_t i = 0; i < pipeline.operations.size(); ++i) {
        const Operation& operation = pipeline.operations[i];
        const bool first = i == pipeline.stage_begin[operation.stage];
        if (first) before = {};
        PlannedOperation planned =
            at_two_clocks(pipeline.curves[operation.curve], operation, timing.durations[i], before);
        planned.start = to_seconds(timing.starts[i]);
        if (!first && planned.clocks.first != before) ++plan.switches;
        if (planned.clocks.second != planned.clocks.first) ++plan.switches;
        before = planned.clocks.second;
        plan.effective += planned.effective;
        plan.operations.push_back(planned);
    }
    plan.makespan = to_seconds(timing.nanoseconds);
}

inline void plan_one_clock(const Frontier& frontier, const tune::SwitchDelay& delay,
                           PipelinePlan& plan) {
    const Pipeline& pipeline = frontier.pipeline();
    const Network network{pipeline};
    ClockSearch search{pipeline, network, std::llround(plan.time.count() * 1e9)};
    ClockPlan clocks = search.round(frontier);
    const Lateness late{std::llround(delay.latency.count() * 1e9),
                        std::llround(std::min(delay.transition, delay.latency).count() * 1e9)};
    if (late.latency > 0) {
        // A switch must be worth its part of what fewer switches may cost.
        const double spare = 0.001 * (clocks.energy + pipeline.blocking_energy(plan.time).count);
        search.adapt(clocks, late, spare / (clocks.switches + 1));
    }
    const PlayedPlan played = search.play(clocks);
    plan.switches = clocks.switches;
    plan.makespan = to_seconds(played.length);
    plan.time = std::max(plan.time, plan.makespan);
    for (std::uint32_t i = 0; i < pipeline.operations.size(); ++i) {
        const ClockPoint clock = search.table().clock(clocks.clock[i]);
        plan.operations.push_back({{pipeline.operations[i], clock, 1, clock},
                                   to_seconds(played.start[i]),
                                   to_seconds(played.time[i]),
                                   {played.energy[i]}});
        plan.effective += Joules{played.energy[i]};
    }
}

}  // namespace detail

namespace detail {

/// The waits of a plan, and what they draw: one before each operation, the first of a stage's
/// reaching back to its last operation in the iteration before.
class WaitPlanner {
public:
    /// @param latency of a switch: a wait begins so long at the clock before it, and the clock
    ///        behind it is asked for so early
    WaitPlanner(const Pipeline& pipeline, const PipelinePlan& plan, Seconds latency)
        : pipeline_{&pipeline}, lowest_{pipeline.waiting.lowest()} {
        for (std::uint32_t s = 0; s < pipeline.stages; ++s) {
            const std::uint32_t begin = pipeline.stage_begin[s];
            const std::uint32_t end = pipeline.stage_begin[s + 1];
            Seconds free = ended(plan, end - 1) - plan.time;
            ClockPoint clock = plan.operations[end - 1].last_clock();
            for (std::uint32_t i = begin; i < end; ++i) {
                const PlannedOperation& operation = plan.operations[i];
                add(i, free, operation.start - free, clock, operation.clocks.first, latency);
                free = ended(plan, i);
                clock = operation.last_clock();
            }
        }
    }

    [[nodiscard]] const std::vector<PlannedWait>& waits() const { return waits_; }
    [[nodiscard]] Joules energy() const { return energy_; }

private:
    static Seconds ended(const PipelinePlan& plan, std::uint32_t operation) {
        return plan.operations[operation].start + plan.operations[operation].duration;
    }

    void add(std::uint32_t before, Seconds start, Seconds length, ClockPoint clock, ClockPoint next,
             Seconds latency) {
        if (length <= Seconds{0}) return;
        const Joules kept = pipeline_->waiting.at(clock.core) * length;
        if (lowest_ && length > 2 * latency) {
            const Joules lowered =
                (pipeline_->waiting.at(clock.core) + pipeline_->waiting.at(next.core)) * latency +
                lowest_->power * (length - 2 * latency);
            if (lowered < kept) {
                waits_.push_back(
                    {before, start, length, {lowest_->core, auto_clock}, kept - lowered, latency});
                energy_ += lowered;
                return;
            }
        }
        energy_ += kept;
    }

    const Pipeline* pipeline_;
    std::optional<WaitingPower::Point> lowest_;
    std::vector<PlannedWait> waits_;
    Joules energy_{};
};

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE ClockPoint PlannedOperation::last_clock() const {
    return changes.empty() ? clocks.second : changes.back().clock;
}

KDVFS_INLINE void plan_waits(const Pipeline& pipeline, Seconds latency, PipelinePlan& plan) {
    if (pipeline.waiting.points.empty()) return;
    const detail::WaitPlanner planner{pipeline, plan, latency};
    plan.waits = planner.waits();
    plan.total = plan.effective + planner.energy();
    for (const PlannedOperation& operation : plan.operations)
        plan.total += pipeline.blocking_power * operation.duration;
}

KDVFS_INLINE PipelinePlan make_plan(const Frontier& frontier, Seconds length, Clocks clocks,
                                    const tune::SwitchDelay& switching) {
    const Pipeline& pipeline = frontier.pipeline();
    for (const Seconds delay : {switching.latency, switching.transition})
        if (!(delay.count() >= 0 && delay.count() <= 1000))
            detail::reject_pipeline(
                "a switching latency of " + std::to_string(delay.count()) + " s",
                "it is not from 0 to 1000 s", "give what tools/switch_latency measures");
    Timing timing = frontier.timing(length);
    PipelinePlan plan;
    plan.time = to_seconds(timing.nanoseconds);
    if (clocks == Clocks::two && switching.latency <= Seconds{0})
        detail::plan_two_clocks(pipeline, timing, plan);
    else
        detail::plan_one_clock(frontier, switching, plan);
    if (plan.time > to_seconds(timing.nanoseconds)) timing = frontier.timing(plan.time);
    const Joules blocking = pipeline.blocking_energy(plan.time);
    plan.total = plan.effective + blocking;
    plan.bound = to_joules(timing.bound) + blocking;
    plan_waits(pipeline, switching.latency, plan);
    return plan;
}

#endif

}  // namespace kdvfs::inline v0_3::train
