// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <tools/cli/report/chart_parts.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cli::report {

/// A kernel or level of a report as `measure::write_json` writes it.
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
    std::vector<MeasuredKernel> levels;  ///< ranges, and scopes that enclose others
    std::vector<MeasuredKernel> rests;   ///< gaps and waits, by clock: the longest first
};

/// @param seconds the key of the time that the energy is over
/// @returns nothing where there is no energy
inline std::optional<MeasuredKernel> measured_kernel(const nlohmann::json& row,
                                                     const char* seconds) {
    if (!row.is_object() || !row.contains("energy") || !row["energy"].is_object()) return {};
    const auto& energy = row["energy"];
    MeasuredKernel kernel;
    kernel.name = row.value("kernel", "");
    const auto variant = row.find("variant");
    if (variant != row.end() && variant->is_number() && *variant != 0)
        kernel.name += '#' + std::to_string(variant->get<std::uint32_t>());
    kernel.seconds = row.value(seconds, 0.0);
    kernel.resolved = energy.value("status", "") == "resolved";
    if (kernel.resolved) {
        kernel.joules = energy.at("joules").get<double>();
        kernel.half_width = energy.at("half_width_95").get<double>();
    }
    return kernel;
}

/// The time without a kernel by clock, as the totals have it.
inline std::vector<MeasuredKernel> measured_rests(const nlohmann::json& json) {
    std::vector<MeasuredKernel> rests;
    const auto totals = json.find("totals");
    if (totals == json.end() || !totals->is_object() || !totals->contains("rests")) return rests;
    for (const auto& row : totals->at("rests")) {
        auto rest = measured_kernel(row, "time_s");
        if (!rest) continue;
        const auto& clock = row.at("clock");
        rest->name =
            to_string(kdvfs::ClockPoint{.core = {clock.at("core_mhz").get<std::uint32_t>()},
                                        .memory = {clock.at("memory_mhz").get<std::uint32_t>()}});
        rests.push_back(*std::move(rest));
    }
    return rests;
}

/// Seconds, joules and watts of gaps and waits, a clock a row.
inline Table rest_table(const std::vector<MeasuredKernel>& rests) {
    if (rests.empty()) return {};
    Table table{{"gaps and waits at", "time, s", "energy, J", "mean power, W"}};
    for (const MeasuredKernel& rest : rests) {
        const bool has_power = rest.resolved && rest.seconds > 0;
        table.push_back({rest.name, fixed_text(rest.seconds, 3),
                         rest.resolved
                             ? fixed_text(rest.joules) + " \u00b1 " + fixed_text(rest.half_width)
                             : "unresolved",
                         has_power ? fixed_text(rest.joules / rest.seconds) : ""});
    }
    return table;
}

/// @pre `json` is an object with a list `rows`
inline MeasuredEnergy measured_energy(const nlohmann::json& json) {
    MeasuredEnergy measured;
    const auto device = json.find("device");
    if (device != json.end() && device->is_object()) measured.device = device->value("name", "");
    for (const auto& row : json.at("rows"))
        if (auto kernel = measured_kernel(row, "counted_time_s"))
            measured.kernels.push_back(*std::move(kernel));
    const auto levels = json.find("levels");
    if (levels != json.end() && levels->is_array())
        for (const auto& level : *levels) {
            if (!level.is_object() || level.value("level", "") != "scope") continue;
            if (auto kernel = measured_kernel(level, "time_s"))
                measured.levels.push_back(*std::move(kernel));
        }
    measured.rests = measured_rests(json);
    for (auto* const list : {&measured.kernels, &measured.levels})
        std::stable_sort(list->begin(), list->end(),
                         [](const auto& a, const auto& b) { return a.joules > b.joules; });
    return measured;
}

/// Energy of each with its interval, and its mean power.
/// @param what "kernel" or "range"
inline Chart energy_chart(const std::vector<MeasuredKernel>& kernels, const std::string& what,
                          const std::string& device) {
    constexpr std::size_t most = 40;
    Json rows = Json::array();
    std::size_t resolved = 0;
    std::size_t unresolved = 0;
    for (const MeasuredKernel& kernel : kernels) {
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
    const Json tips = tooltip({{"kernel", what.c_str()}, {"joules", "J"}, {"watts", "W"}});
    spec["hconcat"] =
        Json::array({kernel_panel("joules", "energy, J", "bar", 400, true, tips),
                     kernel_panel("watts", "mean power, W", "point", 290, false, tips)});
    std::string caption = "Of the metered calls";
    if (!device.empty()) caption += " on " + device;
    caption += ", with 95 % intervals.";
    if (what == "range") caption += " A range is the sum of what runs in it.";
    if (resolved > most)
        caption += " Shown are " + std::to_string(most) + " of " + std::to_string(resolved) + ' ' +
                   what + "s.";
    if (unresolved > 0) caption += " Unresolved: " + count_text(unresolved, what) + ".";
    return {what == "range" ? "ranges" : "energy", "Measured energy of each " + what, caption,
            spec};
}

/// Of kernels, and of ranges where there are any.
inline void add_energy_charts(std::vector<Chart>& charts, const MeasuredEnergy& measured) {
    charts.push_back(energy_chart(measured.kernels, "kernel", measured.device));
    charts.back().table = rest_table(measured.rests);
    if (measured.levels.empty()) return;
    charts.push_back(energy_chart(measured.levels, "range", measured.device));
}

}  // namespace cli::report
