// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/cost_table.hpp>

#include <kdvfs/error.hpp>

#include <algorithm>
#include <numbers>
#include <utility>

namespace kdvfs::inline v0_3::tune {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE double deviations(const Objective& objective) {
    double low = 0;
    double high = 8;
    while (high - low > 1e-9) {
        const double middle = 0.5 * (low + high);
        (0.5 * std::erfc(-middle / std::numbers::sqrt2) < objective.confidence ? low : high) =
            middle;
    }
    return low;
}

KDVFS_INLINE Objective with_max_slowdown(Objective objective, double max_slowdown) {
    if (!(max_slowdown >= 0)) {
        throw Error{Errc::invalid_input,
                    {"bound the slowdown of a plan", std::to_string(max_slowdown),
                     "the bound is negative or no number", "give 0 for no slowdown at all"}};
    }
    objective.max_slowdown = max_slowdown;
    return objective;
}

KDVFS_INLINE Objective with_confidence(Objective objective, double confidence) {
    if (!(confidence >= 0.5 && confidence < 1)) {
        throw Error{
            Errc::invalid_input,
            {"bound the slowdown of a plan", "a confidence of " + std::to_string(confidence),
             "it does not lie from 0.5 to below 1",
             "give 0.9, or 0.5 to take estimates as they are"}};
    }
    objective.confidence = confidence;
    return objective;
}

KDVFS_INLINE Objective keep_under(Objective objective, Seconds launch_limit) {
    if (!(launch_limit > Seconds{0})) {
        throw Error{Errc::invalid_input,
                    {"bound the time of a launch", std::to_string(launch_limit.count()) + " s",
                     "the bound is not above zero", "give a time such as 95 ms"}};
    }
    objective.launch_limit = launch_limit;
    return objective;
}

KDVFS_INLINE Objective with_node_power(Objective objective, Watts node) {
    if (!(node.count >= 0) || !std::isfinite(node.count))
        throw Error{Errc::invalid_input,
                    {"plan for a node", std::to_string(node.count) + " W", "no node draws that",
                     "give what it draws beside the GPU"}};
    objective.name += "+node";
    objective.score = [node, score = std::move(objective.score)](const Cost& cost,
                                                                 const Cost& baseline) {
        const auto whole = [node](const Cost& gpu) {
            return Cost{gpu.time, gpu.energy + node * gpu.time};
        };
        return score(whole(cost), whole(baseline));
    };
    return objective;
}

KDVFS_INLINE Objective relaxed_waste(double max_slowdown) {
    Objective waste = with_max_slowdown(minimum_energy(), max_slowdown);
    waste.name = "waste";
    return waste;
}

KDVFS_INLINE Objective energy_delay() {
    return {"edp",
            [](const Cost& cost, const Cost&) { return cost.energy.count * cost.time.count(); }};
}

KDVFS_INLINE Objective energy_delay_squared() {
    return {"ed2p", [](const Cost& cost, const Cost&) {
                return cost.energy.count * cost.time.count() * cost.time.count();
            }};
}

KDVFS_INLINE Objective zeus_cost(double eta, Watts max_power) {
    if (!(eta >= 0 && eta <= 1) || !(max_power.count > 0) || !std::isfinite(max_power.count)) {
        throw Error{Errc::invalid_input,
                    {"plan for the Zeus cost",
                     "eta " + std::to_string(eta) + ", maximum power " +
                         std::to_string(max_power.count) + " W",
                     "eta lies between 0 and 1, the power above 0", ""}};
    }
    return {"zeus", [eta, max_power](const Cost& cost, const Cost&) {
                return eta * cost.energy.count + (1 - eta) * (max_power * cost.time).count;
            }};
}

KDVFS_INLINE Cost KernelCosts::launch(std::size_t point, double many) const {
    Cost cost = points[point].cost;
    if (time_errors.empty() || point == baseline || many <= 0) return cost;
    const Seconds as_found = points[baseline].cost.time;
    cost.time += many * time_deviation(point);
    if (cost.time > as_found && cost.time <= as_found * (1 + as_good_as_none)) cost.time = as_found;
    return cost;
}

KDVFS_INLINE Seconds KernelCosts::time_deviation(std::size_t point) const {
    return time_errors.empty() || point == baseline ? Seconds{0}
                                                    : points[point].cost.time * time_errors[point];
}

KDVFS_INLINE Cost KernelCosts::at(std::size_t point, double many) const {
    return launch(point, many) * count;
}

KDVFS_INLINE Cost CostTable::baseline_cost() const {
    Cost sum;
    for (const KernelCosts& kernel : kernels) sum += kernel.at(kernel.baseline);
    return sum;
}

KDVFS_INLINE CostTable make_cost_table(
    const Profile& profile,
    const std::function<Cost(const KernelProfile& kernel, const ProfilePoint& point)>& estimate) {
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
        const bool planned = kernel.find(table.baseline)->is_resolved();
        costs.points.reserve(planned ? kernel.points.size() : 1);
        for (const ProfilePoint& point : kernel.points)
            if (point.clock == table.baseline || (planned && point.is_resolved()))
                costs.points.push_back({point.clock, estimate(kernel, point)});
        std::sort(costs.points.begin(), costs.points.end(),
                  [](const PointCost& a, const PointCost& b) { return a.clock < b.clock; });
        while (costs.points[costs.baseline].clock != table.baseline) ++costs.baseline;
        table.kernels.push_back(std::move(costs));
    }
    return table;
}

KDVFS_INLINE CostTable mean_costs(const Profile& profile) {
    return make_cost_table(
        profile, [](const KernelProfile&, const ProfilePoint& point) { return point.mean(); });
}

#endif

}  // namespace kdvfs::inline v0_3::tune
