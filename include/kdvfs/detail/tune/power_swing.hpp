// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/power_swing.hpp>

#include <kdvfs/tune/cost_table.hpp>

#include <gsl/assert>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kdvfs::inline v0_3::tune {

namespace detail {

/// The energy from the beginning of an iteration that repeats, at any time.
class EnergyByTime {
public:
    explicit EnergyByTime(std::span<const PowerStep> steps) {
        for (const PowerStep& step : steps) {
            if (step.length <= Seconds{0}) continue;
            begins_.push_back(period_);
            energies_.push_back(total_);
            powers_.push_back(step.power.count);
            period_ += step.length.count();
            total_ += step.power.count * step.length.count();
        }
    }

    [[nodiscard]] const std::vector<double>& begins() const { return begins_; }
    [[nodiscard]] double period() const { return period_; }
    [[nodiscard]] double total() const { return total_; }
    [[nodiscard]] double at(double time) const {
        const double whole = std::floor(time / period_);
        const double within = std::clamp(time - whole * period_, 0.0, period_);
        const auto after = std::upper_bound(begins_.begin(), begins_.end(), within);
        const auto step = static_cast<std::size_t>(after - begins_.begin()) - 1;
        return whole * total_ + energies_[step] + (within - begins_[step]) * powers_[step];
    }

private:
    std::vector<double> begins_;
    std::vector<double> energies_;
    std::vector<double> powers_;
    double period_ = 0;
    double total_ = 0;
};

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE PowerSwing power_swing(std::span<const PowerStep> steps, Seconds window) {
    Expects(window > Seconds{0});
    const detail::EnergyByTime energy{steps};
    if (energy.begins().empty()) return {};
    const double width = window.count();
    std::vector<double> times;
    for (const double begin : energy.begins())
        for (const double time : {begin, begin + width})
            times.push_back(time - energy.period() * std::floor(time / energy.period()));
    std::sort(times.begin(), times.end());
    const auto mean = [&](double end) { return (energy.at(end) - energy.at(end - width)) / width; };
    PowerSwing swing{{energy.total() / energy.period()}, {mean(times[0])}, {mean(times[0])}, 0};
    times.push_back(times.front() + energy.period());
    double before = swing.lowest.count;
    for (std::size_t i = 1; i < times.size(); ++i) {
        const double now = mean(times[i]);
        swing.lowest.count = std::min(swing.lowest.count, now);
        swing.highest.count = std::max(swing.highest.count, now);
        // Two times that differ by rounding alone have no slope.
        const double length = times[i] - times[i - 1];
        if (length > 1e-9 * energy.period())
            swing.steepest_w_per_ms =
                std::max(swing.steepest_w_per_ms, std::abs(now - before) / length * 1e-3);
        before = now;
    }
    return swing;
}

KDVFS_INLINE std::vector<PowerStep> sum_power(std::span<const std::vector<PowerStep>> parts) {
    struct Change {
        double time;
        double power;
    };
    std::vector<Change> changes;
    double longest = 0;
    for (const std::vector<PowerStep>& part : parts) {
        double time = 0;
        for (const PowerStep& step : part) {
            changes.push_back({time, step.power.count});
            time += step.length.count();
            changes.push_back({time, -step.power.count});
        }
        longest = std::max(longest, time);
    }
    std::sort(changes.begin(), changes.end(),
              [](const Change& a, const Change& b) { return a.time < b.time; });
    std::vector<PowerStep> sum;
    double power = 0;
    for (std::size_t i = 0; i < changes.size(); ++i) {
        power += changes[i].power;
        const double end = i + 1 < changes.size() ? changes[i + 1].time : longest;
        if (end > changes[i].time) sum.push_back({Seconds{end - changes[i].time}, {power}});
    }
    return sum;
}

KDVFS_INLINE std::vector<PowerStep> power_over_iteration(const Plan& plan) {
    std::vector<PowerStep> steps;
    for (const PlannedKernel& kernel : plan.kernels)
        steps.push_back({kernel.expected.time * static_cast<double>(kernel.count),
                         kernel.expected.energy / kernel.expected.time});
    return steps;
}

KDVFS_INLINE std::vector<CappedIteration> lower_ranges(const Plan& plan, const CostTable& table,
                                                       Seconds window) {
    std::vector<PowerStep> steps = power_over_iteration(plan);
    double highest = 0;
    for (const PowerStep& step : steps) highest = std::max(highest, step.power.count);
    const auto below = [](const KernelCosts& kernel, double cap) {
        const PointCost* found = nullptr;
        const auto watts = [](const PointCost& point) {
            return (point.cost.energy / point.cost.time).count;
        };
        for (const PointCost& point : kernel.points) {
            const bool fits = watts(point) <= cap;
            if (found == nullptr || (fits && watts(*found) > cap) ||
                (fits ? point.cost.time < found->cost.time
                      : watts(*found) > cap && watts(point) < watts(*found)))
                found = &point;
        }
        return found->cost;
    };
    std::vector<CappedIteration> rows;
    for (int row = 0; row < swing_caps; ++row) {
        const double cap = highest * (1 - swing_cap_step * row);
        Seconds time{0};
        for (std::size_t k = 0; k < steps.size(); ++k) {
            const auto kernel = std::find_if(
                table.kernels.begin(), table.kernels.end(),
                [&](const KernelCosts& each) { return each.key == plan.kernels[k].key; });
            if (steps[k].power.count > cap && kernel != table.kernels.end()) {
                const Cost cost = below(*kernel, cap);
                steps[k] = {cost.time * static_cast<double>(plan.kernels[k].count),
                            cost.energy / cost.time};
            }
            time += steps[k].length;
        }
        rows.push_back({{cap}, time, power_swing(steps, window)});
    }
    return rows;
}

#endif

}  // namespace kdvfs::inline v0_3::tune
