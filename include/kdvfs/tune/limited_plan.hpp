// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/device/power_limiter.hpp>
#include <kdvfs/tune/segments.hpp>
#include <kdvfs/units.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// A program whose mean power is this near the limit, as a fraction of it, is at the limit.
inline constexpr double at_limit_within = 0.005;

// Plans for a board that runs at its power limit. The limit is one of the mean power
// (`device::PowerLimiter`), so a kernel that runs at a lower clock where that costs no time leaves
// watts to those that can use them: the table must hold what kernels cost by themselves, free of
// the limit, as bursts of some milliseconds with rests between them measure it.

/// What a plan at the power limit makes small.
enum class LimitGoal {
    least_time,    ///< the time, with the mean power within the limit
    least_energy,  ///< the energy, with a bound on the time
};

/// What a plan at the limit is asked for.
struct LimitObjective {
    LimitGoal goal = LimitGoal::least_time;
    /// Of `least_energy`: the slowdown tolerated against the program as found, as a fraction.
    double max_slowdown = 0;
    /// By how much the board's limit may be off, as a fraction: the promise is made for both ends.
    double limit_error = 0.01;
    /// A plan of several clocks must be better than one clock by so many percent, or it is one.
    double worthwhile_pct = 0.03;
};

/// Percent against the program as found at the same limit, negative = saved.
struct LimitedSaving {
    double time_pct = 0;
    double energy_pct = 0;
};

/// A plan at the limit, and what is expected of it there.
struct LimitedPlan {
    /// `baseline` is an iteration as found and `expected` one of the plan, both under the limiter.
    SegmentPlan segments;
    LimitedSaving if_higher;  ///< where the limit is `limit_error` higher
    LimitedSaving if_lower;   ///< where it is lower
    /// No plan of these clocks has less of the goal: percent, against as found.
    double bound_pct = 0;
    Watts found_power{};    ///< the mean, as found
    bool at_limit = false;  ///< as found, the board is held back by its limit
};

/// Plans clocks for a sequence of launches that repeats on a board at its power limit.
/// @param table what kernels cost free of the limit, up to the clock that holds as found
/// @param launches indices into the table's kernels
/// @param limiter the board's
/// @throws Error (invalid_input) where the limit, its rate or the highest clock is not above zero
KDVFS_INLINE LimitedPlan plan_at_limit(const CostTable& table,
                                       const std::vector<std::size_t>& launches,
                                       const SwitchCosts& costs,
                                       const device::PowerLimiter& limiter,
                                       const LimitObjective& objective = {});

/// Runs of one kernel after the other on a board at its power limit, as a measure-only run has
/// them: timestamps say how long, cycle counters at which clock.
struct LimitedRun {
    std::size_t kernel = 0;
    Seconds rest{0};  ///< before it, without work
    Seconds time{0};
    double mhz = 0;  ///< mean
};

/// What a board draws by core clock while it runs a kernel, in MHz; or without work.
using PowerByClock = std::function<Watts(double mhz)>;

/// The mean clocks of runs under a limiter, in MHz. The board has drawn little before the first.
/// @param kernels by the runs' numbers
KDVFS_INLINE std::vector<double> clocks_at_limit(std::span<const PowerByClock> kernels,
                                                 const PowerByClock& idle,
                                                 std::span<const LimitedRun> runs,
                                                 const device::PowerLimiter& limiter);

/// Finds a limiter's rate from runs at the limit: the one with the least mean error of their
/// clocks, from 0.3 to 100 per second, which is a mean over about a second down to some
/// milliseconds.
/// @param limiter its limit and its clocks
/// @param counts which runs to judge by; those of kernels that the limit never holds back say
/// nothing
/// @throws Error (invalid_input) where no run counts
KDVFS_INLINE device::PowerLimiter fit_limiter(std::span<const PowerByClock> kernels,
                                              const PowerByClock& idle,
                                              std::span<const LimitedRun> runs,
                                              device::PowerLimiter limiter,
                                              const std::function<bool(const LimitedRun&)>& counts);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/limit_search.hpp>
#endif
