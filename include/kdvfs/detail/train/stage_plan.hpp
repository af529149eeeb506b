// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/train/pipeline.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/kernel_frontier.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/pipeline_estimate.hpp>
#include <kdvfs/train/plan.hpp>
#include <kdvfs/train/session_options.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

namespace detail {

/// What a program does with a plan's waits: [operation, MHz, memory's MHz, `StageWait::lasts`].
/// What lies behind a stage's last operation may be work of the program's own, and has no clock: of
/// a wait that reaches over the iteration's end its own begin is left.
/// @param total of the plan, J: gets what that part was to save
inline nlohmann::json waits_json(const PipelinePlan& plan, double& total) {
    constexpr Seconds shortest{1e-3};  // the markers of a shorter one cost as much
    constexpr double early = 0.02;     // of a wait: operations vary by about a percent
    nlohmann::json waits = nlohmann::json::array();
    for (const PlannedWait& wait : plan.waits) {
        const Seconds length = std::min(wait.length, plan.operations[wait.before].start);
        const Seconds lasts = (1 - early) * length - wait.lead;
        const bool is_kept = length >= shortest && lasts > wait.lead;
        const double kept = is_kept ? (lasts - wait.lead) / (wait.length - 2 * wait.lead) : 0;
        total += (1 - kept) * wait.saved.count;
        if (is_kept)
            waits.push_back(
                {wait.before, wait.clock.core.count, wait.clock.memory.count, lasts.count()});
    }
    return waits;
}

/// @param slowness by stage: how much slower its GPU is than its curves
inline nlohmann::json plan_json(const PipelinePlan& plan, const std::vector<double>& slowness) {
    nlohmann::json operations = nlohmann::json::array();
    for (const PlannedOperation& planned : plan.operations) {
        const PlannedClocks& clocks = planned.clocks;
        operations.push_back({clocks.first.core.count, clocks.first.memory.count, clocks.share,
                              clocks.second.core.count, clocks.second.memory.count,
                              planned.start.count(), planned.duration.count()});
        if (planned.changes.empty()) continue;
        nlohmann::json& changes = operations.back().emplace_back(nlohmann::json::array());
        for (const ClockChange& change : planned.changes)
            changes.push_back({change.share, change.clock.core.count, change.clock.memory.count});
    }
    double total = plan.total.count;
    nlohmann::json waits = waits_json(plan, total);
    return {{"time_s", plan.time.count()},
            {"total_j", total},
            {"slowness", slowness},
            {"waits", std::move(waits)},
            {"operations", std::move(operations)}};
}

inline std::vector<ClockChange> clock_changes(const nlohmann::json& json) {
    std::vector<ClockChange> changes;
    for (const nlohmann::json& row : json)
        changes.push_back({row.at(0).get<double>(),
                           {Megahertz{row.at(1).get<std::uint32_t>()},
                            Megahertz{row.at(2).get<std::uint32_t>()}}});
    return changes;
}

inline StagePlan stage_plan(const nlohmann::json& json, const Pipeline& pipeline,
                            std::uint32_t stage) {
    StagePlan plan;
    plan.time = Seconds{json.at("time_s").get<double>()};
    plan.total = Joules{json.at("total_j").get<double>()};
    const nlohmann::json& operations = json.at("operations");
    if (operations.size() != pipeline.operations.size())
        reject_pipeline("a plan of " + std::to_string(operations.size()) + " operations",
                        "this pipeline has " + std::to_string(pipeline.operations.size()),
                        "plan this pipeline");
    const double slowness = json.at("slowness").at(stage).get<double>();
    double begin = 1e300;
    double end = 0;
    for (std::uint32_t i = pipeline.stage_begin[stage]; i < pipeline.stage_begin[stage + 1]; ++i) {
        const nlohmann::json& row = operations[i];
        const auto clock = [&](std::size_t at) {
            return Megahertz{row.at(at).get<std::uint32_t>()};
        };
        plan.operations.push_back({pipeline.operations[i],
                                   {clock(0), clock(1)},
                                   row.at(2).get<double>(),
                                   {clock(3), clock(4)}});
        plan.changes.push_back(row.size() > 7 ? clock_changes(row.at(7))
                                              : std::vector<ClockChange>{});
        const auto start = row.at(5).get<double>();
        const auto duration = row.at(6).get<double>();
        plan.durations.emplace_back(duration / slowness);
        begin = std::min(begin, start);
        end = std::max(end, start + duration);
    }
    plan.span = Seconds{end - begin};
    plan.waits.resize(plan.operations.size());
    const nlohmann::json none = nlohmann::json::array();
    for (const nlohmann::json& wait : json.contains("waits") ? json.at("waits") : none) {
        const auto before = wait.at(0).get<std::uint32_t>();
        if (before < pipeline.stage_begin[stage] || before >= pipeline.stage_begin[stage + 1])
            continue;
        plan.waits[before - pipeline.stage_begin[stage]] = {
            {Megahertz{wait.at(1).get<std::uint32_t>()},
             Megahertz{wait.at(2).get<std::uint32_t>()}},
            Seconds{wait.at(3).get<double>()}};
    }
    return plan;
}

}  // namespace detail

