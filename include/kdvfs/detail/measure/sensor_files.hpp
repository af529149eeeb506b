// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/sensor_calibration.hpp>

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#if KDVFS_DEFINES_ENGINE

namespace kdvfs::inline v0_3::measure {

KDVFS_INLINE std::vector<std::filesystem::path> sensor_paths(const DeviceInfo& board) {
    return io::kept_paths("sensor", gpu_name(board) + (board.simulated ? "" : ' ' + board.address));
}

namespace sensor_files {

inline constexpr std::array<std::string_view, 12> columns{
    "source",           "shape",        "period_s",          "delay_s",
    "length_s",         "rise_s",       "delay_deviation_s", "length_deviation",
    "rise_deviation_s", "delay_length", "delay_rise",        "length_rise"};

inline std::string line(std::string_view source, const MeasuredSensor& sensor) {
    const auto& c = sensor.covariance;
    const std::array<double, 3> deviations{std::sqrt(c[0]), std::sqrt(c[2]), std::sqrt(c[5])};
    const auto of = [&](double covariance, std::size_t a, std::size_t b) {
        return deviations[a] * deviations[b] > 0 ? covariance / deviations[a] / deviations[b] : 0;
    };
    std::string text = std::string{source} + ',' + std::string{to_string(sensor.shape)};
    for (const double number :
         {Seconds{sensor.period}.count(), sensor.mean[0], std::exp(sensor.mean[1]), sensor.mean[2],
          deviations[0], deviations[1], deviations[2], of(c[1], 0, 1), of(c[3], 0, 2),
          of(c[4], 1, 2)}) {
        text += ',' + io::to_text(number);
    }
    return text + '\n';
}

inline MeasuredSensor parse(const std::vector<std::string>& fields, const io::CsvReader& reader) {
    MeasuredSensor sensor;
    const auto shape =
        std::array{SensorShape::memory, SensorShape::since_last, SensorShape::window};
    const auto found = std::find_if(shape.begin(), shape.end(),
                                    [&](SensorShape each) { return to_string(each) == fields[1]; });
    if (found == shape.end()) reader.fail("there is no shape " + fields[1].substr(0, 40));
    sensor.shape = *found;
    std::array<double, columns.size()> numbers{};
    for (std::size_t i = 2; i < columns.size(); ++i) {
        const auto number = io::parse_number<double>(fields[i]);
        if (!number || !std::isfinite(*number) || std::abs(*number) > 100)
            reader.fail(io::number_fault(fields[i], std::string{columns[i]}));
        numbers[i] = *number;
    }
    const auto& [source, kind, period, delay, length, rise, a, b, c, ab, ac, bc] = numbers;
    if (!(period > 0 && length > 0 && a >= 0 && b >= 0 && c >= 0))
        reader.fail("periods and lengths are positive, deviations not negative");
    if (std::max({std::abs(ab), std::abs(ac), std::abs(bc)}) > 1)
        reader.fail("a correlation lies between -1 and 1");
    sensor.period = std::chrono::duration_cast<Duration>(Seconds{period});
    sensor.mean = {delay, std::log(length), rise};
    sensor.covariance = {a * a, ab * a * b, b * b, ac * a * c, bc * b * c, c * c};
    return sensor;
}

}  // namespace sensor_files

KDVFS_INLINE std::string to_csv(const SensorCalibration& sensors) {
    std::string text;
    for (const std::string_view column : sensor_files::columns) {
        text.append(text.empty() ? "" : ",").append(column);
    }
    text += '\n';
    if (sensors.log) text += sensor_files::line("log", *sensors.log);
    if (sensors.counter) text += sensor_files::line("counter", *sensors.counter);
    return text;
}

KDVFS_INLINE SensorCalibration read_sensors(std::istream& input, const std::string& name) {
    io::CsvReader reader{input, name, "docs/measuring.md"};
    std::vector<std::string> fields;
    if (!reader.next(fields)) reader.fail("the file is empty");
    if (!std::equal(fields.begin(), fields.end(), sensor_files::columns.begin(),
                    sensor_files::columns.end())) {
        reader.fail("these are not the columns of a sensor file; measure again");
    }
    SensorCalibration found;
    while (reader.next(fields)) {
        io::require_width(fields, sensor_files::columns.size(), reader);
        if (fields[0] != "log" && fields[0] != "counter")
            reader.fail("the source is neither log nor counter");
        auto& sensor = fields[0] == "log" ? found.log : found.counter;
        if (sensor) reader.fail("this source is there twice");
        sensor = sensor_files::parse(fields, reader);
    }
    return found;
}

KDVFS_INLINE std::optional<SensorCalibration> find_sensors(const DeviceInfo& board) {
    const auto path = io::find_kept(sensor_paths(board));
    if (!path) return std::nullopt;
    std::ifstream input{*path, std::ios::binary};
    if (!input) io::throw_file_error("open a file", *path, errno);
    return read_sensors(input, path->string());
}

}  // namespace kdvfs::inline v0_3::measure

#endif
