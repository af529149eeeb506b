// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/attribution.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace kdvfs::bench {

/// How far attribution was from a known truth, over many seeds.
class Score {
public:
    /// Watts that a kernel under a clock really drew.
    using Truth = std::function<double(KernelId, ClockPoint)>;

    void add(const measure::EnergySums& sums, const Truth& watts, double idle_watts) {
        const auto joules = [&](KernelId kernel) {
            double sum = 0;
            for (const auto& [applied, column] : sums.columns.of(kernel)) {
                sum += watts(kernel, applied) * sums.seconds(column);
            }
            return sum;
        };
        const double idle = idle_watts * sums.seconds(measure::EnergySums::idle_column);
        add_all(
            measure::attribute(sums, {.widest_resolved = std::numeric_limits<double>::infinity()}),
            joules);
        add_told(measure::attribute(sums), joules, idle);
        refused_ += sums.refused_rows;
    }

    /// The joules of a sum of columns against the truth; `whole` is what widths are related to.
    void add_effect(const measure::EnergySums& sums, const std::vector<double>& seconds,
                    double truth, double whole) {
        const auto found = measure::Attributing{sums}.interval(seconds);
        effects_.push_back(found.half_width / whole);
        if (std::abs(found.joules - truth) <= found.half_width) ++effects_covered_;
    }
    [[nodiscard]] double effect_coverage() const {
        return share(effects_covered_, effects_.size());
    }
    [[nodiscard]] double effect_half_width() const { return quantile(effects_, 0.5); }

    /// Relative error of every kernel's energy, told or not.
    [[nodiscard]] double median_error() const { return quantile(errors_, 0.5); }
    [[nodiscard]] double worst_error() const { return quantile(errors_, 1); }
    /// The widest 95 % interval's half-width: what the samples leave open at most.
    [[nodiscard]] double widest_interval() const { return quantile(half_widths_, 1); }
    /// The same of those that are told.
    [[nodiscard]] double median_resolved_error() const { return quantile(resolved_errors_, 0.5); }
    [[nodiscard]] double worst_told_error() const { return quantile(resolved_errors_, 1); }
    /// Share of 95 % intervals that hold the truth: of all kernels; of told kernels and groups.
    [[nodiscard]] double coverage() const { return share(covered_, errors_.size()); }
    [[nodiscard]] double resolved_coverage() const { return share(resolved_covered_, resolved_); }
    [[nodiscard]] double resolved_share() const {
        return share(resolved_errors_.size(), errors_.size());
    }
    [[nodiscard]] double grouped_share() const { return share(grouped_, errors_.size()); }
    /// Largest deviation of a told kernel's or group's interval, in half-widths.
    [[nodiscard]] double farthest() const { return farthest_; }
    [[nodiscard]] std::uint64_t refused() const { return refused_; }
    [[nodiscard]] double worst_unexplained() const { return worst_unexplained_; }

private:
    static double share(std::size_t part, std::size_t whole) {
        return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
    }
    static double quantile(std::vector<double> values, double q) {
        if (values.empty()) return 0;
        std::sort(values.begin(), values.end());
        return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
    }

    template <class Joules>
    void add_all(const measure::Attribution& all, const Joules& joules) {
        for (const auto& kernel : all.kernels) {
            const double truth = joules(kernel.kernel);
            const double error = std::abs(kernel.energy.joules.count - truth);
            errors_.push_back(error / truth);
            half_widths_.push_back(kernel.energy.half_width.count / truth);
            if (error <= kernel.energy.half_width.count) ++covered_;
        }
    }

    template <class Joules>
    void add_told(const measure::Attribution& resolved, const Joules& joules, double idle) {
        for (const auto& kernel : resolved.kernels) {
            if (!kernel.energy.resolved) continue;
            const double truth = joules(kernel.kernel);
            resolved_errors_.push_back(std::abs(kernel.energy.joules.count - truth) / truth);
            judge(kernel.energy, truth);
        }
        for (const auto& group : resolved.groups) {
            double truth = group.with_idle ? idle : 0;
            for (const KernelId kernel : group.kernels) truth += joules(kernel);
            grouped_ += group.kernels.size();
            judge(group.energy, truth);
        }
        worst_unexplained_ = std::max(
            worst_unexplained_, std::abs(resolved.totals.unexplained / resolved.totals.counter));
    }

    void judge(const measure::EnergyEstimate& energy, double truth) {
        const double distance = std::abs(energy.joules.count - truth) / energy.half_width.count;
        ++resolved_;
        if (distance <= 1) ++resolved_covered_;
        farthest_ = std::max(farthest_, distance);
    }

    std::vector<double> errors_;
    std::vector<double> half_widths_;
    std::vector<double> resolved_errors_;
    std::vector<double> effects_;
    std::size_t effects_covered_ = 0;
    std::size_t covered_ = 0;
    std::size_t resolved_ = 0;
    std::size_t resolved_covered_ = 0;
    std::size_t grouped_ = 0;
    double farthest_ = 0;
    double worst_unexplained_ = 0;
    std::uint64_t refused_ = 0;
};

}  // namespace kdvfs::bench
