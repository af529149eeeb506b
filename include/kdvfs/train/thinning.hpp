// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/curve.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace kdvfs::train::detail {

/// A hull whose savings are whole multiples of `unit` microwatts, at least one: corners between
/// equal savings go, the shortest and the longest time stay. When all hulls of a pipeline are so,
/// prices are multiples of the unit, too, and the frontier has no more corners than the highest
/// price has units, however many operations there are.
inline Hull thinned(const Hull& hull, std::int64_t unit) {
    Hull thin;
    thin.time.push_back(hull.time.front());
    thin.energy.push_back(hull.energy.front());
    thin.corner.push_back(hull.corner.front());
    for (std::size_t k = 0; k < hull.saving.size(); ++k) {
        const std::int64_t saving =
            std::max<std::int64_t>(1, (hull.saving[k] + unit / 2) / unit) * unit;
        if (!thin.saving.empty() && thin.saving.back() == saving) {
            thin.time.pop_back();
            thin.energy.pop_back();
            thin.corner.pop_back();
        } else {
            thin.saving.push_back(saving);
        }
        thin.time.push_back(hull.time[k + 1]);
        thin.energy.push_back(hull.energy[k + 1]);
        thin.corner.push_back(hull.corner[k + 1]);
    }
    return thin;
}

}  // namespace kdvfs::train::detail
