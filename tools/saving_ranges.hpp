// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
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
      {{11.7, 12.0, 12.1, 12.4, 12.6, 12.0, 9.8}},
      {{19.9, 20.2, 20.4, 21.6, 22.1, 20.2, 19.2}}}},  // one clock
    {{{{0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2}},
      {{3.2, 2.9, 3.0, 3.4, 3.7, 3.4, 3.2}},
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

/// The same program run at one lower clock, against the run as found.
struct LowerClock {
    double clock = 1;  ///< of the board's highest: 0.8 to 0.9
    double time = 1;
    double power = 1;

    /// What one clock saves by a guess, percent: time follows `((a / f)^4 + 1 - a^4)^(1/4)`, power
    /// `f^k`, with `a` and `k` from the lower clock.
    [[nodiscard]] double guess(double bound_pct) const {
        const double share =
            std::clamp((std::pow(time, 4) - 1) / (std::pow(clock, -4) - 1), 0.0, 1.0);
        const double exponent = std::log(power) / std::log(clock);
        double least = 1;
        for (double f = 0.5; f < 1; f += 0.01) {
            const double slower = std::pow(share * std::pow(f, -4) + 1 - share, 0.25);
            if (slower <= 1 + bound_pct / 100)
                least = std::min(least, slower * std::pow(f, exponent));
        }
        return 100 * (1 - least);
    }
};

namespace saving_table {

/// How far guesses are off, by slowdown, in points: printed by bench/boards/worth_ranges.
inline constexpr std::array<std::array<double, 2>, 3> guess_errors{
    {{{0, 0}}, {{-14.6, 2.3}}, {{-33.9, 7.6}}}};

}  // namespace saving_table

/// What one clock may save of a program with a run at a lower clock: least and most, in percent.
inline std::optional<std::array<double, 2>> saved_by_one_clock(const LowerClock& lower,
                                                               std::size_t bound) {
    const auto& [below, above] = saving_table::guess_errors[bound];
    if (below == above) return std::nullopt;
    const double guess = lower.guess(saving_bounds_pct[bound]);
    const double least = std::max(0.0, guess + below);
    return std::array{least, std::max(least, guess + above)};
}

}  // namespace worth
