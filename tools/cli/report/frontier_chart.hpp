// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/solve/multiple_choice.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <tools/cli/report/chart_parts.hpp>
#include <tools/cli/report/noise.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cli::report {

/// A point of the time-energy plane with its 95 % interval, in percent against the baseline.
struct PlanePoint {
    std::string name;
    double time = 0;
    double energy = 0;
    double time_half = 0;
    double energy_half = 0;
};

inline Json to_json(const PlanePoint& point) {
    return {{"name", point.name},
            {"time", shown(point.time)},
            {"energy", shown(point.energy)},
            {"time_low", shown(point.time - point.time_half)},
            {"time_high", shown(point.time + point.time_half)},
            {"energy_low", shown(point.energy - point.energy_half)},
            {"energy_high", shown(point.energy + point.energy_half)}};
}

inline Json to_json(const std::vector<PlanePoint>& points) {
    Json list = Json::array();
    for (const PlanePoint& point : points) list.push_back(to_json(point));
    return list;
}

/// What the chart of the time-energy plane shows.
struct Plane {
    std::vector<PlanePoint> frontier;  ///< by time
    std::vector<PlanePoint> clocks;    ///< one clock point for all kernels
    std::vector<PlanePoint> plans;     ///< by name
};

/// Beyond this slowdown nobody plans, and clocks lie far out.
inline constexpr double drawn_slowdown_pct = 50;

/// The index of every kernel's point at a clock; empty where one was not measured there.
inline std::vector<std::size_t> all_at(const kdvfs::tune::CostTable& table,
                                       kdvfs::ClockPoint clock) {
    std::vector<std::size_t> chosen;
    for (const auto& kernel : table.kernels) {
        const auto found = std::lower_bound(
            kernel.points.begin(), kernel.points.end(), clock,
            [](const kdvfs::tune::PointCost& a, kdvfs::ClockPoint b) { return a.clock < b; });
        if (found == kernel.points.end() || found->clock != clock) return {};
        chosen.push_back(static_cast<std::size_t>(found - kernel.points.begin()));
    }
    return chosen;
}

inline PlanePoint plane_point(std::string name, const kdvfs::tune::CostTable& table,
                              const std::vector<std::size_t>& chosen, const Noise& noise) {
    kdvfs::tune::Cost total;
    for (std::size_t k = 0; k < chosen.size(); ++k) total += table.kernels[k].at(chosen[k]);
    const kdvfs::tune::Cost baseline = table.baseline_cost();
    const Noise::HalfWidth half = noise.of_change(table, chosen);
    return {std::move(name), time_percent(total, baseline), energy_percent(total, baseline),
            half.time, half.energy};
}

/// The frontier's corners, thinned to what a picture can show.
inline std::vector<PlanePoint> frontier_points(const kdvfs::tune::CostTable& table,
                                               const Noise& noise) {
    using namespace kdvfs::tune;
    constexpr double corners = 80;
    kdvfs::solve::MultipleChoice problem;
    for (const KernelCosts& kernel : table.kernels) {
        std::vector<kdvfs::solve::Choice> choices;
        for (std::size_t p = 0; p < kernel.points.size(); ++p)
            choices.push_back({kernel.at(p).time.count(), kernel.at(p).energy.count});
        problem.add_class(choices);
    }
    const kdvfs::solve::HullWalk walk{problem};
    const double baseline = table.baseline_cost().time.count();
    const auto point_after = [&](std::size_t steps) {
        const kdvfs::solve::Selection selection = walk.selection_after(steps);
        return plane_point("", table, {selection.chosen.begin(), selection.chosen.end()}, noise);
    };
    std::vector<PlanePoint> points{point_after(0)};
    const double apart = (drawn_slowdown_pct - points.front().time) / corners;
    kdvfs::solve::Choice total = walk.start().total;
    double drawn = points.front().time;
    for (std::size_t step = 0; step < walk.steps().size(); ++step) {
        total = walk.after(total, walk.steps()[step]);
        const double time = percent_change(total.time, baseline);
        if (time > drawn_slowdown_pct) break;
        // Close to the start, where plans lie, the steps are dense and all of them matter.
        if (time < drawn + std::min(apart, 0.02 + 0.02 * std::abs(time)) &&
            step + 1 != walk.steps().size())
            continue;
        drawn = time;
        points.push_back(point_after(step + 1));
    }
    return points;
}

