// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/train/pipeline_power.hpp>
#include <kdvfs/train/plan.hpp>
#include <tools/cli/report/chart_parts.hpp>
#include <tools/cli/report/swing_table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cli::report {

/// A plan of a pipeline as `kdvfs plan-pipeline --format json` writes it.
struct PipelinePlanInput {
    struct Bar {
        std::uint32_t stage = 0;
        std::string pass;
        std::uint32_t chunk = 0;
        std::uint32_t microbatch = 0;
        double start = 0;
        double duration = 0;
        double core_mhz = 0;  ///< the first, where an operation has two
    };
    std::string name;
    double time = 0;
    double total = 0;
    std::vector<Bar> bars;
};

/// @pre `json` is an object with an object `plan` and a list `operations`
inline PipelinePlanInput pipeline_plan(const nlohmann::json& json) {
    PipelinePlanInput plan{"",
                           json.at("plan").at("time_s").get<double>(),
                           json.at("plan").at("total_j").get<double>(),
                           {}};
    plan.name = "the plan for " + shown(plan.time).dump() + " s";
    for (const auto& operation : json.at("operations"))
        plan.bars.push_back(
            {operation.at("stage").get<std::uint32_t>(), operation.at("op").get<std::string>(),
             operation.at("chunk").get<std::uint32_t>(),
             operation.at("microbatch").get<std::uint32_t>(), operation.at("start_s").get<double>(),
             operation.at("duration_s").get<double>(),
             operation.at("clock_mhz").at(0).get<double>()});
    return plan;
}

