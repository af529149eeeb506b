// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/late_rows.hpp>
#include <kdvfs/detail/measure/log_readings.hpp>
#include <kdvfs/detail/measure/sensor_posterior.hpp>
#include <kdvfs/detail/measure/sensor_prior.hpp>
#include <kdvfs/detail/measure/sensor_sample.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/sensor_calibration.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// A time of work, then a time without.
struct Pulse {
    Seconds on{0};
    Seconds off{0};
};

/// Square waves of several periods, each beginning at a random phase, as arXiv 2312.02741 finds the
/// sensors of 70 GPUs: about as many edges of each, in random order, none of them in step with a
/// sensor's round period.
/// @param length of all pulses, s
inline std::vector<Pulse> square_waves(Seconds length, std::uint64_t seed) {
    constexpr std::array half_periods{4.3e-3, 9.7e-3, 21.1e-3, 47e-3, 103e-3, 211e-3};  // s
    constexpr double wave = 0.8;  // s of one period on end
    std::mt19937_64 random{seed};
    std::uniform_real_distribution<double> uniform{0, 1};
    std::vector<Pulse> pulses;
    std::vector<double> left;
    for (double passed = 0; passed < length.count();) {
        if (left.empty()) {
            left.assign(half_periods.begin(), half_periods.end());
            std::shuffle(left.begin(), left.end(), random);
        }
        const double half = left.back() * (0.9 + 0.2 * uniform(random));
        left.pop_back();
        for (double until = passed + wave; passed < until; passed += 2 * half) {
            pulses.push_back({Seconds{half}, Seconds{half}});
        }
        const double phase = 2 * half * uniform(random);
        pulses.back().off += Seconds{phase};
        passed += phase;
    }
    return pulses;
}

/// A sensor as a sample of a program's readings shows it.
/// @param columns how many the sample has; idle is the first
/// @param counter readings are differences of a counter
/// @returns nothing where there are too few readings, or the load does not show in them
[[nodiscard]] inline std::optional<MeasuredSensor> measure_sensor(const SensorSample& sample,
                                                                  std::size_t columns,
                                                                  bool counter) {
    constexpr std::size_t guesses = 128;
    constexpr std::size_t fewest = 40;  // readings
    constexpr double unclear = 0.5;     // of the readings' deviation is left unexplained
    const std::vector<SensorSample::Row> rows = sample.rows();
    if (rows.size() < fewest) return {};
    double mean = 0;
    double square = 0;
    for (const SensorSample::Row& row : rows) {
        mean += row.watts;
        square += row.watts * row.watts;
    }
    mean /= static_cast<double>(rows.size());
    square /= static_cast<double>(rows.size());
    const SensorPosterior posterior{
        sample, counter, ColumnPrior::around(mean, columns), SensorPrior{}, {.guesses = guesses}};
    if (posterior.unexplained() > unclear * std::sqrt(std::max(square - mean * mean, 0.0))) {
        return {};
    }
    std::array<std::size_t, 3> votes{};
    for (const SensorGuess& guess : posterior.cloud()) {
        ++votes[static_cast<std::size_t>(guess.shape)];
    }
    const auto most = std::max_element(votes.begin(), votes.end());
    MeasuredSensor found{.shape = static_cast<SensorShape>(most - votes.begin()),
                         .period = std::chrono::duration_cast<Duration>(Seconds{sample.period()})};
    const auto count = static_cast<double>(*most);
    const auto each = [&](auto take) {
        for (const SensorGuess& guess : posterior.cloud()) {
            if (guess.shape == found.shape) take(guess.at);
        }
    };
    each([&](const auto& at) {
        for (std::size_t k = 0; k < 3; ++k) found.mean[k] += at[k] / count;
    });
    each([&](const auto& at) {
        std::size_t entry = 0;
        for (std::size_t k = 0; k < 3; ++k) {
            for (std::size_t l = 0; l <= k; ++l) {
                found.covariance[entry++] +=
                    (at[k] - found.mean[k]) * (at[l] - found.mean[l]) / (count - 1);
            }
        }
    });
    // Timestamps and the shape of the response have limits of their own.
    constexpr double least_time = 3e-5;    // s
    constexpr double least_length = 0.01;  // of memory or window
    found.covariance[0] += least_time * least_time;
    found.covariance[2] += least_length * least_length;
    found.covariance[5] += least_time * least_time;
    return found;
}

/// How often the energy counter of a record moves; 0: unknown.
[[nodiscard]] inline Duration counter_period(const MeterRecord& record) {
    std::vector<Duration> between;
    for (std::size_t i = 1; i < record.samples.size(); ++i) {
        between.push_back(record.samples[i].at - record.samples[i - 1].at);
    }
    return between.empty() ? Duration::zero() : median_of(between);
}

/// The sensors of a board as the record of a program shows them: of `kdvfs measure-sensor`, or of
/// any program whose kernels all have scopes.
/// Counters that move more seldom than every 80 ms are left out: reports take none by its sensor.
[[nodiscard]] inline SensorCalibration measure_sensors(const MeterRecord& record) {
    LogReadings readings;
    SensorSample counter;
    if (const Duration period = counter_period(record);
        period > Duration::zero() && period < LateRows::slow) {
        counter.begin(period);
    }
    std::vector<const KernelInterval*> runs;
    for (const MeteredRun& run : record.runs) runs.push_back(&run.interval);
    std::stable_sort(runs.begin(), runs.end(),
                     [](const auto* a, const auto* b) { return a->start < b->start; });
    std::size_t logged = 0;
    std::size_t counted = 0;
    TimePoint passed = runs.empty() ? TimePoint{} : runs.front()->start;
    const auto pass = [&](TimePoint until, std::size_t column) {
        if (until <= passed) return;
        for (SensorSample* each : {&readings.sample(), &counter}) {
            if (!each->on()) continue;
            each->pass(passed, until);
            each->add(column, Seconds{until - passed}.count());
        }
        passed = until;
    };
    const auto read = [&] {
        for (; logged < record.power.size() && record.power[logged].sampled_at <= passed;
             ++logged) {
            const PowerReading& reading = record.power[logged];
            static_cast<void>(readings.take(reading.sampled_at, reading.watts.count));
        }
        for (; counted < record.samples.size() && record.samples[counted].at <= passed; ++counted) {
            if (counted == 0) continue;
            const EnergySample& before = record.samples[counted - 1];
            const EnergySample& sample = record.samples[counted];
            const Seconds since{sample.at - before.at};
            if (sample.segment != before.segment || since.count() <= 0 || !counter.on()) continue;
            counter.read(sample.at, since, (sample.total - before.total).count / since.count());
        }
    };
    for (const KernelInterval* run : runs) {
        pass(run->start, 0);
        pass(run->end, run->kernel.value + std::size_t{1});
        read();
    }
    const std::size_t columns = record.kernels.size() + 1;
    SensorCalibration found;
    if (readings.has_clock()) found.log = measure_sensor(readings.sample(), columns, false);
    if (counter.on()) found.counter = measure_sensor(counter, columns, true);
    return found;
}

}  // namespace kdvfs::inline v0_3::measure
