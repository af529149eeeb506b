// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>
#include <kdvfs/core/units.hpp>
#include <kdvfs/device/energy_source.hpp>

#include <concepts>

namespace kdvfs {

/// One look at a board's power meter.
struct PowerReading {
    Watts watts;
    TimePoint sampled_at;  ///< when the device took the sample, where it says so
    ReadingStatus status = ReadingStatus::absent;
};

/// The contract of a device that shows the power it draws. A read may take milliseconds.
template <class Device>
concept PowerSource = requires(Device& device) {
    { device.read_power() } -> std::same_as<PowerReading>;
    requires noexcept(device.read_power());
};

}  // namespace kdvfs
