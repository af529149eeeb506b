// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>
#include <kdvfs/device/clock_control.hpp>

#include <exception>
#include <string>
#include <utility>

namespace kdvfs {

/// Shows, before anything is promised, that clocks of this device can be set: applies its highest
/// core clock (the smallest disturbance there is), reads it back, and restores what was found.
/// @returns the state that the device was found in
/// @throws Error naming what failed; the device is back in its found state, unless that failed too
template <ClockControl Device>
ClockState prove_clock_control(Device& device) {
    const ClockState found = device.read_clock_state();
    const auto& core = device.supported_clocks().core.listed;
    if (core.empty()) {
        throw Error{Errc::not_supported,
                    {.action = "set the core clock",
                     .object = to_string(device.info()),
                     .vendor_words = "the device lists no core clocks",
                     .remedy = "open it with OnRefused::measure_only to measure without setting "
                               "clocks"}};
    }
    const auto refuse = [&](std::string action, const ClockState& seen) {
        throw Error{
            Errc::refused,
            {.action = std::move(action),
             .object = to_string(device.info()),
             .vendor_words = "it reads back " + to_string(seen.cap) + " in mode " + seen.mode,
             .remedy = "see which other tool governs this GPU's clocks, or open it with "
                       "OnRefused::measure_only"}};
    };
    const ClockPoint probe{.core = core.back()};
    try {
        device.apply(probe);
        const ClockState seen = device.read_clock_state();
        if (seen.cap != probe) refuse("set " + to_string(probe), seen);
    } catch (const std::exception&) {
        try {
            device.restore(found);
        } catch (const std::exception&) {  // the first error says more
        }
        throw;
    }
    device.restore(found);
    const ClockState restored = device.read_clock_state();
    if (restored != found) refuse("restore the clock settings", restored);
    return found;
}

}  // namespace kdvfs
