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
      {{24.0, 27.6, 25.8, 24.0, 20.9, 17.1, 14.8}},
      {{25.1, 27.6, 27.4, 31.1, 30.7, 24.2, 20.3}}}},                   // one clock
    {{no_range, {{11.4, 15.6, 13.9, 11.0, 7.9, 6.2, 5.8}}, no_range}},  // power cap
    {{no_range,
      {{25.6, 28.5, 26.6, 29.8, 29.7, 25.6, 22.5}},
      {{29.2, 29.2, 30.4, 33.1, 33.1, 29.2, 27.4}}}},  // by kernel
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
