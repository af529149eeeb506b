// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/clock_control.hpp>

#include <concepts>
#include <string>
#include <vector>

namespace kdvfs {

/// How a device is put back without kdvfs: shell functions that belong to a kind of device, and the
/// words that tell them about this one. What they must do is said in
/// detail/restore/watchdog_script.hpp.
struct RestoreScript {
    std::string kind;  ///< "amdgpu" or "nvml": which of them, for the restore record
    std::string functions;
    std::vector<std::string> arguments;
};

/// A device that can be put back without kdvfs.
template <class Device>
concept Restorable = ClockControl<Device> && requires(const Device& device) {
    { device.restore_script() } -> std::same_as<RestoreScript>;
};

}  // namespace kdvfs
