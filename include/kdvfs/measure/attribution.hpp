// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/energy_groups.hpp>
#include <kdvfs/measure/energy_sums.hpp>
#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/measure/least_squares.hpp>
#include <kdvfs/measure/non_negative.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <Eigen/Dense>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// What attribution assumes and when it keeps silent.
struct AttributionSettings {
    /// An energy whose 95 % half-width is a larger share of it is `too_short_to_tell`.
    double widest_resolved = 0.10;
    /// Kernels' powers lie around the board's mean power, by about this; it matters only where the
    /// counter says nothing. Boards draw 0 to 750 W (MI300X), so this assumes next to nothing.
    Watts spread{500};
};

/// A kernel under one clock, or idle.
struct AttributedPower {
    KernelId kernel;
    ClockPoint applied;
    Seconds time{0};  ///< under trusted samples
    EnergyEstimate energy;

    /// Of an energy that is told.
    [[nodiscard]] Watts power() const { return energy.joules / time; }
};

struct AttributedKernel {
    KernelId kernel;
    Seconds time{0};
    EnergyEstimate energy;
};

/// Kernels whose energies are known only together.
struct AttributedGroup {
    std::vector<KernelId> kernels;
    bool with_idle = false;
    EnergyEstimate energy;
};

/// Where the joules of the counter went.
struct Attribution {
    std::vector<AttributedPower> powers;    ///< by kernel and clock
    std::vector<AttributedKernel> kernels;  ///< over all clocks
    std::vector<AttributedGroup> groups;    ///< of kernels that are not told one by one
    EnergyTotals totals;
    std::size_t rows = 0;
    std::size_t rank = 0;  ///< of the columns' times, to rounding
    /// Largest over smallest singular value of the scaled columns; large = mixes hardly vary.
    double condition = 0;
};

/// Attributes by weighted least squares with non-negative powers, a wide prior for what the counter
/// leaves open, and the full covariance. Intervals are 95 % by Student's t. Kernels that are told
/// only together form groups; that choice looks at the covariance and never at the energies'
/// values, so intervals stay honest. Throws nothing; without samples everything is untold.
[[nodiscard]] Attribution attribute(const EnergySums& sums, AttributionSettings settings = {});

/// The posterior of all columns' watts.
class PowerPosterior {
public:
    PowerPosterior(const EnergySums& sums, Watts spread);

    [[nodiscard]] bool solved() const { return degrees_ >= 3; }
    [[nodiscard]] std::size_t rank() const { return rank_; }
    [[nodiscard]] double condition() const { return condition_; }
    /// Joules of each unit, where `seconds` has a row per unit and a column per column of the sums.
    [[nodiscard]] Eigen::VectorXd joules(const Eigen::MatrixXd& seconds) const {
        return seconds * watts_;
    }
    [[nodiscard]] Eigen::MatrixXd covariance(const Eigen::MatrixXd& seconds) const {
        return seconds * covariance_ * seconds.transpose();
    }
    /// Half-width of a 95 % interval in standard deviations.
    [[nodiscard]] double student() const { return student_95(degrees_); }

private:
    std::size_t rank_ = 0;
    std::size_t degrees_ = 0;
    double condition_ = 0;
    Eigen::VectorXd watts_;
    Eigen::MatrixXd covariance_;
};

inline PowerPosterior::PowerPosterior(const EnergySums& sums, Watts spread) {
    const NormalEquations& equations = sums.equations;
    const LeastSquares plain = equations.solve();
    rank_ = plain.rank();
    degrees_ = plain.degrees_of_freedom();
    if (!solved()) return;
    // Rows without any noise would make the counter infinitely certain.
    constexpr double rounding = 1e-12;
    const double variance =
        std::max(plain.residual_variance(),
                 rounding * equations.squares() / static_cast<double>(equations.rows()));
    const auto n = static_cast<Eigen::Index>(equations.columns());
    Eigen::MatrixXd precision(n, n);
    Eigen::VectorXd right(n);
    for (Eigen::Index i = 0; i < n; ++i) {
        right[i] = equations.right(static_cast<std::size_t>(i));
        for (Eigen::Index j = 0; j < n; ++j) {
            precision(i, j) =
                equations.gram(static_cast<std::size_t>(i), static_cast<std::size_t>(j));
        }
    }
    const Eigen::VectorXd scale = precision.diagonal().cwiseMax(1e-300).cwiseSqrt().cwiseInverse();
    const auto spectrum =
        Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>{
            scale.asDiagonal() * precision * scale.asDiagonal(), Eigen::EigenvaluesOnly}
            .eigenvalues();
    condition_ = spectrum[0] > 0 ? std::sqrt(spectrum[n - 1] / spectrum[0])
                                 : std::numeric_limits<double>::infinity();
    const double prior = 1 / (spread.count * spread.count);
    precision = precision / variance + prior * Eigen::MatrixXd::Identity(n, n);
    right = right / variance + Eigen::VectorXd::Constant(n, prior * sums.mean_power().count);
    watts_ = non_negative_minimum(precision, right);
    covariance_ = precision.llt().solve(Eigen::MatrixXd::Identity(n, n));
}

namespace attribution_detail {

/// Joules, their half-widths and what is told, for units that are sums of columns.
class Units {
public:
    Units(const PowerPosterior& posterior, Eigen::MatrixXd seconds)
        : seconds_{std::move(seconds)},
          joules_{posterior.joules(seconds_)},
          covariance_{posterior.covariance(seconds_)},
          student_{posterior.student()} {}

