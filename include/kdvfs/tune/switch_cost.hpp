// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/units.hpp>

#include <functional>

namespace kdvfs::tune {

/// How long a clock change takes to arrive.
struct SwitchDelay {
    Seconds latency{0};     ///< from asking to the new clock; the old one works on
    Seconds transition{0};  ///< the end of the latency, in which the GPU pauses
};

/// What a planner must know about switching: during the latency the GPU works on at the old clock,
/// during its last part it may pause, then the new clock holds.
struct SwitchCosts {
    std::function<SwitchDelay(ClockPoint from, ClockPoint to)> delay = [](ClockPoint, ClockPoint) {
        return SwitchDelay{};
    };
    Watts paused_power{};  ///< drawn in a transition, and while a request is made
    Seconds asking{0};     ///< stream time that a request takes: its markers
};

/// The same latency for every pair.
inline SwitchCosts uniform_switch_costs(Seconds latency, Seconds transition = Seconds{0},
                                        Watts paused_power = {}) {
    return {[=](ClockPoint, ClockPoint) {
                return SwitchDelay{latency, transition};
            },
            paused_power, Seconds{0}};
}

}  // namespace kdvfs::tune
