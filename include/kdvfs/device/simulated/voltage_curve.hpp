// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <vector>

namespace kdvfs::simulated {

/// Core voltage against core clock, in units of the lowest voltage: flat below the first knot,
/// linear between knots, the last slope continued above the last one. The flat part is why a
/// compute-bound kernel has a most efficient clock (arXiv 2211.07260, "going green").
/// Knots ascend in clock and do not descend in voltage.
struct VoltageCurve {
    struct Knot {
        double core_mhz = 0;
        double relative_volts = 1;
    };

    std::vector<Knot> knots;

    /// The voltage at a clock, at least 1; 1 everywhere for a curve without knots.
    [[nodiscard]] double at(double core_mhz) const {
        if (knots.empty() || core_mhz <= knots.front().core_mhz) return 1;
        std::size_t upper = 1;
        while (upper + 1 < knots.size() && knots[upper].core_mhz < core_mhz) ++upper;
        if (upper >= knots.size()) return knots.front().relative_volts;
        const Knot& low = knots[upper - 1];
        const Knot& high = knots[upper];
        const double slope =
            (high.relative_volts - low.relative_volts) / (high.core_mhz - low.core_mhz);
        return low.relative_volts + slope * (core_mhz - low.core_mhz);
    }
};

}  // namespace kdvfs::simulated
