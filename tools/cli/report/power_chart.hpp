// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/power_swing.hpp>
#include <tools/cli/report/chart_parts.hpp>
#include <tools/cli/report/swing_table.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace cli::report {

/// Mean power of kernels one after the other: a rectangle's width is time, its area energy.
/// @param table that the plan was made from, where it is known
inline Chart plan_power_chart(const kdvfs::tune::Plan& plan, const kdvfs::tune::CostTable* table) {
    constexpr std::size_t colours = 7;
    constexpr std::size_t most = 400;  // rectangles
    std::vector<std::size_t> by_time(plan.kernels.size());
    std::iota(by_time.begin(), by_time.end(), std::size_t{0});
    const auto seconds = [&](std::size_t k) {
        return plan.kernels[k].baseline.time.count() * plan.kernels[k].count;
    };
    std::stable_sort(by_time.begin(), by_time.end(),
                     [&](std::size_t a, std::size_t b) { return seconds(a) > seconds(b); });
    std::map<std::size_t, std::string> named;
    for (std::size_t i = 0; i < std::min(colours, by_time.size()); ++i)
        named[by_time[i]] = to_string(plan.kernels[by_time[i]].key);
    const std::set<std::size_t> drawn(
        by_time.begin(),
        by_time.begin() + static_cast<std::ptrdiff_t>(std::min(most, by_time.size())));

    Json rows = Json::array();
    const double total = std::max(plan.baseline.time.count(), plan.expected.time.count());
    const double unit = total >= 1 ? 1 : 1e3;
    for (const bool planned : {false, true}) {
        double at = 0;
        for (std::size_t k = 0; k < plan.kernels.size(); ++k) {
            const auto& kernel = plan.kernels[k];
            const kdvfs::tune::Cost& cost = planned ? kernel.expected : kernel.baseline;
            const double end = at + unit * cost.time.count() * kernel.count;
            const auto name = named.find(k);
            if (drawn.contains(k))
                rows.push_back({{"kernel", to_string(kernel.key)},
                                {"colour", name == named.end() ? "others" : name->second},
                                {"when", planned ? "with the plan" : "at the baseline"},
                                {"clock", to_string(planned ? kernel.clock : plan.baseline_clock)},
                                {"from", shown(at)},
                                {"to", shown(end)},
                                {"watts", shown((cost.energy / cost.time).count)}});
            at = end;
        }
    }
    Json order = Json::array();
    for (const std::size_t k : by_time)
        if (named.contains(k)) order.push_back(named[k]);
    order.push_back("others");
    Json x = quantity("from", unit == 1 ? "time, s" : "time, ms");
    x["scale"] = {{"nice", false}};
    x["axis"] = {{"tickCount", 8}};
    Json spec = specification(rows);
    spec["facet"] = rows_of("when");
    spec["spec"] = {
        {"width", chart_width},
        {"height", 150},
        {"mark", {{"type", "rect"}, {"aria", false}, {"strokeWidth", 0.4}, {"stroke", "#8888"}}},
        {"encoding",
         {{"x", x},
          {"x2", {{"field", "to"}}},
          {"y", quantity("watts", "mean power, W")},
          {"y2", {{"datum", 0}}},
          {"color", kernel_colour(order)},
          {"tooltip", tooltip({{"kernel", "kernel"},
                               {"clock", "clock"},
                               {"watts", "W"},
                               {"from", "from"},
                               {"to", "to"}})}}}};
    const auto swing =
        kdvfs::tune::power_swing(kdvfs::tune::power_over_iteration(plan), swing_window);
    Chart chart{
        "power", "Power over an iteration",
        "Mean power of each kernel, one kernel after the other; areas are energies. With the "
        "plan: " +
            swing_text(swing) + "; where launches of kernels alternate it is less. " + swing_note(),
        spec};
    if (table != nullptr)
        chart.table = lower_range_table(kdvfs::tune::lower_ranges(plan, *table, swing_window));
    return chart;
}

}  // namespace cli::report
