// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/tune/plan_fields.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/planner.hpp>
#include <tools/cli/report/chart_parts.hpp>
#include <tools/cli/report/swing_table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cli::report {

/// A plan of segments: what it promises, and the launches that it is for.
struct SegmentsInput {
    kdvfs::tune::Plan promise;
    kdvfs::PlannedSequence sequence{};  ///< no launches where the file has none
    /// The launch in which each clock arrives, ascending; the last one holds at the begin.
    std::vector<std::pair<std::size_t, kdvfs::ClockPoint>> arrivals{};
    /// What the plan expects of stretches that begin in a gap, by their clock.
    std::map<kdvfs::ClockPoint, kdvfs::tune::Cost> rests{};
};

/// @throws Error (invalid_input) naming file and field
inline SegmentsInput segments_input(const std::string& text, const nlohmann::json& json,
                                    const std::string& file) {
    using kdvfs::tune::PlanFields;
    SegmentsInput input{kdvfs::tune::parse_promise(text, file)};
    if (!json.contains("sequence")) return input;
    input.sequence = kdvfs::tune::parse_sequence(text, file);
    const auto& segments = json["segments"];
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const PlanFields fields{segments[i], file, "segments[" + std::to_string(i) + "]."};
        input.arrivals.emplace_back(
            fields.integer("arrives_in", 0),
            kdvfs::ClockPoint{fields.clock("core_mhz"), fields.clock("mem_mhz")});
        if (fields.has("after_s"))
            input.rests[input.arrivals.back().second] +=
                {kdvfs::Seconds{fields.number("time_s", 0)},
                 kdvfs::Joules{fields.number("energy_j", 0)}};
    }
    std::stable_sort(input.arrivals.begin(), input.arrivals.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return input;
}

/// Launches of one kernel in a row at one clock.
struct LaunchStretch {
    const kdvfs::tune::KernelCosts* kernel = nullptr;
    kdvfs::ClockPoint clock;
    std::uint32_t launches = 0;
    kdvfs::tune::Cost found;    ///< of one launch, at the baseline
    kdvfs::tune::Cost planned;  ///< of one launch, at `clock`
};

/// An iteration as a plan runs it, by the profile's costs. Empty where the file has no launches, or
/// the profile lacks one of its kernels or clocks.
inline std::vector<LaunchStretch> planned_iteration(const SegmentsInput& plan,
                                                    const kdvfs::tune::CostTable& table) {
    std::vector<LaunchStretch> stretches;
    if (plan.arrivals.empty()) return stretches;
    std::map<kdvfs::KernelKey, const kdvfs::tune::KernelCosts*> known;
    for (const auto& kernel : table.kernels) known[kernel.key] = &kernel;
    kdvfs::ClockPoint clock = plan.arrivals.back().second;
    auto next = plan.arrivals.begin();
    for (std::size_t i = 0; i < plan.sequence.launches.size(); ++i) {
        for (; next != plan.arrivals.end() && next->first <= i; ++next) clock = next->second;
        const auto found = known.find(plan.sequence.kernels[plan.sequence.launches[i]].key);
        if (found == known.end()) return {};
        const auto& kernel = *found->second;
        if (!stretches.empty() && stretches.back().kernel == &kernel &&
            stretches.back().clock == clock) {
            ++stretches.back().launches;
            continue;
        }
        const auto point = std::find_if(kernel.points.begin(), kernel.points.end(),
                                        [&](const auto& each) { return each.clock == clock; });
        if (point == kernel.points.end()) return {};
        stretches.push_back({&kernel, clock, 1, kernel.points[kernel.baseline].cost, point->cost});
    }
    return stretches;
}

