// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/solve/effort.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/cost_table.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// How clocks are shared between the kernels of a plan.
enum class Aggregate {
    automatic,  ///< the baseline for all
    single,     ///< one clock point for all
    per_group,  ///< one clock point per group
    local,      ///< one per kernel, each kernel within the bound
    global,     ///< one per kernel, only the sum within the bound
};

inline constexpr std::array all_aggregates{Aggregate::automatic, Aggregate::single,
                                           Aggregate::per_group, Aggregate::local,
                                           Aggregate::global};

constexpr std::string_view to_string(Aggregate aggregate) {
    switch (aggregate) {
        case Aggregate::automatic: return "auto";
        case Aggregate::single: return "single";
        case Aggregate::per_group: return "per_group";
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
    Seconds launch_limit{std::numeric_limits<double>::infinity()};
    ClockPoint baseline_clock;
    Cost baseline;       ///< of one iteration
    Cost expected;       ///< of one iteration
    double gap_pct = 0;  ///< how far from the best it can be, in percent of the baseline's score
    std::vector<PlannedKernel> kernels;
    /// Where energies are predicted: `energy_pct()` may be off by so many points to either side, at
    /// the objective's confidence. Nothing where they were measured.
    std::optional<double> predicted_within{};

    [[nodiscard]] double time_pct() const { return time_percent(expected, baseline); }
    [[nodiscard]] double energy_pct() const { return energy_percent(expected, baseline); }

    friend bool operator==(const Plan&, const Plan&) = default;
};

/// The same work planned in every way, side by side.
struct Plans {
    Plan automatic;
    Plan single;
    Plan per_group;
    Plan local;
    Plan global;

    [[nodiscard]] const Plan& operator[](Aggregate aggregate) const;
};

/// Plans one way. `local` holds every kernel to the bound by itself; `global`, `per_group` and
/// `single` hold only the iteration to it, and their gap is proven. Pure; the table must be sound
/// (`make_cost_table`).
KDVFS_INLINE Plan make_plan(const CostTable& table, const Objective& objective, Aggregate aggregate,
                            const solve::KnapsackEffort& effort = {});

/// Plans every way.
KDVFS_INLINE Plans make_plans(const CostTable& table, const Objective& objective);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/planner.hpp>
#endif
