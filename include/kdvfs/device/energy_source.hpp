// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>
#include <kdvfs/core/units.hpp>

#include <concepts>
#include <string_view>

namespace kdvfs {

/// What is known about one reading. Only `ok` carries a number that may be used.
/// A device reports `ok`, `absent` or `failed`; the others are found by comparing readings.
enum class ReadingStatus {
    ok,
    absent,       ///< the device has no such counter
    failed,       ///< the read itself failed
    unchanged,    ///< the sample is the one read before: not an error, no news
    frozen,       ///< unchanged for longer than the counter's period allows
    wrapped,      ///< the counter started again from zero
    backwards,    ///< less than before, and no wrap
    implausible,  ///< more than the board can draw
};

constexpr std::string_view to_string(ReadingStatus status) {
    switch (status) {
        case ReadingStatus::ok: return "ok";
        case ReadingStatus::absent: return "absent";
        case ReadingStatus::failed: return "failed";
        case ReadingStatus::unchanged: return "unchanged";
        case ReadingStatus::frozen: return "frozen";
        case ReadingStatus::wrapped: return "wrapped";
        case ReadingStatus::backwards: return "backwards";
        case ReadingStatus::implausible: return "implausible";
    }
    return "unknown";
}

/// One look at an energy counter.
struct EnergyReading {
    Joules joules{};         ///< since an origin of the device's choosing
    TimePoint sampled_at{};  ///< when the device took the sample, not when it was read
    ReadingStatus status = ReadingStatus::absent;
};

/// The contract of a device that counts its energy. A read may take milliseconds.
/// `counter_period()` is the time between two samples, 0 where unknown.
template <class Device>
concept EnergySource = requires(Device& device) {
    { device.read_energy() } -> std::same_as<EnergyReading>;
    requires noexcept(device.read_energy());
    { device.counter_period() } -> std::same_as<Duration>;
};

}  // namespace kdvfs
