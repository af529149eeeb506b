// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/sensor_sample.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// How a board at its power limit moves the powers of kernels: what they draw beyond idle has a
/// factor s, d ln s / dt = rate (1 - power / limit), below the one of a board that drew little
/// (`device::PowerLimiter`). A kernel that follows hungry ones draws less than where it follows
/// frugal ones, and less at the end of a run than at its begin.
class LimitedPowers {
public:
    /// @param watts by column: the means that kernels draw over all their time
    /// @param limit of the board, W
    /// @param rate  of the limiter, per second of a power that is off by the limit
    LimitedPowers(const SensorSample& sample, std::span<const double> watts, double limit,
                  double rate)
        : sample_{&sample}, watts_{watts.begin(), watts.end()}, limit_{limit}, rate_{rate} {
        const double idle = std::clamp(watts_[RowSums::idle_column], 0.0, limit);
        watts_[RowSums::idle_column] = idle;
        for (double& each : watts_) each = std::clamp(each, idle, most * limit);
        const double holds = mean();
        if (holds > (1 - touches) * limit) {
            top_ = std::log(spare);
            limit_ = holds;  // to the percent that boards keep to their limit
        }
        means_.assign(watts_.size(), 1.0);
        constexpr int rounds = 4;  // a factor moves by less than a percent in the last
        for (int i = 0; i < rounds; ++i) find_factors();
    }

    /// The sample, with the time of columns in each moment times what they draw then in that mean.
    [[nodiscard]] SensorSample sample() const {
        auto factor = factors_.begin();
        return sample_->weighed(longest(), [&](bool, double, std::span<PowerRows::Entry> entries) {
            for (PowerRows::Entry& entry : entries) {
                const double watts = watts_[entry.column];
                if (watts > 0) entry.share *= drawn(entry.column, *factor) / watts;
            }
            ++factor;
        });
    }

private:
    static constexpr double most = 2;        ///< of the limit, that a kernel is taken to draw
    static constexpr double touches = 0.03;  ///< so far below it the mean is not held by the limit
    /// So much more than in the mean a kernel draws on a board that has rested: in bursts of 76 ms
    /// a GEMM drew 903 of 700 W (bench/results).
    static constexpr double spare = 1.5;

    [[nodiscard]] double longest() const { return 0.06 / rate_; }
    /// Of the time but for long rests, W.
    [[nodiscard]] double mean() const {
        constexpr double long_rest = 0.05;  // s
        double joules = 0;
        double seconds = 0;
        for (const SensorSample::Block& block : sample_->blocks()) {
            for (const SensorSample::Stretch& stretch : block.stretches) {
                const bool idle = stretch.count == 1 &&
                                  block.entries[stretch.first].column == RowSums::idle_column;
                if (idle && stretch.to - stretch.from > long_rest) continue;
                for (std::size_t k = stretch.first; k < stretch.first + stretch.count; ++k) {
                    joules += watts_[block.entries[k].column] * block.entries[k].share;
                    seconds += block.entries[k].share;
                }
            }
        }
        return joules / std::max(seconds, 1e-9);
    }
    [[nodiscard]] double drawn(std::size_t column, double factor) const {
        const double idle = watts_[RowSums::idle_column];
        return idle + (watts_[column] - idle) * factor / means_[column];
    }
    /// @param state logarithm of the factor at the begin of the time; in it afterwards at the end
    /// @returns the factor in the middle
    double pass(bool begins, double seconds, std::span<const PowerRows::Entry> entries,
                double& state) const {
        if (begins) state = 0;
        double joules = 0;
        double all = 0;
        for (const PowerRows::Entry& entry : entries) {
            joules += drawn(entry.column, std::exp(state)) * entry.share;
            all += entry.share;
        }
        if (all <= 0) return std::exp(state);
        const double before = state;
        constexpr double least = -1.5;
        state = std::clamp(state + rate_ * (1 - joules / all / limit_) * seconds, least, top_);
        return std::exp(0.5 * (before + state));
    }
    /// With the means of before, which they change.
    void find_factors() {
        std::vector<double> sums(watts_.size());
        std::vector<double> seconds(watts_.size());
        double state = 0;
        factors_.clear();
        (void)sample_->weighed(longest(),
                               [&](bool begins, double time, std::span<PowerRows::Entry> entries) {
                                   const double factor = pass(begins, time, entries, state);
                                   factors_.push_back(factor);
                                   for (const PowerRows::Entry& entry : entries) {
                                       sums[entry.column] += entry.share * factor;
                                       seconds[entry.column] += entry.share;
                                   }
                               });
        for (std::size_t j = 0; j < means_.size(); ++j) {
            if (seconds[j] > 0) means_[j] = sums[j] / seconds[j];
        }
    }

    const SensorSample* sample_;
    std::vector<double> watts_;
    double limit_;
    double rate_;
    double top_ = 0;
    std::vector<double> means_;    // of the factor, by column
    std::vector<double> factors_;  // by piece
};

}  // namespace kdvfs::inline v0_3::measure
