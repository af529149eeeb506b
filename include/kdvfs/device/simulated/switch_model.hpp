// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/time.hpp>
#include <kdvfs/device/simulated/board.hpp>

#include <functional>

namespace kdvfs::simulated {

/// How long a clock change takes to arrive.
struct SwitchDelays {
    Duration switching_latency{0};  ///< from the call to the new clock; the old one works on
    Duration transition{0};         ///< the end of the latency, in which the GPU pauses
};

/// The one model of a switch: during the switching latency the GPU works on at the old clock,
/// during the transition it pauses, then the new clock holds. A later call overtakes an earlier.
struct SwitchModel {
    Duration call_cost{0};  ///< for how long the setting call keeps its caller
    std::function<SwitchDelays(ClockPoint from, ClockPoint to)> delays =
        [](ClockPoint, ClockPoint) { return SwitchDelays{}; };
};

/// The same delays for every pair of clock points.
inline SwitchModel uniform_switch(Duration switching_latency, Duration transition = {},
                                  Duration call_cost = {}) {
    return {.call_cost = call_cost, .delays = [=](ClockPoint, ClockPoint) {
                return SwitchDelays{switching_latency, transition};
            }};
}

/// A board's own delays.
inline SwitchModel switch_model(const ClockSwitchTraits& traits) {
    return uniform_switch(traits.switching_latency, traits.transition, traits.call_cost);
}

}  // namespace kdvfs::simulated
