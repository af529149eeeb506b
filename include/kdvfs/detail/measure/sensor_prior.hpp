// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/sensor_model.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// What a reading is, as far as the way to it goes.
enum class SensorShape {
    memory,      ///< a filter of first order (of a counter: of the power that it adds up)
    since_last,  ///< a log's mean since the reading before; a counter without a memory
    window,      ///< a log's mean over another time
};

/// A hypothesis and how likely it is.
struct SensorGuess {
    SensorShape shape = SensorShape::memory;
    /// Delay, s; logarithm of memory or window in s; rise, s.
    std::array<double, 3> at{};

    [[nodiscard]] Sensor sensor(double period, bool counter) const {
        Sensor found{.delay = at[0], .rise = at[2]};
        if (shape == SensorShape::memory) found.memory = std::exp(at[1]);
        if (shape == SensorShape::window) found.window = std::exp(at[1]);
        if (shape == SensorShape::since_last && !counter) found.window = period;
        return found;
    }
};

/// What is believed of a sensor before its readings are seen; docs/measuring.md has the sources.
struct SensorPrior {
    double earliest = -1.2e-3;      ///< delay, s: stamps of two clocks may differ by a millisecond
    double latest = 12e-3;          ///< delay, s, of most sensors
    double at_most = 45e-3;         ///< delay, s, of any; at least 1.3 periods
    double unusual = 0.1;           ///< probability of a delay up to `at_most`
    double shortest_memory = 1e-3;  ///< s
    double longest_memory = 60e-3;
    double rise = 2.2e-3;  ///< s, at most

    /// A family of boards whose log has a memory, or a calibration: normal in the delay, s, and in
    /// the logarithm of the memory.
    struct Family {
        double probability = 0;  ///< that the sensor is of it
        double delay = 0;
        double delay_deviation = 1e-3;
        double memory = 10e-3;
        double memory_deviation = 0.2;
    };
    Family family{};

    /// NVIDIA's data centre boards have a log of 20 ms; fits of recordings of an H100 and two H200s
    /// scatter over 2.25 to 3.5 ms and 12 to 19 ms (METHODS, I). Others may have one, too.
    [[nodiscard]] static bool has_family(double period) { return period > 17e-3 && period < 23e-3; }
    [[nodiscard]] static SensorPrior of_log(Duration period) {
        SensorPrior prior;
        if (has_family(Seconds{period}.count())) {
            prior.family = {0.75, 3e-3, 0.7e-3, 14e-3, 0.2};
        }
        return prior;
    }

    [[nodiscard]] std::span<const SensorShape> shapes(bool counter) const {
        static constexpr std::array all{SensorShape::memory, SensorShape::since_last,
                                        SensorShape::window};
        return std::span{all}.first(counter ? 2 : 3);
    }
    [[nodiscard]] double most_delay(double period) const { return std::max(at_most, 1.3 * period); }
    /// The logarithms of the shortest and the longest memory or window.
    [[nodiscard]] std::pair<double, double> lengths(SensorShape shape, double period) const {
        if (shape == SensorShape::memory)
            return {std::log(shortest_memory), std::log(longest_memory)};
        return {std::log(0.05 * period), std::log(12 * period)};
    }
    /// @returns its logarithm; all shapes are as likely but for the family
    [[nodiscard]] double density(const SensorGuess& guess, double period) const {
        const auto [shortest, longest] = lengths(guess.shape, period);
        const auto& [delay, length, rises] = guess.at;
        if (delay < earliest || delay > most_delay(period) || rises < 0 || rises > rise) {
            return -std::numeric_limits<double>::infinity();
        }
        const double usual = delay <= latest ? (1 - unusual) / (latest - earliest) : 0;
        const bool inside = length >= shortest && length <= longest;
        double sum = inside ? (1 - family.probability) *
                                  (usual + unusual / (most_delay(period) - earliest)) /
                                  (longest - shortest)
                            : 0;
        if (guess.shape == SensorShape::memory && family.probability > 0) {
            const double d = (delay - family.delay) / family.delay_deviation;
            const double m = (length - std::log(family.memory)) / family.memory_deviation;
            sum += 3 * family.probability * std::exp(-0.5 * (d * d + m * m)) /
                   (6.2832 * family.delay_deviation * family.memory_deviation);
        }
        return std::log(sum / rise);
    }
    /// @param uniform a random number from 0 to 1
    template <class Uniform>
    [[nodiscard]] SensorGuess draw(SensorShape shape, double period, Uniform uniform) const {
        SensorGuess guess{.shape = shape};
        guess.at[2] = rise * uniform();
        const double p = 3 * family.probability / (1 + 2 * family.probability);
        if (shape == SensorShape::memory && uniform() < p) {
            const double radius = std::sqrt(-2 * std::log(std::max(uniform(), 1e-12)));
            const double angle = 6.2832 * uniform();
            guess.at[0] = std::max(family.delay + family.delay_deviation * radius * std::cos(angle),
                                   earliest);
            guess.at[1] =
                std::log(family.memory) + family.memory_deviation * radius * std::sin(angle);
            return guess;
        }
        const double until = uniform() < unusual ? most_delay(period) : latest;
        guess.at[0] = earliest + (until - earliest) * uniform();
        const auto [shortest, longest] = lengths(shape, period);
        guess.at[1] = shortest + (longest - shortest) * uniform();
        return guess;
    }
};

/// What is believed of the columns' powers before any row is seen.
struct ColumnPrior {
    std::vector<double> centre;     ///< W
    std::vector<double> precision;  ///< 1/W^2

    /// Kernels of one program differ by about 40 % of their mean (METHODS: 200 to 700 W of 450).
    [[nodiscard]] static ColumnPrior around(double watts, std::size_t columns) {
        const double spread = std::max(0.4 * std::abs(watts), 1.0);
        return {std::vector<double>(columns, watts),
                std::vector<double>(columns, 1 / (spread * spread))};
    }
};

}  // namespace kdvfs::inline v0_3::measure
