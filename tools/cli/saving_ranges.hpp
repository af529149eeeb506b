// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

/// What clocks may save, going by the watts as found alone.
namespace cli {

/// What may be changed.
enum class SavingWay {
    one_clock,  ///< for all kernels
    power_cap,
    by_kernel,  ///< a clock for each kernel, switching free
};

/// The slowdowns that savings are given for, in percent.
inline constexpr std::array saving_bounds_pct{0.0, 1.0, 5.0};

namespace saving_table {

/// Up to what programs save, in percent of their kernels' energy: by way, by slowdown, and by the
/// share of its power limit that the board draws while kernels run, 0.4 to 1 in steps of 0.1.
/// Printed by bench/boards/worth_ranges, which also judges them: quantiles of programs of other
/// boards (Titan X and A100 as measured, a fitted RTX 3080 Ti, four simulated boards).
inline constexpr std::array<std::array<std::array<double, 7>, 3>, 3> saved_at_most{{
    {{{{8.9, 12.3, 14.6, 14.2, 9.0, 8.3, 8.4}},
      {{13.7, 15.0, 15.6, 15.3, 14.2, 11.3, 9.6}},
      {{20.3, 20.5, 21.2, 20.2, 18.7, 20.1, 20.5}}}},  // one clock
    {{{{3.1, 5.5, 7.8, 6.2, 4.5, 2.0, 0.1}},
      {{5.9, 7.8, 8.3, 7.6, 5.7, 4.5, 3.7}},
      {{19.1, 18.0, 14.4, 14.4, 17.9, 19.7, 20.8}}}},  // power cap
    {{{{21.9, 22.4, 22.4, 21.6, 20.9, 21.7, 22.3}},
      {{23.6, 23.6, 23.4, 22.8, 22.2, 23.7, 24.3}},
      {{28.1, 27.5, 26.0, 25.4, 26.9, 28.5, 29.1}}}},  // by kernel
}};

}  // namespace saving_table

/// What a program may save, in percent of its kernels' energy: nothing at least, as the watts do
/// not tell whether it is bound by the core clock, and at most so much. How often
/// that held: docs/tuning.md.
/// @param power_share that the board draws of its power limit while kernels run
/// @param bound index into `saving_bounds_pct`
inline double saved_at_most(double power_share, SavingWay way, std::size_t bound) {
    const auto& knots = saving_table::saved_at_most[static_cast<std::size_t>(way)][bound];
    const double place = std::clamp((power_share - 0.4) / 0.1, 0.0, 6.0);
    const auto below = std::min<std::size_t>(static_cast<std::size_t>(place), 5);
    const double part = place - static_cast<double>(below);
    return knots[below] * (1 - part) + knots[below + 1] * part;
}

}  // namespace cli
