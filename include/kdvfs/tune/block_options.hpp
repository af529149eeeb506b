// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace kdvfs::tune {

/// How long work runs at a clock point before it is measured, and while it is.
struct BlockOptions {
    /// From a change of clocks to the measurement, at least: for temperatures to follow.
    Duration settle = std::chrono::seconds{1};
    /// From a request to its effect on this device; ten times that is waited, at least.
    Duration switch_latency = std::chrono::milliseconds{10};
    /// Work is measured for so long, and for `counter_rows` samples of the energy counter.
    Duration measured = std::chrono::milliseconds{500};
    std::size_t counter_rows = 200;

    [[nodiscard]] Duration settling() const { return std::max(settle, 10 * switch_latency); }
    /// @param sample_period of the energy counter; 0 where unknown
    [[nodiscard]] Duration measuring(Duration sample_period) const {
        return std::max(measured, static_cast<Duration::rep>(counter_rows) * sample_period);
    }
};

}  // namespace kdvfs::tune
