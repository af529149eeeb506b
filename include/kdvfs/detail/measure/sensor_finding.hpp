// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/sensor_posterior.hpp>
#include <kdvfs/detail/measure/sensor_prior.hpp>
#include <kdvfs/detail/measure/sensor_sample.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// What the readings of a power log say of the powers, with the sensor unknown.
struct SensorFinding {
    Sensor likely{};
    RowSums rows;                        ///< under the likeliest sensor
    std::vector<NormalSums> hypotheses;  ///< of the powers, as likely as each other
    bool usual = false;                  ///< to be taken for NVIDIA's log of 20 ms (`LogMemories`)
    bool stale = false;                  ///< not as it was measured (`SensorCalibration`)
    double overcount = 1;                ///< far above 1 where the board is not as the model has it
    double left = 0;                     ///< W of a reading, root mean square, that are unexplained
    double deviation = 0;                ///< W of a reading from the mean of all

    /// Whether powers are to be taken from it, of columns that had so many seconds.
    [[nodiscard]] bool holds(std::span<const double> seconds) const {
        return !usual && !runs_are_few(seconds);
    }
    /// Whether most of the time belongs to kernels that ran too seldom to know their scatter by:
    /// a few long runs, of which timestamps say enough.
    [[nodiscard]] bool runs_are_few(std::span<const double> seconds) const {
        constexpr double few = 4;
        double all = 0;
        double seldom = 0;
        for (std::size_t j = 0; j < seconds.size(); ++j) {
            if (j == RowSums::idle_column) continue;
            all += seconds[j];
            const double runs = rows.shares[j] * rows.shares[j];
            if (runs < few * rows.squared_shares[j]) seldom += seconds[j];
        }
        return seldom > 0.5 * all;
    }
    /// How long the time is that a reading shows most of, s.
    [[nodiscard]] double window(double period) const {
        return likely.memory > 0 ? period : likely.window;
    }
};

/// Whether a log is most likely that of NVIDIA's boards, and too short to show another.
[[nodiscard]] inline bool is_short_usual_log(const SensorSample& sample) {
    constexpr std::size_t few = 1000;  // readings are no reason to leave the family
    return SensorPrior::has_family(sample.period()) && sample.readings() < few;
}

/// Finds the sensor of a power log or a counter (`SensorPosterior`), and the powers under each
/// hypothesis of it.
/// @param columns how many there are; idle is the first
/// @param counter rows are differences of a counter
/// @param measured the sensor as `kdvfs measure-sensor` found it
/// @returns nothing where there are too few readings
[[nodiscard]] inline std::optional<SensorFinding> find_sensor(
    const SensorSample& sample, std::size_t columns, bool counter = false,
    const std::optional<MeasuredSensor>& measured = {}) {
    double sum = 0;
    double squares = 0;
    double count = 0;
    for (const SensorSample::Row& row : sample.rows()) {
        sum += row.watts;
        squares += row.watts * row.watts;
        ++count;
    }
    if (count < static_cast<double>(SensorPosterior::fewest_rows)) return {};
    const double mean = sum / count;
    const auto period = std::chrono::duration_cast<Duration>(Seconds{sample.period()});
    const SensorPrior prior = measured  ? SensorPrior::of(*measured)
                              : counter ? SensorPrior{}
                                        : SensorPrior::of_log(period);
    const SensorPosterior posterior{sample, counter, ColumnPrior::around(mean, columns), prior};
    if (!posterior.solved()) return {};
    SensorFinding found;
    found.likely = posterior.likely();
    found.rows = posterior.row_sums(found.likely);
    for (const SensorGuess& guess : posterior.cloud()) {
        found.hypotheses.push_back(posterior.equations(posterior.sensor(guess)));
    }
    const auto known = std::count_if(posterior.cloud().begin(), posterior.cloud().end(),
                                     [&](const SensorGuess& each) { return prior.is_known(each); });
    found.stale = measured && 2 * static_cast<std::size_t>(known) < posterior.cloud().size();
    const bool of_period = !measured && !counter && SensorPrior::has_family(sample.period());
    found.overcount = posterior.clustering();
    // Where powers differ inside runs, as on NVIDIA's boards, the model leaves an overcount of 4 to
    // 10 (its own boards 1 to 2), or finds the sensor to 0.4 ms and 11 % (an H200) and believes its
    // own powers too much: with such an overcount, or near that log, it is that log.
    constexpr double most_overcount = 2.5;
    constexpr double near_delay = 1e-3;   // s
    constexpr double near_memory = 0.25;  // of it
    const Sensor log{.delay = 3.4e-3, .memory = 12.8e-3};
    const Sensor& likely = found.likely;
    const bool near = std::abs(likely.delay + likely.rise - log.delay) < near_delay &&
                      std::abs(likely.memory / log.memory - 1) < near_memory;
    found.usual =
        of_period && (near || found.overcount > most_overcount || posterior.plausible(log));
    found.left = posterior.unexplained();
    found.deviation = std::sqrt(std::max(squares / count - mean * mean, 0.0));
    return found;
}

}  // namespace kdvfs::inline v0_3::measure
