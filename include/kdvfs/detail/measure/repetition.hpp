// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/attribution.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// The power of a load that stays the same, by a counter of which each sample is off by itself, for
/// it is read some time after it moved (60 to 180 W of a row's 700 W, NVML on an H200), while the
/// power wanders from row to row. The first error is gone over many rows, the second adds up; how
/// much of each there is, is weighed by restricted likelihood (Harville, JASA 72, 1977), and what
/// is not clear about it is part of the interval.
class SteadyPower {
public:
    /// @pre four samples of one segment or more, each later than the one before it
    explicit SteadyPower(std::span<const EnergySample> samples) {
        constexpr int shares = 16;
        std::vector<Line> lines;
        for (int i = 0; i <= shares; ++i) lines.push_back(line(samples, i / double{shares}));
        const double best =
            std::max_element(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
                return a.log_likelihood < b.log_likelihood;
            })->log_likelihood;
        double weights = 0;
        double mean = 0;
        double squares = 0;
        double independent = 0;
        for (const Line& each : lines) {
            const double weight = std::exp(each.log_likelihood - best);
            weights += weight;
            mean += weight * each.watts;
            independent += weight * each.independent;
            squares += weight * (each.variance + std::pow(each.watts - lines.back().watts, 2));
        }
        power_ = {mean / weights};
        const double off = power_.count - lines.back().watts;
        const double variance = std::max(0.0, squares / weights - off * off);
        // Of rows, the power and the share are found.
        const auto freedom = static_cast<double>(samples.size() - 3);
        half_width_ = {student_95(std::max(2.0, freedom * independent / weights)) *
                       std::sqrt(variance)};
    }

    [[nodiscard]] Watts power() const { return power_; }
    [[nodiscard]] Watts half_width() const { return half_width_; }  ///< of 95 %

private:
    struct Line {
        double watts = 0;
        double variance = 0;
        double log_likelihood = 0;
        double independent = 1;  ///< share of the rows that would say as much without following
    };

    /// Generalized least squares of the rows' joules on their seconds.
    /// @param wanders share of the rows' variance that is the power's own, 0 to 1
    static Line line(std::span<const EnergySample> samples, double wanders) {
        const std::size_t rows = samples.size() - 1;
        const double usual =
            Seconds{samples.back().at - samples.front().at}.count() / static_cast<double>(rows);
        // Each row without what the one before it says of the sample that they share.
        struct Row {
            double seconds, joules, variance;
        };
        std::vector<Row> found;
        double time_squares = 0;
        double both = 0;
        double logarithms = 0;
        for (std::size_t i = 0; i < rows; ++i) {
            Row row{Seconds{samples[i + 1].at - samples[i].at}.count(),
                    (samples[i + 1].total - samples[i].total).count, 0};
            row.variance = wanders * row.seconds / usual + (1 - wanders);
            if (i > 0) {
                const double shared = -(1 - wanders) / 2 / found.back().variance;
                row.variance += shared * (1 - wanders) / 2;
                row.seconds -= shared * found.back().seconds;
                row.joules -= shared * found.back().joules;
            }
            time_squares += row.seconds * row.seconds / row.variance;
            both += row.seconds * row.joules / row.variance;
            logarithms += std::log(row.variance);
            found.push_back(row);
        }
        const double watts = both / time_squares;
        double squares = 0;
        double products = 0;
        double last = 0;
        for (const Row& row : found) {
            const double off = (row.joules - watts * row.seconds) / std::sqrt(row.variance);
            squares += off * off;
            products += off * last;
            last = off;
        }
        const auto freedom = static_cast<double>(rows - 1);
        constexpr double tiny = 1e-300;  // of a counter without noise
        // Of so few rows a correlation comes out low (Kendall, Biometrika 41, 1954).
        const double seen = products / std::max(squares, tiny);
        const double follows = std::clamp(seen + (1 + 3 * seen) / freedom, 0.0, 0.9);
        return {.watts = watts,
                .variance = squares / freedom / time_squares * (1 + follows) / (1 - follows),
                .log_likelihood = -0.5 * (logarithms + std::log(time_squares) +
                                          freedom * std::log(std::max(squares, tiny))),
                .independent = (1 - follows) / (1 + follows)};
    }

    Watts power_;
    Watts half_width_;
};

/// One kernel, repeated in place: what the counter says of it. Not thread-safe.
class Repetition {
public:
    Repetition(KernelId kernel, TimePoint began) : kernel_{kernel}, began_{began} {}

    [[nodiscard]] KernelId kernel() const { return kernel_; }
    [[nodiscard]] TimePoint began() const { return began_; }

    void take(const EnergySample& sample) {
        if (sample.at <= began_) return;
        if (!samples_.empty() && samples_.back().segment != sample.segment) samples_.clear();
        samples_.push_back(sample);
    }
    /// Stretches of other scopes are the gaps around the repetition.
    void take(KernelId kernel, const IntervalBuilder::Stretch& stretch) {
        if (kernel != kernel_ || stretch.core_cycles == 0) return;
        cycles_ += stretch.core_cycles;
        counted_ += stretch.end - stretch.start;
    }

    /// Power and clock so far, without the first row, in which the board settles. Without enough
    /// rows the power is 0.
    [[nodiscard]] RepeatedFigure figure() const {
        constexpr std::size_t fewest = 5;  // rows
        RepeatedFigure found;
        if (counted_ > Duration::zero()) {
            found.held = held_clock(
                {.start = TimePoint{}, .end = TimePoint{counted_}, .core_cycles = cycles_});
        }
        if (samples_.size() < fewest + 2) return found;
        const SteadyPower steady{std::span{samples_}.subspan(1)};
        found.power = steady.power();
        found.half_width = steady.half_width();
        return found;
    }

private:
    KernelId kernel_;
    TimePoint began_;
    std::vector<EnergySample> samples_;
    std::uint64_t cycles_ = 0;
    Duration counted_{0};
};

}  // namespace kdvfs::inline v0_3::measure