/// The plan kernel by kernel: the mean launch of each, and the clock at which most of it runs.
inline std::vector<kdvfs::tune::PlannedKernel> followed_kernels(
    const std::vector<LaunchStretch>& iteration) {
    std::vector<kdvfs::tune::PlannedKernel> kernels;
    std::map<const kdvfs::tune::KernelCosts*, std::map<kdvfs::ClockPoint, std::uint32_t>> clocks;
    std::map<const kdvfs::tune::KernelCosts*, std::size_t> places;
    for (const LaunchStretch& stretch : iteration) {
        const auto [place, is_new] = places.try_emplace(stretch.kernel, kernels.size());
        if (is_new) kernels.push_back({stretch.kernel->key, 0, {}, stretch.found, {}});
        kdvfs::tune::PlannedKernel& kernel = kernels[place->second];
        kernel.count += stretch.launches;
        kernel.expected += stretch.planned * stretch.launches;
        auto& at = clocks[stretch.kernel];
        at[stretch.clock] += stretch.launches;
        if (at[stretch.clock] >= at[kernel.clock]) kernel.clock = stretch.clock;
    }
    for (auto& kernel : kernels) kernel.expected = kernel.expected * (1.0 / kernel.count);
    return kernels;
}

namespace iteration_parts {

constexpr std::size_t most_stretches = 1200;
constexpr int panel_width = chart_width - 130;  // beside the names of clocks

/// "1500 MHz", with the memory's clock where that is not the board's own.
inline std::string clock_name(kdvfs::ClockPoint clock) {
    const auto text = [](kdvfs::Megahertz one) {
        return one == kdvfs::auto_clock ? std::string{"auto"} : std::to_string(one.count) + " MHz";
    };
    return text(clock.core) +
           (clock.memory == kdvfs::auto_clock ? "" : ", memory " + text(clock.memory));
}

/// The names that get a colour: the kernels of most time.
inline std::vector<std::string> named_kernels(const std::vector<LaunchStretch>& iteration) {
    constexpr std::size_t colours = 7;
    std::map<std::string, double> seconds;
    for (const LaunchStretch& stretch : iteration)
        seconds[to_string(stretch.kernel->key)] += stretch.found.time.count() * stretch.launches;
    std::vector<std::string> names;
    for (const auto& [name, time] : seconds) names.push_back(name);
    std::stable_sort(names.begin(), names.end(),
                     [&](const auto& a, const auto& b) { return seconds.at(a) > seconds.at(b); });
    names.resize(std::min(names.size(), colours));
    return names;
}

/// One rectangle a stretch, as found or as planned.
inline Json stretch_rows(const std::vector<LaunchStretch>& iteration, bool planned, double unit,
                         const std::vector<std::string>& named) {
    Json rows = Json::array();
    double at = 0;
    for (const LaunchStretch& stretch : iteration) {
        if (rows.size() == most_stretches) break;
        const kdvfs::tune::Cost& cost = planned ? stretch.planned : stretch.found;
        const double end = at + unit * cost.time.count() * stretch.launches;
        const std::string name = to_string(stretch.kernel->key);
        const bool has_colour = std::find(named.begin(), named.end(), name) != named.end();
        rows.push_back({{"kernel", name},
                        {"colour", has_colour ? name : "others"},
                        {"clock", clock_name(stretch.clock)},
                        {"launches", stretch.launches},
                        {"from", shown(at)},
                        {"to", shown(end)},
                        {"watts", shown((cost.energy / cost.time).count)},
                        {"time", percent_text(time_percent(stretch.planned, stretch.found))},
                        {"energy", percent_text(energy_percent(stretch.planned, stretch.found))}});
        at = end;
    }
    return rows;
}

inline Json power_panel(const char* title, Json rows, const Json& x, const Json& order) {
    return {{"title", title},
            {"data", {{"values", std::move(rows)}}},
            {"width", panel_width},
            {"height", 130},
            {"mark", {{"type", "rect"}, {"aria", false}}},
            {"encoding",
             {{"x", x},
              {"x2", {{"field", "to"}}},
              {"y", quantity("watts", "power, W")},
              {"y2", {{"datum", 0}}},
              {"color", kernel_colour(order)},
              {"tooltip", tooltip({{"kernel", "kernel"},
                                   {"launches", "launches"},
                                   {"clock", "planned clock"},
                                   {"watts", "W"},
                                   {"time", "time"},
                                   {"energy", "energy"}})}}}};
}

/// The clock that the plan has in force, a bar a segment, the highest clock on top.
inline Json clock_panel(const std::vector<LaunchStretch>& iteration, const Json& drawn,
                        const Json& x) {
    Json rows = Json::array();
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> clocks;
    // Auto is no cap: its place is above the highest.
    const auto height = [](kdvfs::Megahertz clock) {
        return clock == kdvfs::auto_clock ? ~std::uint32_t{0} : clock.count;
    };
    for (std::size_t i = 0; i < drawn.size(); ++i) {
        const kdvfs::ClockPoint clock = iteration[i].clock;
        clocks[{height(clock.core), height(clock.memory)}] = clock_name(clock);
        if (!rows.empty() && rows.back()["clock"] == drawn[i]["clock"])
            rows.back()["to"] = drawn[i]["to"];
        else
            rows.push_back(
                {{"clock", drawn[i]["clock"]}, {"from", drawn[i]["from"]}, {"to", drawn[i]["to"]}});
    }
    Json order = Json::array();
    for (auto clock = clocks.rbegin(); clock != clocks.rend(); ++clock)
        order.push_back(clock->second);
    return {{"title", "clocks of the plan"},
            {"data", {{"values", rows}}},
            {"width", panel_width},
            {"height", {{"step", 18}}},
            {"mark", {{"type", "bar"}, {"aria", false}}},
            {"encoding",
             {{"x", x},
              {"x2", {{"field", "to"}}},
              {"y",
               {{"field", "clock"},
                {"type", "nominal"},
                {"title", nullptr},
                {"sort", order},
                {"axis", {{"labelLimit", 160}}}}},
              {"tooltip", tooltip({{"clock", "clock"}, {"from", "from"}, {"to", "to"}})}}}};
}

}  // namespace iteration_parts