/// The points at which all kernels share one clock, up to the slowdown that is drawn.
inline std::vector<PlanePoint> shared_clock_points(const kdvfs::tune::CostTable& table,
                                                   const Noise& noise) {
    std::vector<PlanePoint> points;
    for (const auto& point : table.kernels.front().points) {
        const std::vector<std::size_t> chosen = all_at(table, point.clock);
        if (chosen.empty()) continue;
        PlanePoint at = plane_point(to_string(point.clock), table, chosen, noise);
        if (at.time <= drawn_slowdown_pct) points.push_back(std::move(at));
    }
    return points;
}

/// A plan's totals, with what the noise of the profile says about them.
inline PlanePoint plan_point(const kdvfs::tune::Plan& plan, const kdvfs::tune::CostTable& table,
                             const Noise& noise) {
    PlanePoint point{std::string{to_string(plan.aggregate)}, plan.time_pct(), plan.energy_pct(), 0,
                     0};
    std::map<kdvfs::KernelKey, kdvfs::ClockPoint> clocks;
    for (const auto& kernel : plan.kernels) clocks[kernel.key] = kernel.clock;
    std::vector<std::size_t> chosen;
    for (const auto& kernel : table.kernels) {
        const auto found = clocks.find(kernel.key);
        if (found == clocks.end()) return point;
        const kdvfs::tune::CostTable alone{"", {}, {kernel}};
        const std::vector<std::size_t> at = all_at(alone, found->second);
        if (at.empty()) return point;
        chosen.push_back(at.front());
    }
    const Noise::HalfWidth half = noise.of_change(table, chosen);
    point.time_half = half.time;
    point.energy_half = half.energy;
    return point;
}

namespace frontier_parts {

inline Json plane_channel(const char* field, const char* title, const Json& domain) {
    Json channel = quantity(field, title);
    channel["scale"] = {{"domain", domain}, {"nice", false}, {"zero", false}};
    channel["axis"] = {{"tickCount", 8}};
    return channel;
}

inline Json interval_rules(const Json& data, const Json& x, const Json& y, double width) {
    Json layers = Json::array();
    for (const char* axis : {"x", "y"}) {
        Json encoding{{"x", x}, {"y", y}};
        const std::string name = axis[0] == 'x' ? "time" : "energy";
        encoding[axis]["field"] = name + "_low";
        encoding[std::string{axis} + "2"] = {{"field", name + "_high"}};
        layers.push_back({{"data", {{"values", data}}},
                          {"mark",
                           {{"type", "rule"},
                            {"clip", true},
                            {"strokeWidth", width},
                            {"opacity", 0.8},
                            {"aria", false}}},
                          {"encoding", encoding}});
    }
    return layers;
}

inline void append(Json& layers, const Json& more) {
    for (const Json& layer : more) layers.push_back(layer);
}

}  // namespace frontier_parts

/// The part of the plane between two corners.
inline Json plane_spec(const Plane& plane, const Json& time_domain, const Json& energy_domain) {
    const Json x =
        frontier_parts::plane_channel("time", "time, % against the baseline", time_domain);
    const Json y =
        frontier_parts::plane_channel("energy", "energy, % against the baseline", energy_domain);
    const Json tips = tooltip({{"name", "at"}, {"time", "time %"}, {"energy", "energy %"}});
    const Json frontier = to_json(plane.frontier);
    const Json clocks = to_json(plane.clocks);
    const Json plans = to_json(plane.plans);
    Json names = Json::array();
    for (const PlanePoint& plan : plane.plans) names.push_back(plan.name);

    Json spec = specification(Json::array());
    spec["width"] = chart_width;
    spec["height"] = 380;
    Json layers = Json::array({zero_line("x"), zero_line("y")});
    if (!plane.frontier.empty()) {
        Json band{{"x", x}, {"y", y}, {"y2", {{"field", "energy_high"}}}};
        band["y"]["field"] = "energy_low";
        layers.push_back(
            {{"data", {{"values", frontier}}},
             {"mark", {{"type", "area"}, {"opacity", 0.2}, {"clip", true}, {"aria", false}}},
             {"encoding", band}});
        layers.push_back({{"data", {{"values", frontier}}},
                          {"mark", {{"type", "line"}, {"clip", true}, {"aria", false}}},
                          {"encoding", {{"x", x}, {"y", y}}}});
    }
    frontier_parts::append(layers, frontier_parts::interval_rules(clocks, x, y, 1));
    layers.push_back(
        {{"data", {{"values", clocks}}},
         {"mark",
          {{"type", "point"}, {"filled", true}, {"size", 22}, {"clip", true}, {"style", "soft"}}},
         {"encoding", {{"x", x}, {"y", y}, {"tooltip", tips}}}});
    frontier_parts::append(layers, frontier_parts::interval_rules(plans, x, y, 1.5));
    const Json name{{"field", "name"},
                    {"type", "nominal"},
                    {"title", "plan"},
                    {"scale", {{"domain", names}}},
                    {"legend", {{"orient", "top"}}}};
    layers.push_back(
        {{"data", {{"values", plans}}},
         {"mark",
          {{"type", "point"}, {"filled", true}, {"size", 110}, {"opacity", 0.9}, {"clip", true}}},
         {"encoding", {{"x", x}, {"y", y}, {"color", name}, {"shape", name}, {"tooltip", tips}}}});
    spec["layer"] = layers;
    return spec;
}

