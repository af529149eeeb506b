// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

/// What clocks may save, going by the watts as found alone.
namespace worth {

/// What may be changed.
enum class SavingWay {
    one_clock,  ///< for all kernels
    power_cap,
    by_kernel,  ///< a clock for each kernel, switching free
};

/// The slowdowns that savings are given for, in percent.
inline constexpr std::array saving_bounds_pct{0.0, 1.0, 5.0};

namespace saving_table {

/// By share of the power limit that the board draws while kernels run, 0.4 to 1 in steps of 0.1.
using Knots = std::array<double, 7>;

/// In place of ranges that did not hold on boards that they are not from.
inline constexpr Knots no_range{};

/// Up to what programs save, in percent of their kernels' energy, by way and by slowdown, with the
/// memory clock as found. Printed by bench/boards/worth_ranges, which also judges them: the highest
/// of the quantiles of four groups of boards (Titan X and A100 as measured, a fitted RTX 3080 Ti,
/// six simulated boards).
inline constexpr std::array<std::array<Knots, 3>, 3> saved_at_most{{
    {{no_range,
      {{13.1, 13.2, 13.5, 13.7, 13.7, 13.1, 12.1}},
      {{19.9, 20.2, 20.4, 21.6, 22.1, 20.2, 19.2}}}},  // one clock
    {{{{0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2}},
      {{3.8, 3.8, 4.0, 4.1, 4.3, 4.1, 3.9}},
      no_range}},  // power cap
    {{no_range,
      {{21.2, 21.3, 22.1, 22.9, 23.3, 21.3, 20.1}},
      {{29.0, 29.1, 29.2, 29.2, 29.7, 29.0, 26.8}}}},  // by kernel
}};

}  // namespace saving_table

/// What a program may save, in percent of its kernels' energy: nothing at least, as the watts do
/// not tell whether it is bound by the core clock, and at most so much; nothing where no range held
/// in 90 % of programs of boards that it is not from (docs/tuning.md).
/// @param power_share that the board draws of its power limit while kernels run
/// @param bound index into `saving_bounds_pct`
inline std::optional<double> saved_at_most(double power_share, SavingWay way, std::size_t bound) {
    const auto& knots = saving_table::saved_at_most[static_cast<std::size_t>(way)][bound];
    if (knots == saving_table::no_range) return std::nullopt;
    const double place = std::clamp((power_share - 0.4) / 0.1, 0.0, 6.0);
    const auto below = std::min<std::size_t>(static_cast<std::size_t>(place), 5);
    const double part = place - static_cast<double>(below);
    return knots[below] * (1 - part) + knots[below + 1] * part;
}

}  // namespace worth