    [[nodiscard]] EnergyEstimate estimate(Eigen::Index unit, double widest_resolved) const {
        const double joules = joules_[unit];
        const double half_width = student_ * std::sqrt(std::max(covariance_(unit, unit), 0.0));
        const bool told = joules > 0 && half_width <= widest_resolved * joules;
        return told ? EnergyEstimate{{joules}, {half_width}, true} : EnergyEstimate{};
    }
    [[nodiscard]] const Eigen::MatrixXd& seconds() const { return seconds_; }
    [[nodiscard]] const Eigen::MatrixXd& covariance() const { return covariance_; }
    [[nodiscard]] const Eigen::VectorXd& joules() const { return joules_; }

private:
    Eigen::MatrixXd seconds_;
    Eigen::VectorXd joules_;
    Eigen::MatrixXd covariance_;
    double student_;
};

/// Time per kernel (rows) and column; the last row is idle.
inline Eigen::MatrixXd kernel_seconds(const EnergySums& sums,
                                      const std::vector<KernelId>& kernels) {
    const auto columns = static_cast<Eigen::Index>(sums.equations.columns());
    const auto units = static_cast<Eigen::Index>(kernels.size()) + 1;
    Eigen::MatrixXd seconds = Eigen::MatrixXd::Zero(units, columns);
    for (Eigen::Index unit = 0; unit + 1 < units; ++unit) {
        const auto row = sums.seconds_of(kernels[static_cast<std::size_t>(unit)]);
        seconds.row(unit) = Eigen::Map<const Eigen::RowVectorXd>(row.data(), columns);
    }
    constexpr auto idle = static_cast<Eigen::Index>(EnergySums::idle_column);
    seconds(units - 1, idle) = sums.seconds(EnergySums::idle_column);
    return seconds;
}

inline std::vector<AttributedPower> powers(const EnergySums& sums, const PowerPosterior& posterior,
                                           const std::vector<KernelId>& kernels,
                                           double widest_resolved) {
    const auto n = static_cast<Eigen::Index>(sums.equations.columns());
    Eigen::MatrixXd seconds = Eigen::MatrixXd::Zero(n, n);
    for (Eigen::Index i = 0; i < n; ++i) {
        seconds(i, i) = sums.seconds(static_cast<std::size_t>(i));
    }
    const Units units{posterior, seconds};
    std::vector<AttributedPower> result;
    for (const KernelId kernel : kernels) {
        for (const auto& [applied, column] : sums.columns.of(kernel)) {
            result.push_back({kernel, applied, Seconds{sums.seconds(column)},
                              units.estimate(static_cast<Eigen::Index>(column), widest_resolved)});
        }
    }
    return result;
}

inline void add_totals(EnergyTotals& totals, const PowerPosterior& posterior,
                       const Eigen::MatrixXd& kernel_seconds, double widest_resolved) {
    constexpr double any_width = std::numeric_limits<double>::infinity();
    const Eigen::Index kernels = kernel_seconds.rows() - 1;
    Eigen::MatrixXd seconds(3, kernel_seconds.cols());
    seconds.row(0) = kernel_seconds.topRows(kernels).colwise().sum();
    seconds.row(1) = kernel_seconds.row(kernels);
    seconds.row(2) = seconds.row(0) + seconds.row(1);
    const Units units{posterior, seconds};
    const bool apart = kernels == 0 || units.estimate(0, widest_resolved).resolved;
    totals.kernels = units.estimate(apart ? 0 : 2, any_width);
    if (apart) totals.idle = units.estimate(1, any_width);
    totals.unexplained = totals.counter - totals.kernels.joules - totals.idle.joules;
}

}  // namespace attribution_detail

inline Attribution attribute(const EnergySums& sums, AttributionSettings settings) {
    Attribution result;
    EnergyTotals& totals = result.totals;
    totals.counter = totals.unexplained = sums.counter;
    totals.outside = sums.outside;
    totals.counted_time = sums.counted_time;
    totals.idle_time = Seconds{sums.seconds(EnergySums::idle_column)};
    result.rows = sums.equations.rows();
    const std::vector<KernelId> kernels = sums.columns.kernels();
    const Eigen::MatrixXd seconds = attribution_detail::kernel_seconds(sums, kernels);
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        result.kernels.push_back(
            {kernels[i], Seconds{seconds.row(static_cast<Eigen::Index>(i)).sum()}, {}});
    }
    const PowerPosterior posterior{sums, settings.spread};
    result.rank = posterior.rank();
    if (!posterior.solved()) return result;
    result.condition = posterior.condition();
    result.powers = attribution_detail::powers(sums, posterior, kernels, settings.widest_resolved);
    const attribution_detail::Units units{posterior, seconds};
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        result.kernels[i].energy =
            units.estimate(static_cast<Eigen::Index>(i), settings.widest_resolved);
    }
    const EnergyGroups groups{units.joules(), units.covariance(), posterior.student(),
                              settings.widest_resolved};
    const auto idle = static_cast<Eigen::Index>(kernels.size());
    for (const EnergyGroups::Group& group : groups.found()) {
        AttributedGroup& told = result.groups.emplace_back();
        told.energy = {{group.joules}, {group.half_width}, true};
        for (const Eigen::Index unit : group.units) {
            if (unit == idle) {
                told.with_idle = true;
            } else {
                told.kernels.push_back(kernels[static_cast<std::size_t>(unit)]);
            }
        }
    }
    attribution_detail::add_totals(totals, posterior, seconds, settings.widest_resolved);
    return result;
}

}  // namespace kdvfs::measure
