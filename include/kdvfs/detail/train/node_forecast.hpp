// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/node_power.hpp>

#include <kdvfs/detail/train/share_watts.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <gsl/assert>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#if KDVFS_DEFINES_ENGINE

namespace kdvfs::inline v0_3::train {

KDVFS_INLINE NodeForecast forecast_node(std::span<const GpuIteration> gpus,
                                        std::span<const PowerRange> ranges, double exponent) {
    Expects(gpus.size() == ranges.size() && !gpus.empty() && exponent > 0);
    NodeForecast forecast;
    std::vector<double> weights;
    double drawn = 0;
    double waited = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        const double time = gpus[i].compute.count();
        const double power = gpus[i].power.count;
        if (!(time > 0 && std::isfinite(time) && power > 0 && std::isfinite(power)))
            throw Error{Errc::invalid_input,
                        {"predict what moving watts would give", "GPU " + std::to_string(i),
                         "it has no compute time or no power", "measure an iteration of each GPU"}};
        if (gpus[i].compute > gpus[forecast.slowest].compute) forecast.slowest = i;
        weights.push_back(power * std::pow(time, exponent));
        drawn += power;
        waited = std::min(waited, gpus[i].waited.count());
    }
    const double longest = gpus[forecast.slowest].compute.count();
    double moved_longest = 0;
    double kept = 0;
    const std::vector<double> moved = detail::share_watts(drawn, weights, ranges);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        const double ratio = moved[i] / gpus[i].power.count;
        moved_longest =
            std::max(moved_longest, gpus[i].compute.count() * std::pow(ratio, -1 / exponent));
        forecast.speed.push_back({moved[i]});
        const double power = gpus[i].power.count;
        forecast.power.push_back({std::max(weights[i] * std::pow(longest, -exponent),
                                           std::min(power, ranges[i].low.count))});
        kept += forecast.power.back().count;
    }
    forecast.faster = (longest + waited) / (moved_longest + waited) - 1;
    forecast.saved = 1 - kept / drawn;
    return forecast;
}

}  // namespace kdvfs::inline v0_3::train

#endif
