// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>

#include <array>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// Where the sensors of a board are kept: the user's folder, then the machine's. Each board of a
/// machine has its own file.
KDVFS_INLINE std::vector<std::filesystem::path> sensor_paths(const DeviceInfo& board);

/// What `kdvfs measure-sensor` has found of a board, as a file: a line for the power log and one
/// for the energy counter. Deviations are standard deviations, the last three columns correlations;
/// memory or window is log-normal.
///
/// The sensors as a file's text.
KDVFS_INLINE std::string to_csv(const SensorCalibration& sensors);

/// @param name what errors call the input
/// @throws Error (invalid_input) naming file and line
KDVFS_INLINE SensorCalibration read_sensors(std::istream& input, const std::string& name);

/// The sensors of a board as they have been kept; nothing where none have.
/// @throws Error (invalid_input, io) naming file and line
KDVFS_INLINE std::optional<SensorCalibration> find_sensors(const DeviceInfo& board);

}  // namespace kdvfs::inline v0_3::measure

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/measure/sensor_files.hpp>
#endif
