// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/time.hpp>

namespace kdvfs {

/// What a kernel asks of the clocks.
struct ClockRequest {
    bool asks = false;   ///< false: keep whatever holds
    ClockPoint point{};  ///< the cap asked for, where `asks`
    Duration lasts{};    ///< the plan's figure of how long the kernel lasts, 0 where unknown

    friend constexpr bool operator==(const ClockRequest&, const ClockRequest&) = default;
};

}  // namespace kdvfs
