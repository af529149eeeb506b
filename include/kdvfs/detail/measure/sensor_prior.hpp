// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/sensor_model.hpp>
#include <kdvfs/measure/sensor_calibration.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

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
    double earliest = -1.2e-3;  ///< delay, s: stamps of two clocks may differ by a millisecond
    double latest = 12e-3;      ///< delay, s, of most sensors
    double at_most = 45e-3;     ///< delay, s, of any; at least 1.3 periods
    double unusual = 0.1;       ///< probability of a delay up to `at_most`
    /// s, or the period of what is read faster: a shorter filter is called the rise
    double shortest_memory = 2.2e-3;
    double longest_memory = 60e-3;
    double rise = 2.2e-3;  ///< s, at most

    /// What is known beforehand: the family of the board, or a calibration. Normal in the delay, s,
    /// in the logarithm of the memory or window, and in the rise where `of_rise`.
    struct Known {
        double probability = 0;  ///< that the sensor is such a one
        SensorShape shape = SensorShape::memory;
        std::array<double, 3> mean{};
        std::array<double, 6> root{};  ///< Cholesky factor of the covariance, by rows
        bool of_rise = false;
    };
    Known known{};

    /// NVIDIA's data centre boards have a log of 20 ms; fits of recordings of an H100 and two H200s
    /// scatter over 2.25 to 3.5 ms and 12 to 19 ms (METHODS, I). Others may have one, too.
    [[nodiscard]] static bool has_family(double period) { return period > 17e-3 && period < 23e-3; }
    [[nodiscard]] static SensorPrior of_log(Duration period) {
        SensorPrior prior;
        if (has_family(Seconds{period}.count())) {
            prior.known = {.probability = 0.75,
                           .mean = {3e-3, std::log(14e-3), 0},
                           .root = {0.7e-3, 0, 0.2, 0, 0, 0}};
        }
        return prior;
    }
    [[nodiscard]] static SensorPrior of(const MeasuredSensor& sensor);

    [[nodiscard]] std::span<const SensorShape> shapes(bool counter) const {
        static constexpr std::array all{SensorShape::memory, SensorShape::since_last,
                                        SensorShape::window};
        return std::span{all}.first(counter ? 2 : 3);
    }
    [[nodiscard]] double most_delay(double period) const { return std::max(at_most, 1.3 * period); }
    /// The logarithms of the shortest and the longest memory or window.
    [[nodiscard]] std::pair<double, double> lengths(SensorShape shape, double period) const {
        if (shape == SensorShape::memory)
            return {std::log(std::min(shortest_memory, period)), std::log(longest_memory)};
        return {std::log(0.05 * period), std::log(12 * period)};
    }
    /// @returns its logarithm; all shapes are as likely but for what is known
    [[nodiscard]] double density(const SensorGuess& guess, double period) const {
        const auto [shortest, longest] = lengths(guess.shape, period);
        const auto& [delay, length, rises] = guess.at;
        if (delay < earliest || delay > most_delay(period) || rises < 0 || rises > rise) {
            return -std::numeric_limits<double>::infinity();
        }
        const double usual = delay <= latest ? (1 - unusual) / (latest - earliest) : 0;
        const bool inside = length >= shortest && length <= longest;
        double sum = inside ? (1 - known.probability) *
                                  (usual + unusual / (most_delay(period) - earliest)) /
                                  (longest - shortest) / rise
                            : 0;
        if (guess.shape == known.shape && known.probability > 0) {
            sum += 3 * known.probability * density_of_known(guess);
        }
        return std::log(sum);
    }
    /// @param uniform a random number from 0 to 1
    template <class Uniform>
    [[nodiscard]] SensorGuess draw(SensorShape shape, double period, Uniform uniform) const {
        SensorGuess guess{.shape = shape};
        const double p = 3 * known.probability / (1 + 2 * known.probability);
        if (shape == known.shape && uniform() < p) {
            draw_known(guess, uniform);
            return guess;
        }
        guess.at[2] = rise * uniform();
        const double until = uniform() < unusual ? most_delay(period) : latest;
        guess.at[0] = earliest + (until - earliest) * uniform();
        const auto [shortest, longest] = lengths(shape, period);
        guess.at[1] = shortest + (longest - shortest) * uniform();
        return guess;
    }

    /// Whether a guess is like the sensor that is known: within five deviations.
    [[nodiscard]] bool is_known(const SensorGuess& guess) const {
        if (guess.shape != known.shape) return false;
        const auto [z0, z1, z2] = deviations(guess);
        const bool has_length = guess.shape != SensorShape::since_last;
        return z0 * z0 + (has_length ? z1 * z1 : 0) + z2 * z2 < 25;
    }

private:
    static constexpr double turn = 6.283185307179586;

    /// From what is known, independent; the last is 0 where the rise is not known.
    [[nodiscard]] std::array<double, 3> deviations(const SensorGuess& guess) const {
        const auto& l = known.root;
        const double z0 = (guess.at[0] - known.mean[0]) / l[0];
        const double z1 = (guess.at[1] - known.mean[1] - l[1] * z0) / l[2];
        if (!known.of_rise) return {z0, z1, 0};
        return {z0, z1, (guess.at[2] - known.mean[2] - l[3] * z0 - l[4] * z1) / l[5]};
    }
    [[nodiscard]] double density_of_known(const SensorGuess& guess) const {
        const auto& l = known.root;
        const auto [z0, z1, z2] = deviations(guess);
        const double height = std::exp(-0.5 * (z0 * z0 + z1 * z1 + z2 * z2)) / (turn * l[0] * l[2]);
        return known.of_rise ? height / (std::sqrt(turn) * l[5]) : height / rise;
    }
    template <class Uniform>
    void draw_known(SensorGuess& guess, Uniform uniform) const {
        const auto& l = known.root;
        const auto normals = [&] {
            const double radius = std::sqrt(-2 * std::log(std::max(uniform(), 1e-12)));
            const double angle = turn * uniform();
            return std::pair{radius * std::cos(angle), radius * std::sin(angle)};
        };
        constexpr int tries = 32;  // to draw a rise that there can be
        for (int i = 0; i < tries; ++i) {
            const auto [z0, z1] = normals();
            guess.at[0] = std::max(known.mean[0] + l[0] * z0, earliest);
            guess.at[1] = known.mean[1] + l[1] * z0 + l[2] * z1;
            guess.at[2] = known.of_rise
                              ? known.mean[2] + l[3] * z0 + l[4] * z1 + l[5] * normals().first
                              : rise * uniform();
            if (guess.at[2] >= 0 && guess.at[2] <= rise) return;
        }
        guess.at[2] = std::clamp(guess.at[2], 0.0, rise);
    }
};

/// Five of a hundred sensors have changed since they were measured.
inline SensorPrior SensorPrior::of(const MeasuredSensor& sensor) {
    constexpr double least = 1e-12;  // of a variance: a covariance from a file may be none
    const std::array<double, 6>& c = sensor.covariance;
    SensorPrior prior;
    prior.known = {
        .probability = 0.95, .shape = sensor.shape, .mean = sensor.mean, .of_rise = true};
    auto& l = prior.known.root;
    l[0] = std::sqrt(std::max(c[0], least));
    l[1] = c[1] / l[0];
    l[2] = std::sqrt(std::max(c[2] - l[1] * l[1], least));
    l[3] = c[3] / l[0];
    l[4] = (c[4] - l[3] * l[1]) / l[2];
    l[5] = std::sqrt(std::max(c[5] - l[3] * l[3] - l[4] * l[4], least));
    return prior;
}

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
