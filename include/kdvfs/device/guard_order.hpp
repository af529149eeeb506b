// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/clock_control.hpp>

#include <concepts>
#include <string>
#include <vector>

namespace kdvfs {

/// What a guard runs: a fixed shell script that belongs to a kind of device, and the arguments that
/// tell it about this one. The script reads notes from its standard input, one line each:
/// - `idle`: nothing is owed;
/// - `uncertain`: a write is under way, the device may hold anything;
/// - `held WORDS`: the device holds this, in words that the script finds out by itself;
///
/// and, when its input ends, puts the device back if the last note says so.
struct GuardOrder {
    std::string script;
    std::vector<std::string> arguments;
};

/// A device that can be put back without kdvfs.
/// - `guard_order(found)`: what brings the device into the state `found`;
/// - `guard_words(state)`: how the order's script sees that state.
template <class Device>
concept Guardable = ClockControl<Device> && requires(Device& device, const ClockState& state) {
    { device.guard_order(state) } -> std::same_as<GuardOrder>;
    { device.guard_words(state) } -> std::same_as<std::string>;
};

}  // namespace kdvfs
