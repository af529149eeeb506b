// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/tune/clock_curves.hpp>
#include <kdvfs/detail/tune/curve_estimate.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/units.hpp>

#include <Eigen/Core>
#include <Eigen/Eigenvalues>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// All clocks of a pipeline's curves, each once, in ascending order.
inline std::vector<ClockPoint> clocks_of(const Pipeline& pipeline) {
    std::vector<ClockPoint> clocks;
    for (const Curve& curve : pipeline.curves)
        for (const CurvePoint& point : curve.points()) clocks.push_back(point.clock);
    std::sort(clocks.begin(), clocks.end());
    clocks.erase(std::unique(clocks.begin(), clocks.end()), clocks.end());
    return clocks;
}

/// One quantity of all curves of a pipeline, shrunk: by curve, its logarithm at each clock, and
/// what it may be off.
class ShrunkQuantity {
public:
    /// @param quantity of a point, above 0
    /// @param noise standard deviation of its logarithm, above 0
    template <class Quantity>
    ShrunkQuantity(const Pipeline& measured, double noise, const Quantity& quantity)
        : clocks_{clocks_of(measured)} {
        const std::vector<tune::ClockShare> grid = tune::clock_shares(clocks_);
        std::vector<tune::detail::KernelSamples> samples;
        for (const Curve& curve : measured.curves) {
            auto& at = samples.emplace_back().at;
            at.resize(clocks_.size());
            for (const CurvePoint& point : curve.points())
                at[place_of(point.clock)].push_back({std::log(quantity(point)), noise * noise});
        }
        tune::detail::SamePoints all_differ(clocks_.size());
        std::iota(all_differ.begin(), all_differ.end(), Eigen::Index{0});
        tune::detail::QuantityShrinkage shrinkage{grid, std::move(samples)};
        shrinkage.pool(grid, {measured.curves.size(), &all_differ});
        for (std::size_t c = 0; c < measured.curves.size(); ++c)
            estimates_.push_back(shrinkage.estimate(c, all_differ));
    }

    /// @pre a clock of the pipeline's curves
    [[nodiscard]] std::size_t place_of(ClockPoint clock) const {
        return static_cast<std::size_t>(std::lower_bound(clocks_.begin(), clocks_.end(), clock) -
                                        clocks_.begin());
    }
    [[nodiscard]] double mean(std::size_t curve, ClockPoint clock) const {
        return estimates_[curve].mean(static_cast<Eigen::Index>(place_of(clock)));
    }
    [[nodiscard]] double deviation(std::size_t curve, ClockPoint clock) const {
        const auto i = static_cast<Eigen::Index>(place_of(clock));
        return std::sqrt(std::max(0.0, (*estimates_[curve].covariance)(i, i)));
    }
    /// A matrix that makes independent normal numbers vary as this curve's values may.
    [[nodiscard]] Eigen::MatrixXd spread(std::size_t curve) const {
        const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> axes{*estimates_[curve].covariance};
        return axes.eigenvectors() *
               axes.eigenvalues().cwiseMax(0).cwiseSqrt().asDiagonal().toDenseMatrix();
    }

private:
    std::vector<ClockPoint> clocks_;
    std::vector<tune::detail::CurveEstimate> estimates_;
};

/// The pipeline with each point changed by `change(curve, index, point)`.
template <class Change>
Pipeline with_points(const Pipeline& pipeline, const Change& change) {
    Pipeline changed = pipeline;
    changed.curves.clear();
    for (std::size_t c = 0; c < pipeline.curves.size(); ++c) {
        const Curve& curve = pipeline.curves[c];
        std::vector<CurvePoint> points{curve.points().begin(), curve.points().end()};
        for (std::size_t p = 0; p < points.size(); ++p) change(c, p, points[p]);
        const Shape shape = points.size() == 1 ? Shape::constant : Shape::measured;
        changed.curves.emplace_back(curve.name(), std::move(points), pipeline.blocking_power,
                                    shape);
    }
    return changed;
}

/// Curves of a pipeline that were measured once at each clock, shrunk.
struct ShrunkCurves {
    ShrunkQuantity times;
    Pipeline expected;

    ShrunkCurves(const Pipeline& measured, double time_noise, double energy_noise)
        : times{measured, time_noise, [](const CurvePoint& point) { return point.time.count(); }},
          expected{measured} {
        const ShrunkQuantity energies{measured, energy_noise,
                                      [](const CurvePoint& point) { return point.energy.count; }};
        expected = with_points(measured, [&](std::size_t c, std::size_t, CurvePoint& point) {
            point.time = Seconds{std::exp(times.mean(c, point.clock))};
            point.energy = {std::exp(energies.mean(c, point.clock))};
        });
    }

    /// With clocks below the fastest so many standard deviations slower.
    [[nodiscard]] Pipeline slower(double deviations) const {
        return with_points(expected, [&](std::size_t c, std::size_t p, CurvePoint& point) {
            if (p > 0)
                point.time = point.time * std::exp(deviations * times.deviation(c, point.clock));
        });
    }
};

}  // namespace kdvfs::inline v0_3::train::detail
