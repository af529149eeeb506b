// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// Weights scaled by one factor and held within bounds, so that they sum up to `sum`: to less
/// where the upper bounds do, to more where the lower ones do.
inline std::vector<double> share_watts(double sum, std::span<const double> weights,
                                       std::span<const PowerRange> bounds) {
    std::vector<double> shares(weights.size());
    const auto scaled_sum = [&](double factor) {
        double total = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) {
            shares[i] = std::clamp(factor * weights[i], bounds[i].low.count, bounds[i].high.count);
            total += shares[i];
        }
        return total;
    };
    double low = 0;
    double high = 0;
    for (std::size_t i = 0; i < shares.size(); ++i)
        high = std::max(high, bounds[i].high.count / weights[i]);
    if (scaled_sum(high) <= sum) return shares;
    for (int halvings = 0; halvings < 50; ++halvings) {
        const double middle = (low + high) / 2;
        (scaled_sum(middle) > sum ? high : low) = middle;
    }
    scaled_sum(low);
    return shares;
}

}  // namespace kdvfs::inline v0_3::train::detail
