// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <array>
#include <optional>
#include <string_view>

namespace kdvfs::inline v0_3::measure {

/// What a reading is, as far as the way to it goes; docs/measuring.md has the equations.
enum class SensorShape {
    memory,      ///< a filter of first order (of a counter: of the power that it adds up)
    since_last,  ///< a log's mean since the reading before; a counter without a memory
    window,      ///< a log's mean over another time
};

constexpr std::string_view to_string(SensorShape shape) {
    switch (shape) {
        case SensorShape::memory: return "memory";
        case SensorShape::since_last: return "since_last";
        case SensorShape::window: return "window";
    }
    return "unknown";
}

/// A sensor as `kdvfs measure-sensor` found it: jointly normal in the delay (s), the logarithm of
/// the memory or window in s, and the rise of the board's power (s).
struct MeasuredSensor {
    SensorShape shape = SensorShape::memory;
    Duration period{0};                  ///< of its readings
    std::array<double, 3> mean{};        ///< delay, logarithm of memory or window, rise
    std::array<double, 6> covariance{};  ///< its lower triangle, by rows

    friend bool operator==(const MeasuredSensor&, const MeasuredSensor&) = default;
};

/// What is known of a board's sensors.
struct SensorCalibration {
    std::optional<MeasuredSensor> log{};      ///< of the power log
    std::optional<MeasuredSensor> counter{};  ///< of the energy counter

    friend bool operator==(const SensorCalibration&, const SensorCalibration&) = default;
};

}  // namespace kdvfs::inline v0_3::measure
