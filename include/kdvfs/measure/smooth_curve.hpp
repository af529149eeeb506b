// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace kdvfs::measure {

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
