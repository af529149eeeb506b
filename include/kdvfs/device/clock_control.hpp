// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/device/device_info.hpp>

#include <concepts>
#include <string>

namespace kdvfs {

/// The clock settings a device holds, as data that can be compared, kept in a journal and written
/// back. `mode` is the vendor's word for how clocks are governed (AMD's performance level).
struct ClockState {
    ClockPoint cap;    ///< upper limits; `auto_clock` where none is set
    ClockPoint floor;  ///< lower limits; `auto_clock` where none is set
    std::string mode = "auto";

    friend bool operator==(const ClockState&, const ClockState&) = default;
};

/// The contract of a device whose clocks can be set. All calls may block for milliseconds and are
/// made by one thread at a time (the actuator). A failed `apply` throws and may leave the device
/// changed: the caller reads back and restores.
/// - `apply(point)` caps the clocks, `auto_clock` freeing a domain, such that
///   `read_clock_state().cap == point` afterwards; throws `Error`;
/// - `read_clock_state()` asks the hardware, never a cache; throws `Error`;
/// - `restore(state)` writes back a state that `read_clock_state` returned; throws `Error`.
template <class Device>
concept ClockControl = requires(Device& device, ClockPoint point, const ClockState& state) {
    { device.info() } -> std::convertible_to<const DeviceInfo&>;
    { device.supported_clocks() } -> std::convertible_to<const SupportedClocks&>;
    { device.read_clock_state() } -> std::same_as<ClockState>;
    { device.apply(point) } -> std::same_as<void>;
    { device.restore(state) } -> std::same_as<void>;
};

}  // namespace kdvfs
