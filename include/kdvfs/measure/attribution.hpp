// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/energy_groups.hpp>
#include <kdvfs/measure/energy_sums.hpp>
#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/measure/power_estimate.hpp>
#include <kdvfs/measure/student.hpp>
#include <kdvfs/measure/symmetric_matrix.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// When attribution keeps silent.
struct AttributionSettings {
    /// An energy whose 95 % half-width is a larger share of it is `too_short_to_tell`.
    double widest_resolved = 0.10;
    /// Kernels' powers lie around the board's mean power, by about this: `PowerPrior::spread`.
    Watts spread{500};
};

/// A kernel under one clock.
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
    std::vector<AttributedGroup> groups;    ///< of kernels not told one by one, largest first
    EnergyTotals totals;
    AttributionFit fit;
};

/// Attributes the joules of the counter: weighted least squares of the rows' powers on the shares
/// of their time, with powers that are not negative, a wide prior for what the rows leave open, and
/// intervals (95 %) that hold where the noise lasts from row to row and where a kernel's power
/// depends on what ran before it; see `RowFit` and `PowerEstimate`. Kernels that are told only
/// together form groups; that choice looks at the spread of errors. Throws nothing; without rows
/// everything is untold.
class Attributing {
public:
    static constexpr double any_width = std::numeric_limits<double>::infinity();

    explicit Attributing(const EnergySums& sums, AttributionSettings settings = {});

    [[nodiscard]] bool solved() const { return estimate_.has_value(); }
    struct Interval {
        double joules = 0;
        double half_width = any_width;
    };
    /// The energy of `seconds[j]` seconds, which may be negative, of each column j.
    [[nodiscard]] Interval interval(std::span<const double> seconds) const;
    /// The same, told or not by `widest_resolved`.
    [[nodiscard]] EnergyEstimate energy(std::span<const double> seconds,
                                        double widest_resolved) const;
    [[nodiscard]] EnergyEstimate energy(std::span<const double> seconds) const {
        return energy(seconds, settings_.widest_resolved);
    }
    [[nodiscard]] Attribution result() const;

private:
    static constexpr double fewest_degrees = 3;

    [[nodiscard]] EnergyTotals totals() const;
    [[nodiscard]] SymmetricMatrix covariance(const std::vector<std::vector<double>>& units) const;
    [[nodiscard]] std::vector<AttributedGroup> groups(const std::vector<KernelId>& kernels,
                                                      const std::vector<std::vector<double>>& units,
                                                      const SymmetricMatrix& covariance) const;
    [[nodiscard]] std::vector<double> idle_seconds() const {
        std::vector<double> seconds(sums_->columns_seen());
        seconds[EnergySums::idle_column] = sums_->seconds(EnergySums::idle_column);
        return seconds;
    }
    const EnergySums* sums_;
    AttributionSettings settings_;
    std::optional<PowerEstimate> estimate_;
};

[[nodiscard]] inline Attribution attribute(const EnergySums& sums,
                                           AttributionSettings settings = {}) {
    return Attributing{sums, settings}.result();
}

inline Attributing::Attributing(const EnergySums& sums, AttributionSettings settings)
    : sums_{&sums}, settings_{settings} {
    if (sums.rows.rows <= fewest_degrees) return;
    estimate_.emplace(sums.rows, sums.column_seconds, settings.spread.count);
    if (estimate_->degrees_of_freedom() < fewest_degrees) estimate_.reset();
}

inline Attributing::Interval Attributing::interval(std::span<const double> seconds) const {
    if (!estimate_) return {};
    double joules = 0;
    double variance = 0;
    double rows = 0;
    std::vector<std::size_t> used;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        if (seconds[i] == 0) continue;
        used.push_back(i);
        joules += seconds[i] * estimate_->watts()[i];
        rows += estimate_->rows_of(i);
        for (const std::size_t j : used) {
            variance += (i == j ? 1 : 2) * seconds[i] * seconds[j] * estimate_->covariance()(i, j);
        }
    }
    return {joules, student_95(std::min(rows - 1, estimate_->degrees_of_freedom())) *
                        std::sqrt(std::max(variance, 0.0))};
}

inline EnergyEstimate Attributing::energy(std::span<const double> seconds,
                                          double widest_resolved) const {
    const auto [joules, half_width] = interval(seconds);
    const bool told =
        joules > 0 && std::isfinite(half_width) && half_width <= widest_resolved * joules;
    return told ? EnergyEstimate{{joules}, {half_width}, true} : EnergyEstimate{};
}

