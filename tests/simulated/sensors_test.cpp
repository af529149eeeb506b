// SPDX-License-Identifier: MIT
//
// The sensors of a simulated board: held against an integration in small steps, and found through
// the door that users have.
#include <kdvfs/detail/device/simulated/power_sensor.hpp>
#include <kdvfs/detail/measure/sensor_measuring.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/measure/sensor_calibration.hpp>
#include <kdvfs/simulated.hpp>
#include <tools/switch_latency/simulated_waves.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::simulated {
namespace {

using namespace std::chrono_literals;
using measure::MeasuredSensor;
using measure::SensorShape;

constexpr double microsecond = 1e-6;  // s

/// A load that changes at random, and what two filters make of it, in steps of a microsecond.
struct Stepped {
    std::vector<std::pair<Watts, TimePoint>> pieces{};  ///< until when
    std::vector<double> seen{};                         ///< W, by microsecond

    Stepped(Duration rise, Duration memory, std::uint64_t seed) {
        std::mt19937_64 random{seed};
        std::uniform_real_distribution<double> uniform{0, 1};
        double board = 0;
        double shown = 0;
        const auto follow = [](double& value, double target, Duration constant) {
            const double time = Seconds{constant}.count();
            value +=
                time > 0 ? (target - value) * (1 - std::exp(-microsecond / time)) : target - value;
        };
        for (TimePoint end{}; end < TimePoint{1s};) {
            const double watts = 100 + 500 * uniform(random);
            const TimePoint until =
                end + std::chrono::round<Duration>(1us * std::floor(100 + 2e4 * uniform(random)));
            if (pieces.empty()) board = shown = watts;
            for (; end < until; end += 1us) {
                seen.push_back(shown);
                follow(board, watts, rise);
                follow(shown, board, memory);
            }
            pieces.push_back({{watts}, until});
        }
    }
    [[nodiscard]] double at(double time) const {
        return seen[static_cast<std::size_t>(time / microsecond)];
    }
};

TEST(Sensors, ShowWhatTwoFiltersAndAWindowDo) {
    struct Case {
        Duration rise, memory, window;
    };
    for (const auto& [rise, memory, window] :
         {Case{0ms, 0ms, 25ms}, Case{500us, 14ms, 0ms}, Case{2ms, 0ms, 7ms}, Case{0ms, 5ms, 0ms},
          Case{1ms, 1ms, 0ms}, Case{700us, 30ms, 120ms}}) {
        const Stepped stepped{rise, memory, 7};
        PowerLogSensor log{{.period = 20ms,
                            .window = window,
                            .sensor = {.delay = 3ms, .memory = memory, .clock_offset = -400us}},
                           rise,
                           3};
        TimePoint end{};
        for (const auto& [watts, until] : stepped.pieces) log.draw(watts, end = until);
        const auto readings = log.read(TimePoint{}, end);
        ASSERT_GT(readings.size(), 35U);
        for (const PowerReading& reading : readings) {
            const double shown =
                Seconds{(reading.sampled_at - 3ms + 400us).time_since_epoch()}.count();
            double expected = stepped.at(shown);
            if (window > Duration::zero()) {
                const double length = Seconds{window}.count();
                expected = 0;
                for (double t = shown - length; t < shown - 0.5 * microsecond; t += microsecond) {
                    expected += stepped.at(t) * microsecond / length;
                }
            }
            EXPECT_NEAR(reading.watts.count, expected, 0.3)
                << Seconds{rise}.count() << ' ' << Seconds{memory}.count() << " at " << shown;
        }
    }
}

TEST(Sensors, CounterIsLateByItsDelayAndItsClockDrifts) {
    Sensors sensors{.counter = {.delay = 4ms, .drift = 1e-3}};
    EnergyMeter meter{{.period = 1ms}, 1, sensors};
    TimePoint now{};
    meter.draw({100}, now, now + 2s);
    now += 2s;
    meter.draw({300}, now, now + 10ms);
    now += 10ms;
    EXPECT_NEAR(meter.read(now).joules.count, 200 + 0.3 * 6, 1e-9) << "6 of 10 ms are seen";
    EXPECT_EQ(meter.read(now).sampled_at, now + 2010us);
    EXPECT_NEAR(meter.truth().count, 203, 1e-9);
}

TEST(Sensors, OutsideLoadIsThereInHalfOfTheTime) {
    Sensors sensors{.load = {.outside = {80}, .outside_every = 200ms}};
    EnergyMeter meter{{.period = 1ms}, 1, sensors};
    meter.draw({100}, TimePoint{}, TimePoint{100s});
    EXPECT_NEAR(meter.truth().count, 100 * 140, 100 * 4);
}

TEST(Sensors, AreNotThereUnlessAskedFor) {
    Device device{mi210()};
    device.advance(1s);
    EXPECT_FALSE(device.has_sensors());
    EXPECT_TRUE(device.read_power_samples(TimePoint{}).empty());
}

/// A sensor of a family, with parameters drawn from ranges.
Sensors drawn_sensors(std::uint64_t seed) {
    std::mt19937_64 random{seed};
    const auto uniform = [&](double low, double high) {
        return std::uniform_real_distribution<double>{low, high}(random);
    };
    const auto seconds = [](double s) { return std::chrono::round<Duration>(Seconds{s}); };
    Sensors sensors{.log = {.period = seconds(20e-3 * uniform(0.997, 1.003)),
                            .noise = {uniform(1, 5)},
                            .sensor = {.delay = seconds(uniform(0, 10e-3)),
                                       .clock_offset = seconds(uniform(-1e-3, 1e-3))}},
                    .load = {.rise = seconds(uniform(0, 2e-3)), .spread = uniform(0, 0.05)}};
    if (seed % 2 == 0) {
        sensors.log.sensor.memory = seconds(std::exp(uniform(std::log(5e-3), std::log(50e-3))));
    } else {
        sensors.log.window = seconds(20e-3 * uniform(0.25, 1));
    }
    return sensors;
}

Board board_with_slow_counter() {
    Board board = h100();
    board.limiter_rate = 0;
    return board;
}

MeasuredSensor measured(const Sensors& sensors) {
    SimulatedWaves bench{board_with_slow_counter(), {.seed = 5, .sensors = sensors}};
    const auto pulses = measure::square_waves(Seconds{60}, 11);
    const auto found = measure::measure_sensors(record_waves(bench, pulses, {}));
    EXPECT_TRUE(found.log.has_value());
    return found.log.value_or(MeasuredSensor{});
}

struct Step {
    int resolved = 0;
    int covered = 0;
    double half_widths = 0;  ///< relative, sum over resolved kernels
    std::vector<std::string> notes{};
};

/// A minute of a fixed step of eight kernels, and how its report fits the board.
Step report_of_steps(const Sensors& sensors, std::optional<measure::SensorCalibration> known) {
    const Board board = board_with_slow_counter();
    Device device{board, {.seed = 9, .sensors = sensors}};
    GpuOptions options{.meter_every = 1};
    options.accumulator.sensors = std::move(known);
    Gpu gpu = open(device, options);
    Stream* const stream = device.create_stream();
    std::mt19937_64 random{3};
    std::uniform_real_distribution<double> uniform{0, 1};
    std::vector<KernelModel> kernels;
    std::vector<OperatingPoint> points;
    for (int k = 0; k < 8; ++k) {
        const double seconds = std::exp(std::log(2e-3) + uniform(random) * std::log(10.0));
        KernelModel kernel =
            roofline(board, {.vector_flops = seconds * board.throughput.vector_flops_per_cycle *
                                             1e6 * board.reference_core.count});
        kernel.core_energy = kernel.core_energy * (0.3 + 0.7 * uniform(random));
        kernels.push_back(kernel);
        points.push_back(operate(board, kernel, {}));
    }
    while (device.now() < TimePoint{60s}) {
        gpu.next_iteration();
        for (std::uint32_t k = 0; k < kernels.size(); ++k) {
            const Scope scope{gpu, stream, "kernel", {k}};
            device.launch(stream, kernels[k]);
        }
        device.synchronize(stream);
        device.advance(1ms);
    }
    const measure::Report report = gpu.report();
    Step step;
    step.notes = report.notes;
    for (const auto& row : report.rows) {
        if (!row.energy.resolved) continue;
        const double time = row.counted_time.count();
        const double half = row.energy.half_width.count / time;
        const double truth = points[row.kernel.variant.index].power.count;
        ++step.resolved;
        step.covered += std::abs(row.energy.joules.count / time - truth) <= half;
        step.half_widths += half / truth;
    }
    return step;
}

TEST(Sensors, AreFoundThroughUsersDoorAndReportsGainByIt) {
    int resolved = 0;
    int covered = 0;
    double widths = 0;
    const auto says_stale = [](const Step& step) {
        return std::any_of(step.notes.begin(), step.notes.end(), [](const std::string& note) {
            return note.find("measure it again") != std::string::npos;
        });
    };
    for (const std::uint64_t seed : {1U, 2U}) {
        const Sensors truth = drawn_sensors(seed);
        const MeasuredSensor found = measured(truth);
        const double rest =
            Seconds{truth.log.sensor.delay + truth.log.sensor.clock_offset + truth.load.rise}
                .count();
        EXPECT_NEAR(found.mean[0] + found.mean[2], rest, 1e-4) << seed;
        const bool remembers = truth.log.sensor.memory > Duration::zero();
        EXPECT_EQ(found.shape == SensorShape::memory, remembers) << seed;
        const Seconds length = remembers ? truth.log.sensor.memory : truth.log.window;
        if (found.shape != SensorShape::since_last) {
            EXPECT_NEAR(found.mean[1], std::log(length.count()), 0.05) << seed;
        }
        const Step step = report_of_steps(truth, measure::SensorCalibration{.log = found});
        EXPECT_FALSE(says_stale(step)) << seed;
        if (seed == 2) {
            MeasuredSensor old = found;
            old.mean[0] += 3e-3;
            EXPECT_TRUE(says_stale(report_of_steps(truth, measure::SensorCalibration{.log = old})));
        }
        resolved += step.resolved;
        covered += step.covered;
        widths += step.half_widths;
    }
    EXPECT_GE(resolved, 13) << "of 16";
    EXPECT_GE(covered, 0.85 * resolved);
    EXPECT_LT(widths, 0.03 * resolved);
}

TEST(SensorFiles, KeepWhatWasMeasured) {
    const measure::SensorCalibration sensors{
        .log = MeasuredSensor{SensorShape::memory,
                              20ms,
                              {3e-3, std::log(14e-3), 5e-4},
                              {4e-10, -1e-7, 1e-4, -2e-10, 1e-7, 9e-10}},
        .counter =
            MeasuredSensor{SensorShape::since_last, 1ms, {1e-3, -6, 0}, {1e-9, 0, 1, 0, 0, 1e-9}}};
    std::istringstream text{to_csv(sensors)};
    const measure::SensorCalibration read = measure::read_sensors(text, "sensor.csv");
    ASSERT_TRUE(read.log && read.counter);
    EXPECT_EQ(read.log->shape, SensorShape::memory);
    EXPECT_EQ(read.counter->shape, SensorShape::since_last);
    EXPECT_EQ(read.log->period, Duration{20ms});
    for (std::size_t i = 0; i < 6; ++i) {
        EXPECT_NEAR(read.log->covariance[i], sensors.log->covariance[i], 1e-12) << i;
    }
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(read.log->mean[i], sensors.log->mean[i], 1e-12);
    EXPECT_EQ(to_csv(read), to_csv(sensors));
    for (const char* wrong :
         {"", "source,shape\n", "log,odd", "log,memory,0,0,1,0,1,1,1,0,0,0",
          "log,memory,1,0,1,0,1,1,1,0,0,1.5", "meter,memory,1,0,1,0,1,1,1,0,0,0",
          "log,memory,1,0,1,0,-1,1,1,0,0,0", "log,memory,1,nan,1,0,1,1,1,0,0,0"}) {
        const std::string header = to_csv(measure::SensorCalibration{});
        std::istringstream input{std::string{wrong}.find("source") == 0 || *wrong == 0
                                     ? std::string{wrong}
                                     : header + wrong + '\n'};
        EXPECT_THROW(static_cast<void>(measure::read_sensors(input, "sensor.csv")), Error) << wrong;
    }
}

}  // namespace
}  // namespace kdvfs::simulated