/// One iteration, launch by launch: the power as found and by the plan, and the plan's clocks.
/// @pre `iteration` is not empty
inline Chart iteration_chart(const std::vector<LaunchStretch>& iteration,
                             const SegmentsInput& plan) {
    using namespace iteration_parts;
    const std::vector<std::string> named = named_kernels(iteration);
    kdvfs::tune::Cost found;
    kdvfs::tune::Cost planned;
    for (const LaunchStretch& stretch : iteration) {
        found += stretch.found * stretch.launches;
        planned += stretch.planned * stretch.launches;
    }
    const double longest = std::max(found.time, planned.time).count();
    const double unit = longest >= 1 ? 1 : 1e3;
    Json order = named;
    const Json before = stretch_rows(iteration, false, unit, named);
    const Json after = stretch_rows(iteration, true, unit, named);
    const double end =
        std::max(before.back()["to"].get<double>(), after.back()["to"].get<double>());
    Json x = quantity("from", unit == 1 ? "time, s" : "time, ms");
    x["scale"] = {{"domain", {0, end}}, {"nice", false}};
    x["axis"] = {{"tickCount", 8}};
    Json spec = specification(Json::array());
    spec["vconcat"] = Json::array({power_panel("as found", before, x, order),
                                   power_panel("by the plan", after, x, order),
                                   clock_panel(iteration, after, x)});
    spec["spacing"] = 8;
    std::string caption =
        "By the profile, without gaps: an area is an energy. A clock is drawn from the launch on "
        "in which it arrives. With the plan, kernels take " +
        percent_text(time_percent(planned, found)) + " time and " +
        percent_text(energy_percent(planned, found)) + " energy, switches left out.";
    if (iteration.size() > most_stretches)
        caption += " Drawn is the begin of the iteration: " + std::to_string(most_stretches) +
                   " changes of kernel or clock out of " + std::to_string(iteration.size()) + '.';
    for (const auto& [clock, cost] : plan.rests)
        caption += " Beginning in gaps, at " + to_string(clock) + ": " +
                   fixed_text(1e3 * cost.time.count()) + " ms and " +
                   fixed_text(cost.energy.count, 2) + " J, not drawn.";
    return {"iteration", "One iteration by the plan", caption, spec};
}

}  // namespace cli::report
