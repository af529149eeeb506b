// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kdvfs::tune {

/// What one launch of a kernel is taken to cost at a clock point.
struct PointCost {
    ClockPoint clock;
    Cost cost;
};

/// How far the time of a clock point may be off, as variances of its log.
struct TimeError {
    double variance = 0;
    double with_baseline = 0;  ///< covariance with the time at the baseline
};

/// One kernel as the planner sees it.
struct KernelCosts {
    KernelKey key;
    std::string group;
    std::uint32_t count = 1;        ///< launches per iteration
    std::vector<PointCost> points;  ///< ascending by clock; each clock once
    std::size_t baseline = 0;       ///< index into `points`
    /// By point; empty where nothing is known of them.
    std::vector<TimeError> time_errors{};

    [[nodiscard]] Cost at(std::size_t point) const { return points[point].cost * count; }

    /// The standard deviation of `at(point).time - factor * at(baseline).time`; 0 where nothing is
    /// known.
    [[nodiscard]] double deviation_of_slowdown(std::size_t point, double factor) const {
        if (time_errors.empty()) return 0;
        const double time = at(point).time.count();
        const double reference = factor * at(baseline).time.count();
        const double variance = time * time * time_errors[point].variance +
                                reference * reference * time_errors[baseline].variance -
                                2 * time * reference * time_errors[point].with_baseline;
        return std::sqrt(std::max(variance, 0.0));
    }
};

/// One estimate per kernel and clock point: what plans are made from. Profiles hold samples; how
/// those become estimates is a choice (`mean_costs` trusts them as they are).
struct CostTable {
    std::string gpu;
    ClockPoint baseline;
    std::vector<KernelCosts> kernels;
    std::string caveat{};  ///< what cannot be known of the estimates, a clause; empty where nothing

    /// The cost of an iteration at the baseline.
    [[nodiscard]] Cost baseline_cost() const {
        Cost sum;
        for (const KernelCosts& kernel : kernels) sum += kernel.at(kernel.baseline);
        return sum;
    }
};

/// A table from a profile, `estimate` turning each `ProfilePoint` of a `KernelProfile` into a cost.
/// Points whose energy is not told are left out; a kernel whose baseline is not told has no other.
/// @throws Error (invalid_input) if there is no kernel, or one lacks the baseline.
template <class Estimate>
CostTable make_cost_table(const Profile& profile, Estimate&& estimate) {
    const KernelProfile* without = profile.find_without_baseline();
    if (profile.kernels().empty() || without != nullptr) {
        throw Error{Errc::invalid_input,
                    {"plan from a profile", without ? to_string(without->key) : profile.gpu(),
                     without ? "it was not measured at the baseline" : "there are no measurements",
                     "measure every kernel at the clocks that the plan is to be compared with"}};
    }
    CostTable table{profile.gpu(), *profile.baseline(), {}, {}};
    table.kernels.reserve(profile.kernels().size());
    for (const KernelProfile& kernel : profile.kernels()) {
        KernelCosts costs{kernel.key, kernel.group, kernel.count, {}, 0, {}};
        // Where the energy of the baseline is not told, there is nothing to compare with.
        const bool planned = kernel.find(table.baseline)->is_told();
        costs.points.reserve(planned ? kernel.points.size() : 1);
        for (const ProfilePoint& point : kernel.points)
            if (point.clock == table.baseline || (planned && point.is_told()))
                costs.points.push_back({point.clock, estimate(kernel, point)});
        std::sort(costs.points.begin(), costs.points.end(),
                  [](const PointCost& a, const PointCost& b) { return a.clock < b.clock; });
        while (costs.points[costs.baseline].clock != table.baseline) ++costs.baseline;
        table.kernels.push_back(std::move(costs));
    }
    return table;
}

/// The table of plain means.
inline CostTable mean_costs(const Profile& profile) {
    return make_cost_table(
        profile, [](const KernelProfile&, const ProfilePoint& point) { return point.mean(); });
}

}  // namespace kdvfs::tune
