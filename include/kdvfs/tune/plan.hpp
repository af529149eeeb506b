// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/kernel.hpp>
#include <kdvfs/tune/cost.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::tune {

/// How clocks are shared between the kernels of a plan.
enum class Aggregate {
    automatic,  ///< the baseline for all
    single,     ///< one clock point for all
    pass,       ///< one clock point per group
    local,      ///< one per kernel, each kernel within the bound
    global,     ///< one per kernel, only the sum within the bound
};

inline constexpr std::array all_aggregates{Aggregate::automatic, Aggregate::single, Aggregate::pass,
                                           Aggregate::local, Aggregate::global};

constexpr std::string_view to_string(Aggregate aggregate) {
    switch (aggregate) {
        case Aggregate::automatic: return "auto";
        case Aggregate::single: return "single";
        case Aggregate::pass: return "pass";
        case Aggregate::local: return "local";
        case Aggregate::global: return "global";
    }
    return "unknown";
}

/// The aggregate of a name; nothing if there is none.
constexpr std::optional<Aggregate> parse_aggregate(std::string_view name) {
    for (const Aggregate aggregate : all_aggregates)
        if (to_string(aggregate) == name) return aggregate;
    return std::nullopt;
}

/// What a plan says about one kernel. Costs are of one launch.
struct PlannedKernel {
    KernelKey key;
    std::uint32_t count = 1;  ///< launches per iteration
    ClockPoint clock;
    Cost baseline;  ///< at the plan's baseline clock
    Cost expected;  ///< at `clock`

    friend bool operator==(const PlannedKernel&, const PlannedKernel&) = default;
};

/// A clock point per kernel, and what is expected of it. Plain data.
struct Plan {
    std::string gpu;
    std::string objective;
    Aggregate aggregate = Aggregate::automatic;
    double max_slowdown = std::numeric_limits<double>::infinity();  ///< as a fraction
    ClockPoint baseline_clock;
    Cost baseline;       ///< of one iteration
    Cost expected;       ///< of one iteration
    double gap_pct = 0;  ///< how far from the best it can be, in percent of the baseline's score
    std::vector<PlannedKernel> kernels;

    [[nodiscard]] double time_pct() const { return time_percent(expected, baseline); }
    [[nodiscard]] double energy_pct() const { return energy_percent(expected, baseline); }

    friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace kdvfs::tune
