// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace kdvfs::measure {

/// How the noise of a counter's rows grows with the power that it counts: of a row of weight 1 the
/// variance is constant + relative * watts^2. A quantum or a clock that jitters is the first kind,
/// a gain that wavers the second; which of them a counter has, its own residuals say.
class CounterNoise {
public:
    /// A row by its power, and how far it lay from a fit (of weight 1).
    struct Scatter {
        double watts;
        double residual;
    };

    CounterNoise() = default;

    /// Fits the noise to absolute residuals by their medians, which outliers do not move, in bins
    /// of the power.
    /// @param rows  in order of their power, or nearly so; reordered within bins
    /// @param spare rows over degrees of freedom: a fit with few rows to spare bends to each row
    static CounterNoise fit(std::span<Scatter> rows, double spare);

    /// Whether the rows' powers differed enough to tell the two kinds apart.
    [[nodiscard]] bool determined() const { return determined_; }

    [[nodiscard]] double variance(double watts) const {
        // Without any noise a row would be infinitely certain.
        constexpr double least_relative = 1e-12;
        constexpr double least = 1e-18;
        return std::max(constant_ + relative_ * watts * watts,
                        least_relative * watts * watts + least);
    }

private:
    CounterNoise(double constant, double relative, bool determined)
        : constant_{constant}, relative_{relative}, determined_{determined} {}

    double constant_ = 1;
    double relative_ = 0;
    bool determined_ = false;
};

inline CounterNoise CounterNoise::fit(std::span<Scatter> rows, double spare) {
    constexpr std::size_t fewest_in_bin = 64;
    constexpr std::size_t most_bins = 8;
    constexpr double median_to_deviation = 1.4826;  // of the absolute value of a normal variate
    if (rows.empty()) return {};
    const std::size_t bins = std::clamp<std::size_t>(rows.size() / fewest_in_bin, 1, most_bins);
    // Weighted least squares of variance on watts^2; a variance is as uncertain as it is large.
    double s = 0;
    double sx = 0;
    double sxx = 0;
    double sy = 0;
    double sxy = 0;
    double mean = 0;
    double mean_x = 0;
    for (std::size_t bin = 0; bin < bins; ++bin) {
        const std::size_t begin = bin * rows.size() / bins;
        const std::size_t end = (bin + 1) * rows.size() / bins;
        const auto part = rows.subspan(begin, end - begin);
        const auto middle = part.begin() + static_cast<std::ptrdiff_t>(part.size() / 2);
        const double watts = part[part.size() / 2].watts;
        std::nth_element(part.begin(), middle, part.end(), [](const Scatter& a, const Scatter& b) {
            return a.residual < b.residual;
        });
        const double y = std::pow(median_to_deviation * middle->residual, 2) * spare;
        mean += y / static_cast<double>(bins);
        const double x = watts * watts;
        mean_x += x / static_cast<double>(bins);
        if (y <= 0) continue;
        const double weight = 1 / (y * y);
        s += weight;
        sx += weight * x;
        sxx += weight * x * x;
        sy += weight * y;
        sxy += weight * x * y;
    }
    const double determinant = s * sxx - sx * sx;
    // At one power a gain that wavers is as likely as any, and wrong by least at others.
    if (bins == 1 || determinant <= 0.01 * s * sxx) {
        return mean_x > 0 ? CounterNoise{0, mean / mean_x, false} : CounterNoise{mean, 0, false};
    }
    const double constant = (sxx * sy - sx * sxy) / determinant;
    const double relative = (s * sxy - sx * sy) / determinant;
    if (relative <= 0) return {sy / s, 0, true};
    if (constant <= 0) return {0, sxy / sxx, true};
    return {constant, relative, true};
}

}  // namespace kdvfs::measure
