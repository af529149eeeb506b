// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

/// What the times of a kernel at few clocks say of others.
namespace kdvfs::inline v0_3::tune::detail {

/// A clock point as periods: 1 at the highest clocks, 2 at half of them.
struct ClockPeriods {
    double core = 1;
    double memory = 1;
};

/// One way in which a kernel's time may depend on clocks: with x and y the periods of core and
/// memory,
///     T = (((1 - s) max(x, h))^p + (s y)^p)^(1/p) + fixed,
/// in units of its time at the highest clocks. The power limit holds the core period at `h` or
/// more.
struct TimeLaw {
    double memory_share = 0;  ///< s
    double overlap = 1;       ///< p
    double fixed_share = 0;   ///< of the time at the highest clocks
    double held_period = 1;   ///< h

    [[nodiscard]] double at(ClockPeriods periods) const {
        return (1 - fixed_share) * moving(periods) / moving({}) + fixed_share;
    }

private:
    [[nodiscard]] double moving(ClockPeriods periods) const {
        const double core = (1 - memory_share) * std::max(periods.core, held_period);
        const double memory = memory_share * periods.memory;
        const double high = std::max(core, memory);
        return high * std::pow(1 + std::pow(std::min(core, memory) / high, overlap), 1 / overlap);
    }
};

/// A time that was measured.
struct KnownSlowdown {
    std::size_t clock = 0;
    double log_ratio = 0;  ///< to the time at the baseline
    double error = 0.01;   ///< standard deviation of that
};

/// What is expected of a kernel's time at each clock, as a ratio to that at the baseline.
struct TimePosterior {
    std::vector<double> mean;
    std::vector<double> high;  ///< not exceeded with `TimeLaws::confidence`, or by no law
    double held_period = 1;
};

/// All laws, and what they say at a board's clocks. None is preferred: no measurement of a board
/// is in them.
class TimeLaws {
public:
    /// With which `TimePosterior::high` is not exceeded, once anything was measured.
    static constexpr double confidence = 0.9;

    TimeLaws() = default;
    explicit TimeLaws(const std::vector<ClockPeriods>& clocks) : clocks_{clocks.size()} {
        constexpr int steps = 16;
        for (const double overlap : {1.0, 2.0, 4.0, 10.0})
            for (const double held : held_periods)
                for (const double fixed : {0.0, 0.1, 0.25, 0.5, 0.8})
                    for (int step = 0; step <= steps; ++step) {
                        // Evenly by the logarithm of the memory's time to the core's.
                        double share = 1 / (1 + std::exp(0.25 * (0.5 * steps - step)));
                        if (step == 0) share = 0;
                        if (step == steps) share = 1;
                        laws_.push_back({share, overlap, fixed, held});
                    }
        ratios_.reserve(laws_.size() * clocks_);
        for (const TimeLaw& law : laws_)
            for (const ClockPeriods& clock : clocks) ratios_.push_back(law.at(clock));
        for (std::size_t c = 0; c < clocks_; ++c) {
            std::vector<std::uint32_t>& order = slowest_first_.emplace_back(laws_.size());
            std::iota(order.begin(), order.end(), 0);
            std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
                return ratios_[a * clocks_ + c] > ratios_[b * clocks_ + c];
            });
        }
    }

    /// @param power_share of the power limit, that the kernel draws at the baseline; nothing where
    ///                    that is not known
    [[nodiscard]] TimePosterior posterior(const std::vector<KnownSlowdown>& known,
                                          std::optional<double> power_share) const {
        std::vector<double> logs(laws_.size());
        double most = -std::numeric_limits<double>::infinity();
        for (std::size_t l = 0; l < laws_.size(); ++l) {
            logs[l] = std::log(prior(laws_[l], power_share));
            for (const KnownSlowdown& slowdown : known) {
                const double off =
                    slowdown.log_ratio - std::log(ratios_[l * clocks_ + slowdown.clock]);
                logs[l] -= 0.5 * std::pow(off / slowdown.error, 2);
            }
            most = std::max(most, logs[l]);
        }
        double sum = 0;
        for (double& weight : logs) sum += weight = std::exp(weight - most);
        TimePosterior found{std::vector<double>(clocks_), std::vector<double>(clocks_), 0};
        for (std::size_t l = 0; l < laws_.size(); ++l) {
            const double weight = logs[l] / sum;
            if (weight < 1e-9) continue;
            found.held_period += weight * laws_[l].held_period;
            for (std::size_t c = 0; c < clocks_; ++c)
                found.mean[c] += weight * ratios_[l * clocks_ + c];
        }
        for (std::size_t c = 0; c < clocks_; ++c) {
            double above = 0;
            for (const std::uint32_t law : slowest_first_[c]) {
                found.high[c] = ratios_[law * clocks_ + c];
                above += logs[law] / sum;
                if (known.empty() || above > 1 - confidence) break;
            }
        }
        return found;
    }

private:
    static constexpr std::array held_periods{1.0, 1.03, 1.06, 1.1, 1.15, 1.2, 1.3, 1.45};
    /// Below this share of the limit, boards keep their highest clock.
    static constexpr double at_limit = 0.93;

    static double prior(const TimeLaw& law, std::optional<double> power_share) {
        const bool is_free = law.held_period == 1;
        if (power_share && *power_share < at_limit) return is_free ? 1 : 1e-4;
        return is_free ? 1 : 1.0 / (held_periods.size() - 1);
    }

    std::size_t clocks_ = 0;
    std::vector<TimeLaw> laws_;
    std::vector<double> ratios_;                             ///< by law and clock
    std::vector<std::vector<std::uint32_t>> slowest_first_;  ///< laws, by clock
};

/// A line through points in the plane, level before the first.
class Curve {
public:
    void add(double x, double value) {
        const auto place = std::upper_bound(points_.begin(), points_.end(), x,
                                            [](double a, const auto& p) { return a < p.first; });
        points_.insert(place, {x, value});
    }
    /// @param slope_beyond what of the last slope is kept beyond the last point
    [[nodiscard]] double at(double x, double slope_beyond = 0) const {
        if (points_.empty()) return 0;
        if (x <= points_.front().first || points_.size() == 1) return points_.front().second;
        std::size_t upper = 1;
        while (upper + 1 < points_.size() && points_[upper].first < x) ++upper;
        const auto& [x1, y1] = points_[upper - 1];
        const auto& [x2, y2] = points_[upper];
        const double slope = x2 > x1 ? (y2 - y1) / (x2 - x1) : 0;
        return x > x2 ? y2 + slope_beyond * slope * (x - x2) : y1 + slope * (x - x1);
    }
    /// To the nearest point.
    [[nodiscard]] double distance(double x) const {
        double least = std::numeric_limits<double>::infinity();
        for (const auto& point : points_) least = std::min(least, std::abs(point.first - x));
        return least;
    }
    [[nodiscard]] std::size_t size() const { return points_.size(); }

private:
    std::vector<std::pair<double, double>> points_;
};

}  // namespace kdvfs::inline v0_3::tune::detail
