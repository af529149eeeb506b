// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::measure {

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
/// 1996) at one place: it bends neither at the ends nor on slopes.
struct LocalLine {
    double y = 0;
    double slope = 0;
    double deviation = 0;  ///< of y, by the scatter about the line
    double scatter = 0;    ///< variance of the points about the line
    double weight = 0;     ///< of the points near, the nearest counting as one

    /// @returns nothing where too few points lie near
    [[nodiscard]] static std::optional<LocalLine> fit(std::span<const CurvePoint> points, double x,
                                                      double window) {
        double s1 = 0;
        double s2 = 0;
        LocalLine line;
        const auto each = [&](auto take) {
            for (const CurvePoint& point : points) {
                const double d = point.x - x;
                if (std::abs(d) < 4 * window) {
                    take(point.y, d, std::exp(-d * d / (2 * window * window)));
                }
            }
        };
        each([&](double, double d, double its) {
            line.weight += its;
            s1 += its * d;
            s2 += its * d * d;
        });
        const double s0 = line.weight;
        const double determinant = s0 * s2 - s1 * s1;
        if (s0 < 2 || determinant <= 1e-12 * s0 * s2) return {};
        each([&](double watts, double d, double its) {
            line.y += its * (s2 - s1 * d) / determinant * watts;
            line.slope += its * (s0 * d - s1) / determinant * watts;
        });
        double squares = 0;
        each([&](double watts, double d, double its) {
            const double residual = watts - line.y - line.slope * d;
            line.scatter += its * residual * residual / s0;
            squares += std::pow(its * (s2 - s1 * d) / determinant, 2);
        });
        line.deviation = std::sqrt(line.scatter * squares);
        return line;
    }
};

/// Standard deviation of the points' noise, by what neighbours differ by in the median.
[[nodiscard]] inline double noise_of(std::vector<CurvePoint> points) {
    constexpr double to_deviation = 1 / (0.6745 * 1.4142);  // of a difference's median
    std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
    std::vector<double> apart;
    for (std::size_t i = 1; i < points.size(); ++i) {
        apart.push_back(std::abs(points[i].y - points[i - 1].y));
    }
    if (apart.empty()) return 0;
    const auto middle = apart.begin() + static_cast<std::ptrdiff_t>(apart.size() / 2);
    std::nth_element(apart.begin(), middle, apart.end());
    return to_deviation * *middle;
}

/// Smooths points on 51 places from 0 to `length`, each where most of its neighbours lie on a line.
/// The window narrows with the fifth root of the number of points, as is best for smooth curves.
/// A window hides what is narrower than itself, so that the band holds what a half and a quarter of
/// it show, with the scatter of that, where points are enough (bias as in Calonico, Cattaneo and
/// Titiunik, Econometrica 82, 2014). An edge shows as points that scatter about the line by more
/// than their noise: the line may be off by as much and a third. So is what a shift of all points
/// makes.
/// @param shift   that all points may have in x alike
/// @param stretch the same, as a part of x
inline SmoothCurve smooth(std::span<const CurvePoint> points, double length, double shift = 0,
                          double stretch = 0) {
    constexpr int places = 51;
    constexpr std::size_t fewest = 5;
    constexpr double enough = 6;  // points near, for a scatter
    SmoothCurve curve;
    if (points.size() < fewest || length <= 0) return curve;
    const double noise = 1.2 * noise_of({points.begin(), points.end()});  // it may vary
    const double window = 0.15 * length / std::pow(static_cast<double>(points.size()), 0.2);
    for (int k = 0; k < places; ++k) {
        const double x = length * k / (places - 1);
        const auto line = LocalLine::fit(points, x, window);
        if (!line) continue;
        const double edge = std::sqrt(std::max(line->scatter - noise * noise, 0.0));
        double half_width = 1.96 * line->deviation + 1.3 * edge;
        double slope = std::abs(line->slope);
        for (const double narrower : {0.5, 0.25}) {
            const auto sharp = LocalLine::fit(points, x, narrower * window);
            if (!sharp || sharp->weight < enough) break;
            const double bias = std::abs(sharp->y - line->y);
            half_width = std::max(half_width, bias + 1.96 * sharp->deviation);
            slope = std::max(slope, std::abs(sharp->slope));
        }
        half_width = std::hypot(half_width, slope * (shift + stretch * x));
        curve.points.push_back({x, line->y, half_width});
    }
    return curve;
}

}  // namespace kdvfs::inline v0_3::measure