namespace pipeline_parts {

using PipelineBar = PipelinePlanInput::Bar;

inline PipelineBar bar_of(const kdvfs::train::Operation& operation, kdvfs::Seconds start,
                          kdvfs::Seconds duration, kdvfs::ClockPoint clock) {
    return {operation.stage,
            std::string{to_string(operation.pass)},
            operation.chunk,
            operation.microbatch,
            start.count(),
            duration.count(),
            static_cast<double>(clock.core.count)};
}

/// Every operation as fast as it can run: what a program does that nobody has planned.
inline PipelinePlanInput all_at_the_top(const kdvfs::train::Pipeline& pipeline) {
    PipelinePlanInput found{"all at their fastest clock", 0, 0, {}};
    found.bars.resize(pipeline.operations.size());
    std::vector<double> ready(pipeline.operations.size(), 0);
    std::vector<std::vector<kdvfs::train::Dependency>> then(pipeline.operations.size());
    for (const kdvfs::train::Dependency& d : pipeline.dependencies) then[d.first].push_back(d);
    for (const std::uint32_t i : pipeline.topological_order) {
        const kdvfs::train::Operation& operation = pipeline.operations[i];
        const kdvfs::train::Curve& curve = pipeline.curves[operation.curve];
        const kdvfs::train::CurvePoint& fastest = curve.points().front();
        found.bars[i] = bar_of(operation, kdvfs::Seconds{ready[i]}, fastest.time, fastest.clock);
        const double end = ready[i] + fastest.time.count();
        for (const kdvfs::train::Dependency& d : then[i])
            ready[d.then] = std::max(ready[d.then], end + d.time.count());
        found.time = std::max(found.time, end);
        found.total += kdvfs::train::to_joules(curve.effective(0)).count;
    }
    found.total += pipeline.blocking_energy(kdvfs::Seconds{found.time}).count;
    return found;
}

inline PipelinePlanInput as_input(const kdvfs::train::PipelinePlan& plan, std::string name) {
    PipelinePlanInput input{std::move(name), plan.time.count(), plan.total.count, {}};
    for (const kdvfs::train::PlannedOperation& planned : plan.operations)
        input.bars.push_back(bar_of(planned.clocks.operation, planned.start, planned.duration,
                                    planned.clocks.first));
    return input;
}

inline Chart pipeline_frontier_chart(const kdvfs::train::Frontier& frontier,
                                     const std::vector<PipelinePlanInput>& plans) {
    Json line = Json::array();
    const auto& corners = frontier.corners();
    const std::size_t step = std::max<std::size_t>(corners.size() / 400, 1);
    const auto add = [&](const kdvfs::train::Corner& corner) {
        line.push_back({{"time", shown(corner.time().count())},
                        {"energy", shown(frontier.total(corner.time()).count)}});
    };
    for (std::size_t k = 0; k + 1 < corners.size(); k += step) add(corners[k]);
    add(corners.back());
    Json points = Json::array();
    for (const PipelinePlanInput& plan : plans)
        points.push_back(
            {{"plan", plan.name}, {"time", shown(plan.time)}, {"energy", shown(plan.total)}});
    Json x = free_quantity("time", "iteration, s");
    x["axis"] = {{"tickCount", 8}};
    const Json y = free_quantity("energy", "all stages, J");
    Json spec = specification(line);
    spec["width"] = chart_width;
    spec["height"] = 320;
    spec["layer"] = {
        {{"mark", {{"type", "line"}, {"strokeWidth", 1.6}, {"aria", false}}},
         {"encoding", {{"x", x}, {"y", y}}}},
        {{"data", {{"values", points}}},
         {"mark", {{"type", "point"}, {"filled", true}, {"size", 90}}},
         {"encoding",
          {{"x", x},
           {"y", y},
           {"color",
            {{"field", "plan"},
             {"type", "nominal"},
             {"sort", nullptr},
             {"title", nullptr},
             {"legend", {{"orient", "top"}, {"labelLimit", 400}}}}},
           {"tooltip", tooltip({{"plan", "plan"}, {"time", "s"}, {"energy", "J"}})}}}}};
    return {"pipeline-frontier", "Time and energy of a pipeline's iteration",
            "The least energy of all stages, waiting included, for each length of an iteration: " +
                count_text(corners.size(), "corner") +
                (frontier.gap() > 0 ? ", proven to " + shown(100 * frontier.gap()).dump() + " %."
                                    : ", each exact."),
            spec};
}

/// One picture of the stages for each plan, below one another.
inline Chart pipeline_gantt_chart(const std::vector<PipelinePlanInput>& plans) {
    Json rows = Json::array();
    for (const PipelinePlanInput& plan : plans)
        for (const PipelineBar& bar : plan.bars)
            rows.push_back({{"plan", plan.name},
                            {"stage", bar.stage},
                            {"op", bar.pass},
                            {"chunk", bar.chunk},
                            {"microbatch", bar.microbatch},
                            {"from", shown(bar.start)},
                            {"to", shown(bar.start + bar.duration)},
                            {"mhz", shown(bar.core_mhz)}});
    Json x = quantity("from", "s");
    x["axis"] = {{"tickCount", 8}};
    // The dark end of the scheme would be lost on a dark ground.
    const Json colour{
        {"field", "mhz"},
        {"type", "quantitative"},
        {"title", "core, MHz"},
        {"scale", {{"scheme", {{"name", "viridis"}, {"extent", {0.2, 1}}}}, {"zero", false}}},
        {"legend",
         {{"orient", "top"}, {"gradientLength", 240}, {"tickCount", 5}, {"format", "d"}}}};
    Json spec = specification(rows);
    spec["facet"] = rows_of("plan");
    spec["facet"]["row"]["sort"] = nullptr;
    spec["spec"] = {{"width", chart_width},
                    {"height", {{"step", 22}}},
                    {"mark", {{"type", "bar"}, {"stroke", "white"}, {"strokeWidth", 0.6}}},
                    {"encoding",
                     {{"x", x},
                      {"x2", {{"field", "to"}}},
                      {"y", {{"field", "stage"}, {"type", "ordinal"}, {"title", "stage"}}},
                      {"color", colour},
                      {"tooltip", tooltip({{"op", "operation"},
                                           {"microbatch", "microbatch"},
                                           {"chunk", "chunk"},
                                           {"stage", "stage"},
                                           {"mhz", "MHz"},
                                           {"from", "from, s"},
                                           {"to", "to, s"}})}}}};
    return {"pipeline", "The stages of the pipeline",
            "What each stage runs when, coloured by its core clock. Gaps are waiting.", spec};
}

/// The power of all stages together and of the stage that swings most, over an iteration.
inline Chart pipeline_power_chart(const kdvfs::train::Pipeline& pipeline,
                                  const kdvfs::train::PipelinePlan& plan) {
    using namespace kdvfs::train;
    const auto stages = stage_powers(pipeline, run_operations(pipeline, plan), plan.time);
    std::size_t widest = 0;
    std::vector<kdvfs::tune::PowerSwing> swings;
    for (const auto& steps : stages) {
        swings.push_back(kdvfs::tune::power_swing(steps, swing_window));
        if (swings.back().range() > swings[widest].range()) widest = swings.size() - 1;
    }
    const auto all = kdvfs::tune::sum_power(stages);
    Json rows = Json::array();
    const auto add = [&](const std::string& what,
                         const std::vector<kdvfs::tune::PowerStep>& steps) {
        double time = 0;
        for (const kdvfs::tune::PowerStep& step : steps) {
            rows.push_back({{"what", what},
                            {"from", shown(time)},
                            {"to", shown(time + step.length.count())},
                            {"watts", shown(step.power.count)}});
            time += step.length.count();
        }
    };
    const std::string stage = "stage " + std::to_string(widest);
    add("all stages", all);
    add(stage, stages[widest]);
    Json x = quantity("from", "s");
    x["axis"] = {{"tickCount", 8}};
    Json spec = specification(rows);
    spec["facet"] = rows_of("what");
    spec["facet"]["row"]["sort"] = nullptr;
    spec["resolve"] = {{"scale", {{"y", "independent"}}}};
    spec["spec"] = {
        {"width", chart_width},
        {"height", 130},
        {"mark", {{"type", "rect"}, {"aria", false}}},
        {"encoding",
         {{"x", x},
          {"x2", {{"field", "to"}}},
          {"y", quantity("watts", "W")},
          {"y2", {{"datum", 0}}},
          {"tooltip", tooltip({{"watts", "W"}, {"from", "from, s"}, {"to", "to, s"}})}}}};
    return {
        "pipeline-power", "Power of the planned pipeline over an iteration",
        "All stages: " + swing_text(kdvfs::tune::power_swing(all, swing_window)) + "; " + stage +
            ", which swings most: " + swing_text(swings[widest]) + ". " + swing_note() +
            " There each operation runs at its fastest clock that draws no more than its row says.",
        spec, lower_range_table(lower_ranges(pipeline, swing_window))};
}

}  // namespace pipeline_parts