namespace detail {

inline nlohmann::json promise_json(const PlanPromise& promise) {
    return {{"time_s", promise.time.count()},
            {"total_j", promise.total.count},
            {"top_time_s", promise.top_time.count()},
            {"top_total_j", promise.top_total.count},
            {"kept", promise.kept},
            {"is_sure", promise.is_sure}};
}

inline PlanPromise parse_promise(const nlohmann::json& json) {
    return {Seconds{json.at("time_s").get<double>()},
            {json.at("total_j").get<double>()},
            Seconds{json.at("top_time_s").get<double>()},
            {json.at("top_total_j").get<double>()},
            json.at("kept").get<double>(),
            json.at("is_sure").get<bool>()};
}

}  // namespace detail

/// The plan of all stages for the length that the options allow, as text: what rank 0 broadcasts.
/// @param estimate whose `cautious()` curves the frontier is of, for a promise; nothing where the
///        curves are taken as they are
/// @throws Error (invalid_input) for a negative slowdown
inline std::string make_plan_text(const Frontier& frontier, const PlanOptions& options,
                                  const PipelineEstimate* estimate = nullptr) {
    if (!(options.slowdown >= 0))
        detail::reject_pipeline("a slowdown of " + std::to_string(options.slowdown),
                                "it may not be less than nothing", "give 0.05 for 5 %");
    const Seconds length =
        std::min(frontier.shortest() * (1 + options.slowdown), frontier.frugal());
    const tune::SwitchDelay switching = options.switching.value_or(tune::SwitchDelay{});
    PipelinePlan plan =
        options.kernels.empty()
            ? make_plan(frontier, length, options.clocks, switching)
            : make_kernel_plan(frontier, options.kernels, length, switching.latency);
    const std::vector<double> as_measured(frontier.pipeline().stages, 1.0);
    if (!estimate || !estimate->is_noisy()) return detail::plan_json(plan, as_measured).dump();
    const PlanPromise promise = estimate->promise(plan);
    for (PlannedOperation& planned : plan.operations)
        planned.duration = planned.duration * estimate->expected_duration(planned.clocks);
    nlohmann::json json = detail::plan_json(plan, as_measured);
    json["promise"] = detail::promise_json(promise);
    return json.dump();
}

/// One stage's part of a plan.
/// @throws Error (invalid_input) for a text that is none, or of another pipeline
inline StagePlan parse_stage_plan(std::string_view text, const Pipeline& pipeline,
                                  std::uint32_t stage) {
    try {
        const auto json = nlohmann::json::parse(text.begin(), text.end());
        StagePlan plan = detail::stage_plan(json, pipeline, stage);
        if (json.contains("promise")) plan.promise = detail::parse_promise(json.at("promise"));
        return plan;
    } catch (const nlohmann::json::exception& error) {
        detail::reject_pipeline("the plan that rank 0 sent", error.what(),
                                "let all ranks run the same version of kdvfs");
    }
}

}  // namespace kdvfs::inline v0_3::train
