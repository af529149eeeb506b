// SPDX-License-Identifier: MIT
#pragma once

#include <bench/power_profile/power_profile.hpp>
#include <kdvfs/units.hpp>

#include <Eigen/Dense>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace kdvfs::inline v0_3::measure {

/// The power inside a kernel from logs that are means over a window: the curve whose means over the
/// same windows come closest to the logs, as smooth as generalised cross-validation asks (Craven
/// and Wahba, Numerische Mathematik 31, 1979), with Wahba's 95 % band (J. Royal Statistical Society
/// B 45, 1983), which also holds what the smoothing hides, if that is alike everywhere; a spike is
/// not, so that the band also holds what a hundredth of the smoothing shows. A window need not fit
/// into the kernel:
/// its ends fall at other places of the executions each time, and that is what is learned from.
/// Empty where logs are few, or where they say no more than a mean and a slope.
inline SmoothCurve deblur(const PowerProfile& profile, std::size_t component = 0) {
    using Eigen::Index;
    constexpr Index knots = 31;
    constexpr double fewest_features = 3;
    // Now and then cross-validation follows the noise; a feature that counts for more prevents it
    // (Kim and Gu, J. Royal Statistical Society B 66, 2004, with 1.4; 2 errs least here).
    constexpr double wary = 2;
    constexpr double rougher = 0.01;
    const auto rows = static_cast<Index>(profile.windowed.size());
    SmoothCurve curve;
    if (rows < 2 * knots || component >= profile.components.size()) return curve;
    Eigen::MatrixXd mean = Eigen::MatrixXd::Zero(rows, knots);
    Eigen::VectorXd watts(rows);
    for (Index i = 0; i < rows; ++i) {
        const auto& log = profile.windowed[static_cast<std::size_t>(i)];
        watts[i] = log.watts[component];
        for (const auto& [from, to, share] : log.stretches) {
            const auto places = static_cast<int>(std::ceil((to - from) * 4 * knots));
            for (int k = 0; k < places; ++k) {
                const double at = (from + (to - from) * (k + 0.5) / places) * (knots - 1);
                const Index knot = std::clamp(static_cast<Index>(at), Index{0}, knots - 2);
                const double part = at - static_cast<double>(knot);
                mean(i, knot) += (1 - part) * share / places;
                mean(i, knot + 1) += part * share / places;
            }
        }
    }
    Eigen::MatrixXd bend = Eigen::MatrixXd::Zero(knots - 2, knots);
    for (Index k = 0; k < knots - 2; ++k) bend.row(k).segment(k, 3) << 1, -2, 1;
    const Eigen::MatrixXd gram = mean.transpose() * mean;
    const Eigen::MatrixXd penalty = bend.transpose() * bend;
    const Eigen::VectorXd right = mean.transpose() * watts;

    double least = std::numeric_limits<double>::infinity();
    double features = 0;
    double variance = 0;
    double smoothest = 0;
    Eigen::VectorXd best;
    Eigen::MatrixXd covariance;
    const double scale = gram.trace() / penalty.trace();
    const auto inverse_at = [&](double smoothness) -> Eigen::MatrixXd {
        return (gram + smoothness * penalty).llt().solve(Eigen::MatrixXd::Identity(knots, knots));
    };
    for (int step = -12; step <= 12; ++step) {
        const double smoothness = scale * std::pow(10.0, step / 2.0);
        const Eigen::MatrixXd inverse = inverse_at(smoothness);
        if (!inverse.allFinite()) continue;
        const Eigen::VectorXd found = inverse * right;
        const double used = (inverse * gram).trace();
        const double free = static_cast<double>(rows) - wary * used;
        const double squares = (watts - mean * found).squaredNorm();
        if (free <= 0 || squares / (free * free) >= least) continue;
        least = squares / (free * free);
        features = used;
        variance = squares / (static_cast<double>(rows) - used);
        smoothest = smoothness;
        best = found;
        covariance = inverse;
    }
    if (features < fewest_features) return curve;
    const double seconds = Seconds{profile.duration}.count();
    const Eigen::MatrixXd rough = inverse_at(rougher * smoothest);
    const Eigen::VectorXd sharp = rough * right;
    for (Index k = 0; k < knots; ++k) {
        double half_width = 1.96 * std::sqrt(variance * covariance(k, k));
        if (rough.allFinite()) {
            half_width = std::max(half_width, std::abs(sharp[k] - best[k]) +
                                                  1.96 * std::sqrt(variance * rough(k, k)));
        }
        curve.points.push_back(
            {seconds * static_cast<double>(k) / (knots - 1), best[k], half_width});
    }
    return curve;
}

}  // namespace kdvfs::inline v0_3::measure
