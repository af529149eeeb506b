// SPDX-License-Identifier: MIT
//
// sensor_waves: how a GPU's power log and energy counter follow its load, by a minute of square
// waves; kept where reports look for it. Sets no clock. Ends with 2 where there is no GPU, or the
// load does not show.
//
//     sensor_waves [--vendor amd|nvidia] [--device N] [--seconds 60] [--keep user|machine|FILE]
//     sensor_waves --board NAME [--seconds 60] [--keep user|machine|FILE]
//
// With --board it is a simulated board with sensors of its family.
#include "arguments.hpp"
#include "simulated_waves.hpp"
#include "wave_bench.hpp"

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/measure/sensor_measuring.hpp>
#include <kdvfs/measure/sensor_calibration.hpp>

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace {

using namespace kdvfs;
using ::arguments::number;
using measure::MeasuredSensor;
using measure::SensorShape;

struct Arguments {
    std::string board;
    int device = 0;
    bool nvidia = false;
    int seconds = 60;
    std::string keep = "user";
};

Arguments parse(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (i + 1 == argc) throw std::invalid_argument{std::string{word} + " wants a value"};
        const std::string_view value = argv[++i];
        if (word == "--board") {
            arguments.board = value;
        } else if (word == "--device") {
            arguments.device = static_cast<int>(number(value));
        } else if (word == "--vendor" && (value == "amd" || value == "nvidia")) {
            arguments.nvidia = value == "nvidia";
        } else if (word == "--seconds" && number(value) > 0) {
            arguments.seconds = static_cast<int>(number(value));
        } else if (word == "--keep") {
            arguments.keep = value;
        } else {
            throw std::invalid_argument{"no such option: " + std::string{word} + ' ' +
                                        std::string{value}};
        }
    }
    return arguments;
}

std::unique_ptr<WaveBench> open(const Arguments& arguments) {
    if (arguments.board.empty()) {
        return arguments.nvidia ? open_nvidia_waves(arguments.device)
                                : open_amd_waves(arguments.device);
    }
    const std::string& name = arguments.board;
    const simulated::Board board = ::arguments::simulated_board(name);
    const simulated::Sensors& sensors = name == "h100"          ? simulated::sensors::h100
                                        : name == "rtx_3080_ti" ? simulated::sensors::rtx
                                                                : simulated::sensors::instinct;
    return std::make_unique<SimulatedWaves>(board, simulated::DeviceOptions{.sensors = sensors});
}

void print(const char* source, const MeasuredSensor& sensor) {
    constexpr double half_widths = 1.96;  // of a deviation, in a 95 % interval
    const auto& c = sensor.covariance;
    std::printf("%s: a reading every %.4g ms, %.2f +- %.2f ms late", source,
                1e3 * Seconds{sensor.period}.count(), 1e3 * sensor.mean[0],
                1e3 * half_widths * std::sqrt(c[0]));
    if (sensor.shape == SensorShape::since_last) {
        std::printf(", a mean since the one before");
    } else {
        std::printf(", %s %.2f ms +- %.1f %%",
                    sensor.shape == SensorShape::memory ? "with a memory of" : "a mean over",
                    1e3 * std::exp(sensor.mean[1]), 100 * half_widths * std::sqrt(c[2]));
    }
    std::printf("; the power follows the load in %.2f +- %.2f ms\n", 1e3 * sensor.mean[2],
                1e3 * half_widths * std::sqrt(c[5]));
}

int run(const Arguments& arguments) {
    const std::unique_ptr<WaveBench> bench = open(arguments);
    const DeviceInfo& board = bench->gpu().info();
    std::printf("%s%s: %d s of work and rest by turns, at the clocks that it has\n",
                board.simulated ? "SIMULATED GPU " : "", to_string(board).c_str(),
                arguments.seconds);
    std::fflush(stdout);
    const std::uint64_t seed = board.simulated ? 1 : std::random_device{}();
    const auto pulses =
        measure::square_waves(Seconds{static_cast<double>(arguments.seconds)}, seed);
    const bool watched = isatty(STDERR_FILENO) != 0;
    const measure::MeterRecord record = record_waves(*bench, pulses, [&](double part) {
        if (watched) std::fprintf(stderr, "\r%3.0f %%", 100 * part);
    });
    if (watched) std::fprintf(stderr, "\r     \r");
    const measure::SensorCalibration found = measure::measure_sensors(record);
    if (found.log) print("power log", *found.log);
    if (found.counter) print("energy counter", *found.counter);
    if (!found.log && !found.counter) {
        throw Error{Errc::not_supported,
                    {"measure sensors", to_string(board),
                     std::to_string(record.power.size()) + " readings of a power log and " +
                         std::to_string(record.samples.size()) +
                         " of the energy counter do not follow the load",
                     "let nothing else run on the board, or take more time: --seconds 180"}};
    }
    const auto places = measure::sensor_paths(board);
    const std::filesystem::path path = arguments.keep == "user" ? places.front()
                                       : arguments.keep == "machine"
                                           ? places.back()
                                           : std::filesystem::path{arguments.keep};
    std::error_code failed;
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failed);
    io::write_file_atomically(path, measure::to_csv(found));
    std::printf("kept in %s\n", path.c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(parse(argc, argv));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "\nsensor-waves: %s\n", error.what());
        return 2;
    }
}
