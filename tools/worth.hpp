// SPDX-License-Identifier: MIT
#pragma once

#include "saving_ranges.hpp"

#include <kdvfs/error.hpp>
#include <kdvfs/report.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

/// What clocks could save of a program, from a run in which none was set: for `kdvfs worth` and the
/// C interface.
namespace worth {

/// A run in which no clock was set.
struct AsFound {
    std::string gpu;  ///< empty where not known
    double seconds = 0;
    double joules = 0;
    double idle_seconds = 0;  ///< in which no kernel ran, as far as known
    double idle_joules = 0;
    bool knows_idle = false;
    std::optional<double> limit_watts{};  ///< as the driver says

    [[nodiscard]] double busy_watts() const {
        return (joules - idle_joules) / (seconds - idle_seconds);
    }
};

/// What an open GPU has counted so far.
inline AsFound as_found(const kdvfs::measure::Report& report) {
    const kdvfs::measure::EnergyTotals& totals = report.totals;
    AsFound found{kdvfs::gpu_name(report.device), totals.counted_time.count(),
                  totals.counter.count};
    found.knows_idle = totals.idle.resolved;
    if (found.knows_idle) {
        found.idle_seconds = totals.idle_time.count();
        found.idle_joules = totals.idle.joules.count;
    }
    return found;
}

[[noreturn]] inline void refuse_worth(const std::string& object, const std::string& why,
                                      const std::string& remedy) {
    throw kdvfs::Error{kdvfs::Errc::invalid_input,
                       {"say what clocks are worth", object, why, remedy}};
}

/// What a data sheet gives a board; nothing for others. A name that is part of another comes later.
inline std::optional<double> data_sheet_limit(std::string_view gpu) {
    constexpr std::array<std::pair<std::string_view, double>, 21> known{
        {{"MI355X", 1400},        {"MI350X", 1000},        {"MI325X", 1000},
         {"MI300X", 750},         {"MI250", 560},          {"MI210", 300},
         {"B200", 1000},          {"H200 NVL", 600},       {"H200", 700},
         {"H100 PCIe", 350},      {"H100 NVL", 400},       {"H100", 700},
         {"A100-PCIE-40GB", 250}, {"A100 PCIe 40GB", 250}, {"A100 80GB PCIe", 300},
         {"A100", 400},           {"A800", 400},           {"L40S", 350},
         {"RTX 3080 Ti", 350},    {"V100", 300},           {"TITAN X", 250}}};
    for (const auto& [name, watts] : known)
        if (gpu.find(name) != std::string_view::npos) return watts;
    return std::nullopt;
}

/// Ranges of what may be saved, in percent of the run's energy.
struct Worth {
    AsFound found;
    double limit_watts = 0;
    double power_share = 0;
    /// By way; nothing where no range can be given.
    std::array<std::array<std::optional<double>, saving_bounds_pct.size()>, 3> at_most{};
    double idle_low = 0;
    double idle_high = 0;
    /// What one clock saves, least and most, where a run at a lower clock is known.
    std::array<std::optional<std::array<double, 2>>, saving_bounds_pct.size()> by_lower{};

    Worth(AsFound as_found, double limit) : found{std::move(as_found)}, limit_watts{limit} {
        power_share = found.busy_watts() / limit;
        const double idle = found.idle_joules / found.joules;
        for (std::size_t way = 0; way < at_most.size(); ++way)
            for (std::size_t b = 0; b < saving_bounds_pct.size(); ++b)
                if (const auto kernels = saved_at_most(power_share, static_cast<SavingWay>(way), b))
                    at_most[way][b] = (1 - idle) * *kernels;
        // A100 PCIe, A100 SXM and H100 SXM draw 34, 27 and 40 % less idle at their lowest clock
        // than at their highest (EnergAIzer, arXiv 2604.20105); a board may have lowered its own
        // clock.
        idle_high = 100 * idle * 0.40;
    }

