// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// One measured curve on logarithmic axes: clocks rising, and a time or an energy at each.
struct LogCurve {
    std::vector<double> clock;
    std::vector<double> value;
};

/// The standard deviation of the noise of curves that were measured once at each clock: how far
/// points lie from the cubic through their two neighbours on either side, as the median of all
/// such deviations, so that a kink of the curve itself counts little. With fewer than 24
/// deviations, those of two stages at ten clocks, noise and shape cannot be separated: the noise
/// is 0 then.
/// A cubic has no deviation, which leaves the noise alone (difference-based estimates of variance:
/// Gasser, Sroka and Jennen-Steinmetz, Biometrika 73, 1986). Normal noise has its standard
/// deviation at 1.4826 times the median of its absolute value.
inline double noise_of_curves(std::span<const LogCurve> curves) {
    constexpr std::array<std::ptrdiff_t, 4> neighbours{-2, -1, 1, 2};
    std::vector<double> deviations;
    for (const LogCurve& curve : curves) {
        const auto count = static_cast<std::ptrdiff_t>(curve.value.size());
        const auto clock = [&](std::ptrdiff_t i) {
            return curve.clock[static_cast<std::size_t>(i)];
        };
        for (std::ptrdiff_t p = 2; p + 2 < count; ++p) {
            double deviation = curve.value[static_cast<std::size_t>(p)];
            double variance = 1;
            for (const std::ptrdiff_t k : neighbours) {
                double weight = 1;  // Lagrange's, at the point in the middle
                for (const std::ptrdiff_t other : neighbours)
                    if (other != k)
                        weight *= (clock(p) - clock(p + other)) / (clock(p + k) - clock(p + other));
                deviation -= weight * curve.value[static_cast<std::size_t>(p + k)];
                variance += weight * weight;
            }
            deviations.push_back(std::abs(deviation) / std::sqrt(variance));
        }
    }
    constexpr std::size_t fewest = 24;
    if (deviations.size() < fewest) return 0;
    const auto middle = deviations.begin() + static_cast<std::ptrdiff_t>(deviations.size() / 2);
    std::nth_element(deviations.begin(), middle, deviations.end());
    return 1.4826 * *middle;
}

}  // namespace kdvfs::inline v0_3::train::detail
