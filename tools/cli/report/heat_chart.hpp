// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <tools/cli/report/chart_parts.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace cli::report {

/// The kernels that matter, those of most energy at the baseline first.
inline std::vector<std::size_t> heaviest_kernels(const kdvfs::tune::CostTable& table,
                                                 std::size_t most) {
    std::vector<std::size_t> order(table.kernels.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return table.kernels[a].at(table.kernels[a].baseline).energy >
               table.kernels[b].at(table.kernels[b].baseline).energy;
    });
    order.resize(std::min(order.size(), most));
    return order;
}

/// ", the N kernels of most energy out of M" where some are left out.
inline std::string left_out_text(std::size_t shown_kernels, std::size_t all) {
    if (shown_kernels == all) return "";
    return " Shown are the " + std::to_string(shown_kernels) + " kernels of most energy out of " +
           std::to_string(all) + '.';
}

namespace heat_parts {

/// At most `most` of an ordered set, evenly spread, both ends included.
inline std::set<kdvfs::Megahertz> sparsified(const std::set<kdvfs::Megahertz>& all,
                                             std::size_t most) {
    if (all.size() <= most) return all;
    const std::vector<kdvfs::Megahertz> list(all.begin(), all.end());
    std::set<kdvfs::Megahertz> some;
    for (std::size_t i = 0; i < most; ++i) some.insert(list[i * (list.size() - 1) / (most - 1)]);
    return some;
}

inline std::string clock_text(kdvfs::Megahertz clock) {
    return clock == kdvfs::auto_clock ? "auto" : std::to_string(clock.count);
}

/// A round bound that nearly all savings keep; losses, which can be many times as large, share it.
inline double colour_limit(std::vector<double> changes) {
    std::erase_if(changes, [](double change) { return change >= 0; });
    std::sort(changes.begin(), changes.end());
    const double most = changes.empty() ? 0 : -changes[changes.size() / 20];
    for (const double limit : {5.0, 10.0, 20.0, 50.0})
        if (most <= limit) return limit;
    return 100;
}

struct HeatGrid {
    std::vector<std::size_t> kernels;
    std::set<kdvfs::Megahertz> cores;
    std::set<kdvfs::Megahertz> memories;
};

inline HeatGrid heat_grid(const kdvfs::tune::CostTable& table,
                          const std::map<kdvfs::KernelKey, kdvfs::ClockPoint>& planned) {
    HeatGrid grid{heaviest_kernels(table, 50), {}, {}};
    for (const std::size_t k : grid.kernels) {
        for (const auto& point : table.kernels[k].points) {
            grid.cores.insert(point.clock.core);
            grid.memories.insert(point.clock.memory);
        }
    }
    grid.memories = sparsified(grid.memories, 6);
    grid.cores = sparsified(grid.cores, 84 / grid.memories.size());
    for (const std::size_t k : grid.kernels) {
        const auto chosen = planned.find(table.kernels[k].key);
        if (chosen == planned.end()) continue;
        grid.cores.insert(chosen->second.core);
        grid.memories.insert(chosen->second.memory);
    }
    return grid;
}

inline Json heat_rows(const kdvfs::tune::CostTable& table, const HeatGrid& grid,
                      const std::map<kdvfs::KernelKey, kdvfs::ClockPoint>& planned,
                      std::vector<double>& energies) {
    Json rows = Json::array();
    for (const std::size_t k : grid.kernels) {
        const auto& kernel = table.kernels[k];
        const kdvfs::tune::Cost baseline = kernel.points[kernel.baseline].cost;
        const auto chosen = planned.find(kernel.key);
        for (const auto& point : kernel.points) {
            const bool is_chosen = chosen != planned.end() && chosen->second == point.clock;
            if (!grid.cores.contains(point.clock.core) ||
                !grid.memories.contains(point.clock.memory))
                continue;
            const double time = time_percent(point.cost, baseline);
            const double energy = energy_percent(point.cost, baseline);
            energies.push_back(energy);
            Json row{{"k", to_string(kernel.key)},
                     {"c", clock_text(point.clock.core)},
                     {"m", clock_text(point.clock.memory)},
                     {"t", shown(std::round(100 * time) / 100)},
                     {"e", shown(std::round(100 * energy) / 100)}};
            if (is_chosen) row["p"] = 1;
            rows.push_back(std::move(row));
        }
    }
    return rows;
}

inline Json heat_spec(const HeatGrid& grid, Json rows, const char* field, const char* title,
                      double limit) {
    Json cores = Json::array();
    for (const auto core : grid.cores) cores.push_back(clock_text(core));
    Json memories = Json::array();
    for (const auto memory : grid.memories) memories.push_back(clock_text(memory));
    // Auto is no cap: it belongs behind the highest clock.
    for (Json* list : {&cores, &memories})
        if (list->front() == "auto") std::rotate(list->begin(), list->begin() + 1, list->end());

    const std::size_t columns = grid.cores.size() * grid.memories.size();
    const std::size_t step = std::clamp<std::size_t>(760 / columns, 7, 34);
    Json x{{"field", "c"}, {"type", "ordinal"}, {"title", "core MHz"}, {"sort", cores}};
    x["axis"] = {{"labelAngle", -90},
                 {"labelFontSize", std::clamp<std::size_t>(step, 9, 13) - 2},
                 {"labelOverlap", step >= 10 ? Json(false) : Json("greedy")}};
    Json y = category("k", "");
    y["axis"] = {{"labelLimit", 200}, {"labelOverlap", false}};
    const Json colour{{"field", field},
                      {"type", "quantitative"},
                      {"title", title},
                      {"scale",
                       {{"domain", {-limit, limit}},
                        {"domainMid", 0},
                        {"clamp", true},
                        {"interpolate", "rgb"},
                        {"range", "diverging"}}},
                      {"legend", {{"orient", "top"}, {"gradientLength", 240}, {"tickCount", 5}}}};
    const Json tips = tooltip({{"k", "kernel"},
                               {"c", "core MHz"},
                               {"m", "memory MHz"},
                               {"t", "time %"},
                               {"e", "energy %"}});
    Json layer = Json::array();
    layer.push_back({{"mark", {{"type", "rect"}, {"aria", false}}},
                     {"encoding", {{"x", x}, {"y", y}, {"color", colour}, {"tooltip", tips}}}});
    layer.push_back({{"transform", {{{"filter", "datum.p === 1"}}}},
                     {"mark",
                      {{"type", "point"},
                       {"shape", "circle"},
                       {"filled", true},
                       {"size", std::min<std::size_t>(30, 3 * step)},
                       {"style", "chosen"},
                       {"aria", false}}},
                     {"encoding",
                      {{"x", x},
                       {"y", y},
                       {"color", {{"value", "#000000"}}},
                       {"stroke", {{"value", "#ffffff"}}}}}});
    Json spec = specification(std::move(rows));
    const Json size{{"step", step}};
    if (grid.memories.size() == 1) {
        spec["width"] = size;
        spec["height"] = Json{{"step", 13}};
        spec["layer"] = layer;
        return spec;
    }
    spec["facet"] = {
        {"column",
         {{"field", "m"}, {"type", "ordinal"}, {"title", "memory MHz"}, {"sort", memories}}}};
    spec["spacing"] = 6;
    spec["spec"] = {{"width", size}, {"height", {{"step", 13}}}, {"layer", layer}};
    return spec;
}

}  // namespace heat_parts

/// Every kernel at every clock: the change of energy, and that of time.
inline std::vector<Chart> heat_charts(const kdvfs::tune::CostTable& table,
                                      const kdvfs::tune::Plan* plan) {
    std::map<kdvfs::KernelKey, kdvfs::ClockPoint> planned;
    if (plan != nullptr)
        for (const auto& kernel : plan->kernels) planned[kernel.key] = kernel.clock;
    const heat_parts::HeatGrid grid = heat_parts::heat_grid(table, planned);
    std::vector<double> energies;
    const Json rows = heat_parts::heat_rows(table, grid, planned, energies);
    const std::string words = std::string{" against the baseline, kernel by clock."} +
                              (plan != nullptr ? " A dot is the plan's choice." : "") +
                              " What lies beyond the scale has the colour of its end." +
                              left_out_text(grid.kernels.size(), table.kernels.size());
    return {
        {"heat-energy", "Energy of each kernel at each clock", "Change of energy" + words,
         heat_parts::heat_spec(grid, rows, "e", "energy %", heat_parts::colour_limit(energies))},
        {"heat-time", "Time of each kernel at each clock", "Change of time" + words,
         heat_parts::heat_spec(grid, rows, "t", "time %", 20)}};
}

}  // namespace cli::report