/// The charts of a pipeline: its frontier with plans on it, and its stages before and after. With a
/// plan alone, its stages.
inline std::vector<Chart> pipeline_charts(const kdvfs::train::PipelineCase* known,
                                          const PipelinePlanInput* planned) {
    using namespace kdvfs::train;
    constexpr std::size_t most_bars = 6000;
    std::vector<PipelinePlanInput> plans;
    std::vector<Chart> charts;
    std::optional<PipelinePlan> no_slower;
    if (known != nullptr) {
        const std::size_t operations = known->pipeline.operations.size();
        const Frontier frontier{known->pipeline,
                                {operations <= 3000     ? 0
                                 : operations <= 10'000 ? 1e-4
                                                        : 1e-3}};
        plans.push_back(pipeline_parts::all_at_the_top(known->pipeline));
        no_slower = make_plan(frontier, frontier.shortest(), Clocks::one);
        plans.push_back(pipeline_parts::as_input(*no_slower, "planned, no slower"));
        if (planned != nullptr) plans.push_back(*planned);
        charts.push_back(pipeline_parts::pipeline_frontier_chart(frontier, plans));
    } else if (planned != nullptr) {
        plans.push_back(*planned);
    }
    std::size_t bars = 0;
    for (const PipelinePlanInput& plan : plans) bars += plan.bars.size();
    if (bars > 0 && bars <= most_bars)
        charts.push_back(pipeline_parts::pipeline_gantt_chart(plans));
    if (no_slower && bars <= most_bars)
        charts.push_back(pipeline_parts::pipeline_power_chart(known->pipeline, *no_slower));
    return charts;
}

}  // namespace cli::report
