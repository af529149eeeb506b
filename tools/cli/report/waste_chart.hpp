// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <tools/cli/report/chart_parts.hpp>
#include <tools/cli/report/heat_chart.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

/// Energy that kernels waste, as arXiv 2601.08539 defines it, and its picture of what clocks are
/// desirable (Figure 2).
namespace cli::report {

/// Of one kernel in an iteration.
struct Waste {
    std::size_t kernel = 0;   ///< of the table
    std::size_t optimum = 0;  ///< point of least energy that takes no more time than the baseline
    kdvfs::Joules wasted{};   ///< e - e_o
};

/// Energy over the least that the kernel needs without losing time.
inline Waste waste_of(const kdvfs::tune::CostTable& table, std::size_t index) {
    const kdvfs::tune::KernelCosts& kernel = table.kernels[index];
    const kdvfs::tune::Cost found = kernel.points[kernel.baseline].cost;
    std::size_t optimum = kernel.baseline;
    for (std::size_t p = 0; p < kernel.points.size(); ++p)
        if (kernel.points[p].cost.time <= found.time * (1 + 1e-12) &&
            kernel.points[p].cost.energy < kernel.points[optimum].cost.energy)
            optimum = p;
    return {index, optimum, kernel.at(kernel.baseline).energy - kernel.at(optimum).energy};
}

namespace waste_parts {

/// "11.58 %": waste has no sign.
inline std::string share_text(double share) {
    return kdvfs::io::format_text("%.2f %%", 100 * share);
}

/// What a clock point does to a kernel against the baseline.
inline const char* verdict_of(double time_pct, double energy_pct) {
    if (energy_pct < 0) return time_pct <= 0 ? "waste removed" : "slower, less energy";
    return time_pct < 0 ? "faster, more energy" : "slower, more energy";
}

inline Json desirability_rows(const kdvfs::tune::CostTable& table,
                              const std::vector<std::size_t>& kernels) {
    constexpr double most_pct = 100;  // farther points are no choice
    Json rows = Json::array();
    for (const std::size_t k : kernels) {
        const auto& kernel = table.kernels[k];
        const kdvfs::tune::Cost found = kernel.points[kernel.baseline].cost;
        for (std::size_t p = 0; p < kernel.points.size(); ++p) {
            const double time = time_percent(kernel.points[p].cost, found);
            const double energy = energy_percent(kernel.points[p].cost, found);
            if (p == kernel.baseline || time > most_pct || energy > most_pct) continue;
            rows.push_back({{"kernel", to_string(kernel.key)},
                            {"clock", to_string(kernel.points[p].clock)},
                            {"t", shown(time)},
                            {"e", shown(energy)},
                            {"is", verdict_of(time, energy)}});
        }
    }
    return rows;
}

}  // namespace waste_parts

/// The energy wasted by kernel, and all clock points by what they do to kernels.
inline Chart waste_chart(const kdvfs::tune::CostTable& table) {
    std::vector<Waste> all;
    kdvfs::Joules sum{};
    for (std::size_t k = 0; k < table.kernels.size(); ++k) {
        all.push_back(waste_of(table, k));
        sum += all.back().wasted;
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Waste& a, const Waste& b) { return a.wasted > b.wasted; });
    Chart chart{"waste", "Energy wasted", "", {}};
    chart.table.push_back({"kernel", "wasted, J an iteration", "of its energy", "least at"});
    constexpr std::size_t most = 20;
    for (std::size_t i = 0; i < std::min(most, all.size()); ++i) {
        const auto& kernel = table.kernels[all[i].kernel];
        const kdvfs::Joules energy = kernel.at(kernel.baseline).energy;
        chart.table.push_back({to_string(kernel.key),
                               kdvfs::io::format_text("%.4g", all[i].wasted.count),
                               waste_parts::share_text(all[i].wasted / energy),
                               to_string(kernel.points[all[i].optimum].clock)});
    }
    const double share = sum / table.baseline_cost().energy;
    chart.caption =
        "Waste is the energy over the least that a kernel needs in no more time (arXiv "
        "2601.08539): " +
        waste_parts::share_text(share) +
        " of an iteration, kernel by kernel. A point is a clock of a kernel; those down to the "
        "left remove waste." +
        left_out_text(std::min(most, all.size()), all.size());
    chart.spec =
        specification(waste_parts::desirability_rows(table, heaviest_kernels(table, most)));
    chart.spec["width"] = chart_width - 200;
    chart.spec["height"] = 340;
    Json points{
        {"mark", {{"type", "point"}, {"filled", true}, {"size", 25}, {"aria", false}}},
        {"encoding",
         {{"x", quantity("t", "time %")},
          {"y", quantity("e", "energy %")},
          {"color", category("is", "")},
          {"tooltip",
           tooltip(
               {{"kernel", "kernel"}, {"clock", "clock"}, {"t", "time %"}, {"e", "energy %"}})}}}};
    chart.spec["layer"] = Json::array({zero_line("x"), zero_line("y"), std::move(points)});
    return chart;
}

}  // namespace cli::report
