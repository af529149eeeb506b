// SPDX-License-Identifier: MIT
#include <kdvfs/measure/sensor_calibration.hpp>
#include <tests/fuzz/fuzz_target.hpp>

#include <sstream>

/// Sensors as they were measured: what is read survives being written and read again.
void fuzzing::fuzz(const std::string& text) {
    using namespace kdvfs::measure;
    std::istringstream input{text};
    const SensorCalibration sensors = read_sensors(input, "input:");
    std::istringstream written{to_csv(sensors)};
    const SensorCalibration again = read_sensors(written, "written:");
    require(again.log.has_value() == sensors.log.has_value() &&
                again.counter.has_value() == sensors.counter.has_value(),
            "the same sources are there");
    if (sensors.log) require(again.log->shape == sensors.log->shape, "of the same shape");
}