/// The whole plane, and the part of it where the plans lie.
inline std::vector<Chart> frontier_charts(const Plane& plane, bool noise_known) {
    double low = 0;
    double high = 0;
    double least = 0;
    double most = 0;
    const auto include = [&](const std::vector<PlanePoint>& points) {
        for (const PlanePoint& point : points) {
            low = std::min(low, point.time - point.time_half);
            high = std::max(high, point.time + point.time_half);
            least = std::min(least, point.energy - point.energy_half);
            most = std::max(most, point.energy + point.energy_half);
        }
    };
    include(plane.plans);
    const Json near_time = round_domain(low, high);
    const Json near_energy = round_domain(least, most);
    std::vector<Chart> charts;
    const std::string intervals =
        noise_known ? " Bars and band are 95 % intervals by the spread of repeated samples."
                    : " The profile has one sample a point, so no uncertainty is known.";
    if (!plane.frontier.empty()) {
        include(plane.frontier);
        include(plane.clocks);
        charts.push_back(
            {"frontier", "Time and energy of an iteration",
             "Line: the best that a clock for each kernel can do. Small dots: one clock "
             "for all kernels, up to 50 % slower." +
                 intervals,
             plane_spec(plane, round_domain(low, high, drawn_slowdown_pct),
                        round_domain(least, most))});
    }
    charts.push_back(
        {"plans", "The plans",
         "The same plane where the plans lie." + (plane.frontier.empty() ? "" : intervals),
         plane_spec(plane, near_time, near_energy)});
    return charts;
}

/// What each tolerated slowdown saves, by how clocks are shared.
inline Chart bounds_chart(const kdvfs::tune::CostTable& table) {
    using namespace kdvfs::tune;
    Json rows = Json::array();
    for (const Aggregate aggregate :
         {Aggregate::single, Aggregate::per_group, Aggregate::local, Aggregate::global}) {
        for (const double percent : {0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0}) {
            const Plan plan = make_plan(table, relaxed_waste(percent / 100), aggregate);
            rows.push_back({{"plan", to_string(aggregate)},
                            {"bound", percent},
                            {"energy", shown(plan.energy_pct())},
                            {"time", shown(plan.time_pct())}});
        }
    }
    Json spec = specification(rows);
    spec["width"] = chart_width;
    spec["height"] = 260;
    spec["mark"] = {{"type", "line"}, {"point", {{"size", 45}, {"filled", true}}}};
    Json x = quantity("bound", "tolerated slowdown, %");
    x["scale"] = {{"type", "sqrt"}, {"nice", false}};
    x["axis"] = {{"values", {0, 0.1, 0.5, 1, 2, 5, 10}}, {"format", ".2~f"}};
    Json names{{"field", "plan"},
               {"type", "nominal"},
               {"title", "plan"},
               {"sort", nullptr},
               {"legend", {{"orient", "top"}}},
               {"scale", {{"domain", {"auto", "single", "per_group", "local", "global"}}}}};
    names["legend"]["values"] = {"single", "per_group", "local", "global"};
    spec["encoding"] = {{"x", x},
                        {"y", quantity("energy", "energy, % against the baseline")},
                        {"color", names},
                        {"tooltip", tooltip({{"plan", "plan"},
                                             {"bound", "bound %"},
                                             {"time", "time %"},
                                             {"energy", "energy %"}})}};
    return {"bounds", "What a tolerated slowdown saves",
            "Energy of the best plan at each bound, 0 being strict waste.", spec};
}

}  // namespace cli::report