    /// @param lower the same program at `clock` of the board's highest core clock
    void add(const AsFound& lower, double clock) {
        const double idle = found.idle_joules / found.joules;
        const LowerClock run{
            clock, (lower.seconds - lower.idle_seconds) / (found.seconds - found.idle_seconds),
            lower.busy_watts() / found.busy_watts()};
        for (std::size_t b = 0; b < by_lower.size(); ++b)
            if (const auto kernels = saved_by_one_clock(run, b))
                by_lower[b] = {(1 - idle) * (*kernels)[0], (1 - idle) * (*kernels)[1]};
    }

    [[nodiscard]] double most(std::size_t bound) const {
        double most = 0;
        for (const auto& way : at_most) most = std::max(most, way[bound].value_or(0));
        return most;
    }
};

inline const char* recommendation(const Worth& worth) {
    constexpr double little = 1;  // percent
    if (worth.most(2) + worth.idle_high < little)
        return "leave the clocks: at most a percent can be saved";
    if (worth.idle_high > worth.most(1))
        return "look at the idle time first: clocks while idle (kdvfs run --idle-clock) may save "
               "more than clocks of kernels";
    if (worth.at_most[2][1].value_or(0) < worth.at_most[0][1].value_or(0) + 1)
        return "try one clock: clocks by kernel promise no more here";
    return "tune: only a sweep measures what clocks save here";
}

/// @param what       how an error names the run
/// @param given      power limit in W; where nothing is, the driver's or the data sheet's
/// @param limit_name how the caller gives it
/// @throws Error (invalid_input) for a run without energy, or where no limit is known
inline Worth worth_of(AsFound found, const std::string& what, std::optional<double> given,
                      const std::string& limit_name) {
    if (!(found.seconds > found.idle_seconds && found.joules > found.idle_joules))
        refuse_worth(what, "it has no energy of kernels", "run it for longer");
    const auto limit = given               ? given
                       : found.limit_watts ? found.limit_watts
                                           : data_sheet_limit(found.gpu);
    if (!limit || !(*limit > 0))
        refuse_worth(found.gpu.empty() ? "this GPU" : found.gpu, "its power limit is not known",
                     "give " + limit_name +
                         " in W, as nvidia-smi or rocm-smi say: that of the program's GPU, or the "
                         "sum where it uses several");
    return {std::move(found), *limit};
}

inline std::string to_json(const Worth& worth) {
    nlohmann::ordered_json json{{"gpu", worth.found.gpu},
                                {"time_s", worth.found.seconds},
                                {"energy_j", worth.found.joules},
                                {"busy_w", worth.found.busy_watts()},
                                {"power_limit_w", worth.limit_watts},
                                {"recommended", recommendation(worth)}};
    constexpr const char* names[]{"one_clock", "power_cap", "by_kernel"};
    for (std::size_t way = 0; way < worth.at_most.size(); ++way)
        for (std::size_t b = 0; b < saving_bounds_pct.size(); ++b) {
            const std::optional<double>& high = worth.at_most[way][b];
            json[names[way]].push_back(
                {{"max_slowdown_pct", saving_bounds_pct[b]},
                 {"low_pct", 0},
                 {"high_pct", high ? nlohmann::ordered_json(*high) : nlohmann::ordered_json()}});
        }
    for (std::size_t b = 0; b < saving_bounds_pct.size(); ++b)
        if (const auto& range = worth.by_lower[b])
            json["one_clock_by_lower"].push_back({{"max_slowdown_pct", saving_bounds_pct[b]},
                                                  {"low_pct", (*range)[0]},
                                                  {"high_pct", (*range)[1]}});
    if (worth.found.knows_idle)
        json["idle_clocks"] = {{"low_pct", worth.idle_low}, {"high_pct", worth.idle_high}};
    return json.dump(2) + '\n';
}

}  // namespace worth
