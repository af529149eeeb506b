// SPDX-License-Identifier: MIT
#pragma once

#include <examples/cli/report/chart_parts.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace cli::report {

/// A kernel of a report as `measure::write_json` writes it.
struct MeasuredKernel {
    std::string name;
    double joules = 0;
    double half_width = 0;
    double seconds = 0;
    bool resolved = false;
};

/// What a report's energies say, the largest first.
struct MeasuredEnergy {
    std::string device;
    std::vector<MeasuredKernel> kernels;
};

/// @pre `json` is an object with a list `rows`
inline MeasuredEnergy measured_energy(const nlohmann::json& json) {
    MeasuredEnergy measured;
    const auto device = json.find("device");
    if (device != json.end() && device->is_object()) measured.device = device->value("name", "");
    for (const auto& row : json.at("rows")) {
        if (!row.is_object() || !row.contains("energy") || !row["energy"].is_object()) continue;
        const auto& energy = row["energy"];
        MeasuredKernel kernel;
        kernel.name = row.value("kernel", "");
        if (const auto variant = row.value("variant", 0U); variant != 0)
            kernel.name += '#' + std::to_string(variant);
        kernel.seconds = row.value("counted_time_s", 0.0);
        kernel.resolved = energy.value("status", "") == "resolved";
        if (kernel.resolved) {
            kernel.joules = energy.at("joules").get<double>();
            kernel.half_width = energy.at("half_width_95").get<double>();
        }
        measured.kernels.push_back(std::move(kernel));
    }
    std::stable_sort(measured.kernels.begin(), measured.kernels.end(),
                     [](const auto& a, const auto& b) { return a.joules > b.joules; });
    return measured;
}

/// Energy of each kernel with its interval, and its mean power.
inline Chart energy_chart(const MeasuredEnergy& measured) {
    constexpr std::size_t most = 40;
    Json rows = Json::array();
    std::size_t resolved = 0;
    std::size_t unresolved = 0;
    for (const MeasuredKernel& kernel : measured.kernels) {
        if (!kernel.resolved) {
            ++unresolved;
            continue;
        }
        if (++resolved > most) continue;
        Json row{{"kernel", kernel.name},
                 {"joules", shown(kernel.joules)},
                 {"joules_low", shown(kernel.joules - kernel.half_width)},
                 {"joules_high", shown(kernel.joules + kernel.half_width)}};
        if (kernel.seconds > 0) {
            row["watts"] = shown(kernel.joules / kernel.seconds);
            row["watts_low"] = shown((kernel.joules - kernel.half_width) / kernel.seconds);
            row["watts_high"] = shown((kernel.joules + kernel.half_width) / kernel.seconds);
        }
        rows.push_back(std::move(row));
    }
    Json spec = specification(rows);
    const Json tips = tooltip({{"kernel", "kernel"}, {"joules", "J"}, {"watts", "W"}});
    spec["hconcat"] =
        Json::array({kernel_panel("joules", "energy, J", "bar", 400, true, tips),
                     kernel_panel("watts", "mean power, W", "point", 290, false, tips)});
    std::string caption = "Of the metered calls";
    if (!measured.device.empty()) caption += " on " + measured.device;
    caption += ", with 95 % intervals.";
    if (resolved > most)
        caption +=
            " Shown are " + std::to_string(most) + " of " + std::to_string(resolved) + " kernels.";
    if (unresolved > 0) caption += " Too short to tell: " + count_text(unresolved, "kernel") + ".";
    return {"energy", "Measured energy of each kernel", caption, spec};
}

}  // namespace cli::report
