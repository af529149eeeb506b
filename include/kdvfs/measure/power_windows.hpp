// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/measure/energy_counter.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kdvfs::measure {

/// One reading of a logger that gives watts: the mean over the window that ends at `at`.
struct PowerSample {
    TimePoint at;
    Watts mean;
    Duration window{0};
};

/// Turns the windows of a power logger into pairs of energy samples, so that attribution takes
/// both kinds of logger. Windows that overlap carry the same noise twice, so of those only every
/// n-th that does not overlap is used: intervals stay honest. Time between windows is in no row.
class PowerWindows {
public:
    explicit PowerWindows(Watts highest_power = CounterLimits{}.highest_power)
        : highest_power_{highest_power} {}

    /// The two ends of the window as energy samples of a segment of their own; nothing where the
    /// window overlaps one used before or came out of order, or its watts cannot be right.
    std::optional<std::array<EnergySample, 2>> take(const PowerSample& sample) {
        if (!std::isfinite(sample.mean.count) || sample.mean.count < 0 ||
            sample.mean > highest_power_ || sample.window <= Duration::zero()) {
            ++implausible_;
            return {};
        }
        const TimePoint from = sample.at - sample.window;
        if (from < used_to_) {
            ++skipped_;
            return {};
        }
        used_to_ = sample.at;
        ++segment_;
        const EnergySample begin{from, total_, segment_};
        total_ += sample.mean * Seconds{sample.window};
        return std::array{begin, EnergySample{sample.at, total_, segment_}};
    }

    [[nodiscard]] std::uint64_t implausible() const { return implausible_; }
    [[nodiscard]] std::uint64_t skipped() const { return skipped_; }

private:
    Watts highest_power_;
    TimePoint used_to_ = TimePoint::min();
    Joules total_;
    std::uint32_t segment_ = 0;
    std::uint64_t implausible_ = 0;
    std::uint64_t skipped_ = 0;
};

struct CurvePoint {
    double x;
    double y;
};

/// A smoothed curve with its 95 % band. Where too few points lie near there is no point at all.
struct SmoothCurve {
    struct Point {
        double x;
        double y;
        double half_width;
    };
    std::vector<Point> points;
};

/// Local linear regression with a Gaussian window (Fan and Gijbels, "Local Polynomial Modelling",
/// 1996), which bends neither at the ends nor on slopes, on 51 places from 0 to `length`. The
/// window narrows with the fifth root of the number of points, as is best for smooth curves.
inline SmoothCurve smooth(std::span<const CurvePoint> points, double length) {
    constexpr int places = 51;
    constexpr std::size_t fewest = 5;
    SmoothCurve curve;
    if (points.size() < fewest || length <= 0) return curve;
    const double window = 0.15 * length / std::pow(static_cast<double>(points.size()), 0.2);
    for (int k = 0; k < places; ++k) {
        const double x = length * k / (places - 1);
        double s0 = 0;
        double s1 = 0;
        double s2 = 0;
        for (const CurvePoint& point : points) {
            const double d = point.x - x;
            const double weight = std::exp(-d * d / (2 * window * window));
            s0 += weight;
            s1 += weight * d;
            s2 += weight * d * d;
        }
        const double determinant = s0 * s2 - s1 * s1;
        if (s0 < 2 || determinant <= 1e-12 * s0 * s2) continue;
        double y = 0;
        double slope = 0;
        for (const CurvePoint& point : points) {
            const double d = point.x - x;
            const double weight = std::exp(-d * d / (2 * window * window));
            y += weight * (s2 - s1 * d) / determinant * point.y;
            slope += weight * (s0 * d - s1) / determinant * point.y;
        }
        double variance = 0;
        double squares = 0;
        for (const CurvePoint& point : points) {
            const double d = point.x - x;
            const double weight = std::exp(-d * d / (2 * window * window));
            const double residual = point.y - y - slope * d;
            variance += weight * residual * residual / s0;
            const double effect = weight * (s2 - s1 * d) / determinant;
            squares += effect * effect;
        }
        curve.points.push_back({x, y, 1.96 * std::sqrt(variance * squares)});
    }
    return curve;
}

}  // namespace kdvfs::measure
