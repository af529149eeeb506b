// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <tools/cli/report/chart_parts.hpp>
#include <tools/cli/report/noise.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace cli::report {

/// One kernel of a plan, all its launches in an iteration.
struct KernelSaving {
    std::string name;
    std::string clock;
    double joules = 0;       ///< saved: positive is good
    double joules_half = 0;  ///< of its 95 % interval
    double time_pct = 0;
    double time_half = 0;
};

/// What each kernel of a plan saves, the largest first. Intervals need the profile.
inline std::vector<KernelSaving> kernel_savings(const kdvfs::tune::Plan& plan,
                                                const kdvfs::tune::CostTable* table,
                                                const Noise* noise) {
    std::map<kdvfs::KernelKey, const kdvfs::tune::KernelCosts*> known;
    if (table != nullptr)
        for (const auto& kernel : table->kernels) known[kernel.key] = &kernel;
    std::vector<KernelSaving> savings;
    for (const auto& kernel : plan.kernels) {
        const double baseline = kernel.baseline.energy.count * kernel.count;
        KernelSaving saving{to_string(kernel.key),
                            to_string(kernel.clock),
                            baseline - kernel.expected.energy.count * kernel.count,
                            0,
                            time_percent(kernel.expected, kernel.baseline),
                            0};
        const auto found = known.find(kernel.key);
        if (found != known.end() && noise != nullptr) {
            const auto& points = found->second->points;
            const auto point = std::find_if(points.begin(), points.end(),
                                            [&](const auto& p) { return p.clock == kernel.clock; });
            if (point != points.end()) {
                const Noise::HalfWidth half = noise->of_change(
                    *found->second, static_cast<std::size_t>(point - points.begin()));
                saving.joules_half = half.energy / 100 * baseline;
                saving.time_half = half.time;
            }
        }
        savings.push_back(std::move(saving));
    }
    std::stable_sort(savings.begin(), savings.end(), [](const auto& a, const auto& b) {
        return std::abs(a.joules) > std::abs(b.joules);
    });
    return savings;
}

/// Joules saved and time changed, kernel by kernel.
inline Chart savings_chart(const std::vector<KernelSaving>& savings, bool noise_known) {
    constexpr std::size_t most = 40;
    Json rows = Json::array();
    double rest = 0;
    for (std::size_t i = 0; i < savings.size(); ++i) {
        const KernelSaving& saving = savings[i];
        if (i >= most) {
            rest += saving.joules;
            continue;
        }
        rows.push_back({{"kernel", saving.name},
                        {"clock", saving.clock},
                        {"joules", shown(saving.joules)},
                        {"joules_low", shown(saving.joules - saving.joules_half)},
                        {"joules_high", shown(saving.joules + saving.joules_half)},
                        {"time", shown(saving.time_pct)},
                        {"time_low", shown(saving.time_pct - saving.time_half)},
                        {"time_high", shown(saving.time_pct + saving.time_half)}});
    }
    std::string caption = "Of one iteration, all launches of a kernel together.";
    if (noise_known) caption += " Lines are 95 % intervals by the spread of repeated samples.";
    if (savings.size() > most) {
        caption += kdvfs::io::format_text(" The other %zu kernels save %.3g J together.",
                                          savings.size() - most, rest);
    }
    Json spec = specification(rows);
    const Json tips = tooltip(
        {{"kernel", "kernel"}, {"clock", "clock"}, {"joules", "J saved"}, {"time", "time %"}});
    spec["hconcat"] =
        Json::array({kernel_panel("joules", "energy saved, J", "bar", 400, true, tips),
                     kernel_panel("time", "time, %", "point", 290, false, tips)});
    return {"savings", "What each kernel saves", caption, spec};
}

}  // namespace cli::report