/// In joules^2, where `units` has seconds per column for each unit.
inline SymmetricMatrix Attributing::covariance(
    const std::vector<std::vector<double>>& units) const {
    SymmetricMatrix result{units.size()};
    std::vector<double> half(sums_->columns_seen());
    for (std::size_t a = 0; a < units.size(); ++a) {
        std::fill(half.begin(), half.end(), 0.0);
        for (std::size_t i = 0; i < half.size(); ++i) {
            if (units[a][i] == 0) continue;
            for (std::size_t j = 0; j < half.size(); ++j) {
                half[j] += units[a][i] * estimate_->covariance()(i, j);
            }
        }
        for (std::size_t b = 0; b <= a; ++b) {
            for (std::size_t j = 0; j < half.size(); ++j) result(a, b) += half[j] * units[b][j];
        }
    }
    return result;
}

inline std::vector<AttributedGroup> Attributing::groups(
    const std::vector<KernelId>& kernels, const std::vector<std::vector<double>>& units,
    const SymmetricMatrix& covariance) const {
    std::vector<double> joules;
    for (const auto& seconds : units) {
        double sum = 0;
        for (std::size_t j = 0; j < seconds.size(); ++j) sum += seconds[j] * estimate_->watts()[j];
        joules.push_back(sum);
    }
    const EnergyGroups found{joules, covariance, student_95(sums_->rows.fewer_rows),
                             settings_.widest_resolved};
    std::vector<AttributedGroup> result;
    for (const EnergyGroups::Group& group : found.found()) {
        AttributedGroup& told = result.emplace_back();
        told.energy = {{group.joules}, {group.half_width}, true};
        for (const std::size_t unit : group.units) {
            if (unit == kernels.size()) {
                told.with_idle = true;
            } else {
                told.kernels.push_back(kernels[unit]);
            }
        }
    }
    return result;
}

inline EnergyTotals Attributing::totals() const {
    EnergyTotals totals;
    totals.counter = totals.unexplained = sums_->counter;
    totals.outside = sums_->outside;
    totals.counted_time = sums_->counted_time;
    totals.idle_time = Seconds{sums_->seconds(EnergySums::idle_column)};
    if (!estimate_) return totals;
    std::vector<double> all = sums_->column_seconds;
    const EnergyEstimate explained = energy(all, any_width);
    std::vector<double> kernels = all;
    kernels[EnergySums::idle_column] = 0;
    const bool apart = sums_->columns.kernels().empty() || totals.idle_time.count() == 0 ||
                       energy(kernels).resolved;
    totals.kernels = apart ? energy(kernels, any_width) : explained;
    if (apart) totals.idle = energy(idle_seconds(), any_width);
    totals.unexplained = totals.counter - totals.kernels.joules - totals.idle.joules;
    // The counter's own noise counts, too, where the fit has seen through it.
    const double noise = student_95(estimate_->degrees_of_freedom()) *
                         std::sqrt(std::max(estimate_->total_variance(), 0.0));
    totals.unexplained_half_width = {std::max(explained.half_width.count, noise)};
    return totals;
}

inline Attribution Attributing::result() const {
    Attribution result;
    result.totals = totals();
    if (sums_->by_power) result.fit.source = "power samples";
    result.fit.rows = sums_->row_count;
    result.fit.refused_rows = sums_->refused_rows;
    result.fit.scatter = sums_->scatter();
    result.fit.autocorrelation = sums_->rows.autocorrelation();
    const std::vector<KernelId> kernels = sums_->columns.kernels();
    std::vector<std::vector<double>> units;
    for (const KernelId kernel : kernels) {
        units.push_back(sums_->seconds_of(kernel));
        double time = 0;
        for (const double seconds : units.back()) time += seconds;
        result.kernels.push_back({kernel, Seconds{time}, energy(units.back())});
        if (!solved()) continue;
        for (const auto& [applied, column] : sums_->columns.of(kernel)) {
            std::vector<double> seconds(sums_->columns_seen());
            seconds[column] = sums_->seconds(column);
            result.powers.push_back({kernel, applied, Seconds{seconds[column]}, energy(seconds)});
        }
    }
    if (!solved()) return result;
    units.push_back(idle_seconds());
    const SymmetricMatrix spread = covariance(units);
    result.groups = groups(kernels, units, spread);
    result.fit.whitened = estimate_->whitened();
    for (std::size_t a = 0; a < units.size(); ++a) {
        auto& row = result.fit.covariance.emplace_back();
        for (std::size_t b = 0; b < units.size(); ++b) row.push_back(spread(a, b));
    }
    return result;
}

}  // namespace kdvfs::measure
