// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/train/stage_plan.hpp>
#include <kdvfs/detail/train/straggler_plans.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/pipeline_estimate.hpp>
#include <kdvfs/tune/switch_costs.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kdvfs::inline v0_3::train::detail {

/// What rank 0 sends in the place of a plan that it could not make, before the reason.
constexpr std::string_view failed_plan = "failed: ";
inline std::string failed_text(const std::string& why) { return std::string{failed_plan} + why; }

/// A plan of all stages as text, and what makes answers to stragglers with it.
struct Planned {
    std::string text;
    double saved = 0;  ///< against the fastest clocks, as a fraction
    std::optional<AnswerPlanner> answers{};
};
/// @throws Error for a pipeline that cannot be planned
inline Planned plan_of(const PlanOptions& plan, const Pipeline& measured, bool is_noisy,
                       std::uint32_t stage) {
    std::optional<PipelineEstimate> estimate;
    if (is_noisy) estimate.emplace(measured, plan.slowdown, plan.confidence);
    const Frontier frontier{estimate ? estimate->cautious() : measured};
    Planned planned{make_plan_text(frontier, plan, estimate ? &*estimate : nullptr)};
    const StagePlan own = parse_stage_plan(planned.text, measured, stage);
    planned.saved = own.promise ? own.promise->saved() : 1 - own.total / top_total(measured);
    planned.answers.emplace(frontier, own.time, plan);
    return planned;
}

/// Between the clocks of the pipeline's curves; 0 where nobody has measured it on this GPU.
inline tune::SwitchDelay longest_known_switch(const DeviceInfo& gpu, const Pipeline& measured) {
    tune::SwitchDelay longest;
    const auto path = tune::find_switch_latencies(gpu_name(gpu));
    if (!path) return longest;
    const tune::SwitchCosts costs = tune::read_switch_costs(*path);
    for (const Curve& curve : measured.curves) {
        for (const CurvePoint& from : curve.points()) {
            for (const CurvePoint& to : curve.points()) {
                const tune::SwitchDelay delay = costs.delay(from.clock, to.clock);
                if (from.clock != to.clock && delay.latency > longest.latency) longest = delay;
            }
        }
    }
    return longest;
}

}  // namespace kdvfs::inline v0_3::train::detail
