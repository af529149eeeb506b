// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/planner.hpp>

#include <kdvfs/detail/solve/knapsack.hpp>
#include <kdvfs/detail/solve/multiple_choice.hpp>
#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

namespace detail {

/// Kernels that share one clock point, and the points that all of them were measured at.
struct Unit {
    std::vector<std::size_t> kernels;
    std::vector<ClockPoint> clocks;
    /// One per clock: seconds and joules per iteration, with the objective's margin for what times
    /// may be off.
    std::vector<solve::Choice> choices;
    std::optional<std::size_t> baseline{};  ///< index into `clocks`; none where it breaks a bound
    Cost baseline_cost{};                   ///< per iteration
};

/// Where a kernel was measured at a clock, as an index into its points; where it was not, the next.
inline std::size_t point_index(const KernelCosts& kernel, ClockPoint clock) {
    const auto point =
        std::lower_bound(kernel.points.begin(), kernel.points.end(), clock,
                         [](const PointCost& a, ClockPoint b) { return a.clock < b; });
    return static_cast<std::size_t>(point - kernel.points.begin());
}

inline solve::Choice to_choice(const Cost& cost) { return {cost.time.count(), cost.energy.count}; }

/// Whether a kernel may run at a point: within the bound of a launch, or nowhere faster.
inline bool is_allowed(const KernelCosts& kernel, const PointCost& point,
                       const Objective& objective) {
    if (keeps_bound(objective, point.cost.time)) return true;
    return std::none_of(kernel.points.begin(), kernel.points.end(),
                        [&](const PointCost& other) { return other.cost.time < point.cost.time; });
}

/// A kernel by itself, at the points that it may run at by what it is estimated to take.
/// @param many by how many deviations times are longer
inline Unit make_unit(const KernelCosts& kernel, std::size_t index, const Objective& objective,
                      double many) {
    Unit unit;
    unit.kernels = {index};
    unit.baseline_cost = kernel.at(kernel.baseline);
    unit.clocks.reserve(kernel.points.size());
    unit.choices.reserve(kernel.points.size());
    for (std::size_t p = 0; p < kernel.points.size(); ++p) {
        if (!is_allowed(kernel, kernel.points[p], objective)) continue;
        if (p == kernel.baseline) unit.baseline = unit.clocks.size();
        unit.clocks.push_back(kernel.points[p].clock);
        unit.choices.push_back(to_choice(kernel.at(p, many)));
    }
    return unit;
}

/// The points that all kernels were measured at and may run at; where there is none, the fastest
/// of those that all were measured at.
inline Unit make_unit(const CostTable& table, std::vector<std::size_t> kernels,
                      const Objective& objective = {}) {
    struct Sum {
        std::size_t measured = 0;
        solve::Choice choice{};
        bool allowed = true;
    };
    std::map<ClockPoint, Sum> sums;
    Unit unit;
    const double many = careful_deviations(objective);
    for (const std::size_t k : kernels) {
        const KernelCosts& kernel = table.kernels[k];
        unit.baseline_cost += kernel.at(kernel.baseline);
        for (std::size_t p = 0; p < kernel.points.size(); ++p) {
            Sum& sum = sums[kernel.points[p].clock];
            ++sum.measured;
            sum.choice += to_choice(kernel.at(p, many));
            sum.allowed = sum.allowed && is_allowed(kernel, kernel.points[p], objective);
        }
    }
    std::erase_if(sums, [&](const auto& entry) { return entry.second.measured != kernels.size(); });
    const auto allowed = [](const auto& entry) { return entry.second.allowed; };
    if (std::none_of(sums.begin(), sums.end(), allowed)) {
        std::min_element(sums.begin(), sums.end(), [](const auto& a, const auto& b) {
            return a.second.choice.time < b.second.choice.time;
        })->second.allowed = true;
    }
    for (const auto& [clock, sum] : sums) {
        if (!sum.allowed) continue;
        if (clock == table.baseline) unit.baseline = unit.clocks.size();
        unit.clocks.push_back(clock);
        unit.choices.push_back(sum.choice);
    }
    unit.kernels = std::move(kernels);
    return unit;
}

/// The clocks that all launches were measured at.
/// @param launches indices into the table's kernels
inline std::vector<ClockPoint> shared_clocks(const CostTable& table,
                                             std::vector<std::size_t> launches) {
    std::sort(launches.begin(), launches.end());
    launches.erase(std::unique(launches.begin(), launches.end()), launches.end());
    return make_unit(table, std::move(launches)).clocks;
}

/// @param objective its bound on launches leaves points out, its confidence makes times longer
inline std::vector<Unit> make_units(const CostTable& table, Aggregate aggregate,
                                    const Objective& objective = {}) {
    std::map<std::string, std::vector<std::size_t>> members;
    std::vector<Unit> units;
    const double many =
        careful_deviations(objective) * (aggregate == Aggregate::local ? table.own_share : 1);
    for (std::size_t k = 0; k < table.kernels.size(); ++k) {
        if (aggregate == Aggregate::local || aggregate == Aggregate::global)
            units.push_back(make_unit(table.kernels[k], k, objective, many));
        else
            members[aggregate == Aggregate::per_group ? table.kernels[k].group : ""].push_back(k);
    }
    for (auto& [group, kernels] : members)
        units.push_back(make_unit(table, std::move(kernels), objective));
    return units;
}

/// What each unit runs at, as indices into its clocks, and the gap of that choice.
struct Decision {
    std::vector<std::size_t> chosen;
    double gap_pct = 0;
};

inline std::size_t fastest(const Unit& unit) {
    const auto found =
        std::min_element(unit.choices.begin(), unit.choices.end(),
                         [](const auto& a, const auto& b) { return a.time < b.time; });
    return static_cast<std::size_t>(found - unit.choices.begin());
}

/// The best of one clock for several units within the time limit; nothing where there is none.
inline std::optional<solve::Selection> one_clock(const std::vector<Unit>& units,
                                                 const Objective& objective, const Cost& baseline) {
    std::optional<solve::Selection> best;
    if (units.size() < 2) return best;
    double least = std::numeric_limits<double>::infinity();
    for (const ClockPoint clock : units.front().clocks) {
        solve::Selection all;
        for (const Unit& unit : units) {
            const auto found = std::lower_bound(unit.clocks.begin(), unit.clocks.end(), clock);
            if (found == unit.clocks.end() || *found != clock) break;
            const auto index = static_cast<std::uint32_t>(found - unit.clocks.begin());
            all.chosen.push_back(index);
            all.total += unit.choices[index];
        }
        if (all.chosen.size() != units.size()) continue;
        const Cost cost = kdvfs::detail::to_cost(all.total);
        const double score = objective.score(cost, baseline);
        if (cost.time > time_limit(objective, baseline) || score >= least) continue;
        least = score;
        best = std::move(all);
    }
    return best;
}

inline Decision decide(const std::vector<Unit>& units, const Objective& objective,
                       const Cost& baseline, const solve::KnapsackEffort& effort = {}) {
    kdvfs::detail::MultipleChoice problem;
    Decision decision;
    bool may_stay = true;
    std::size_t choices = 0;
    for (const Unit& unit : units) choices += unit.choices.size();
    problem.reserve(units.size(), choices);
    for (const Unit& unit : units) {
        problem.add_class(unit.choices);
        may_stay = may_stay && unit.baseline.has_value();
        decision.chosen.push_back(unit.baseline.value_or(fastest(unit)));
    }
    auto minimum = kdvfs::detail::minimise(problem, objective, baseline, effort);
    if (!minimum) return decision;
    const auto score = [&](const solve::Selection& selection) {
        return objective.score(kdvfs::detail::to_cost(selection.total), baseline);
    };
    const double as_found = objective.score(baseline, baseline);
    // No plan of many clocks is worse than the best of one.
    if (auto one = one_clock(units, objective, baseline);
        one && score(*one) < score(minimum->selection)) {
        const double better = score(minimum->selection) - score(*one);
        minimum->gap_pct = std::max(0.0, minimum->gap_pct - 100 * better / std::abs(as_found));
        minimum->selection = std::move(*one);
    }
    // Where nothing is better than the baseline, the board is left alone, unless that is too slow.
    if (!may_stay || score(minimum->selection) < as_found) {
        decision.chosen.assign(minimum->selection.chosen.begin(), minimum->selection.chosen.end());
    }
    decision.gap_pct = minimum->gap_pct;
    return decision;
}

/// Every unit by itself; the gap is the widest of theirs.
inline Decision decide_each(const std::vector<Unit>& units, const Objective& objective) {
    Decision decision;
    for (const Unit& unit : units) {
        const Decision own = decide({unit}, objective, unit.baseline_cost);
        decision.chosen.push_back(own.chosen.front());
        decision.gap_pct = std::max(decision.gap_pct, own.gap_pct);
    }
    return decision;
}

/// `Plan::predicted_within`. Errors of kernels add up: they are off alike.
inline std::optional<double> predicted_within(const CostTable& table, const Objective& objective,
                                              const Plan& plan) {
    double off = 0;
    bool is_predicted = false;
    for (std::size_t k = 0; k < table.kernels.size(); ++k) {
        const KernelCosts& kernel = table.kernels[k];
        is_predicted = is_predicted || !kernel.energy_errors.empty();
        for (std::size_t p = 0; p < kernel.energy_errors.size(); ++p)
            if (kernel.points[p].clock == plan.kernels[k].clock)
                off += kernel.at(p).energy.count * kernel.energy_errors[p];
    }
    if (!is_predicted) return std::nullopt;
    return 100 * deviations(objective) * off / plan.baseline.energy.count;
}

inline Plan to_plan(const CostTable& table, const Objective& objective, Aggregate aggregate,
                    const std::vector<Unit>& units, const Decision& decision) {
    Plan plan{table.gpu,
              objective.name,
              aggregate,
              objective.max_slowdown,
              objective.launch_limit,
              table.baseline,
              table.baseline_cost(),
              {},
              decision.gap_pct,
              {},
              std::nullopt};
    plan.kernels.resize(table.kernels.size());
    for (std::size_t u = 0; u < units.size(); ++u) {
        const ClockPoint clock = units[u].clocks[decision.chosen[u]];
        for (const std::size_t k : units[u].kernels) {
            const KernelCosts& kernel = table.kernels[k];
            plan.kernels[k] = {kernel.key, kernel.count, clock, kernel.points[kernel.baseline].cost,
                               kernel.points[point_index(kernel, clock)].cost};
        }
    }
    for (const PlannedKernel& kernel : plan.kernels)
        plan.expected += kernel.expected * kernel.count;
    plan.predicted_within = predicted_within(table, objective, plan);
    return plan;
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE const Plan& Plans::operator[](Aggregate aggregate) const {
    switch (aggregate) {
        case Aggregate::single: return single;
        case Aggregate::per_group: return per_group;
        case Aggregate::local: return local;
        case Aggregate::global: return global;
        case Aggregate::automatic: break;
    }
    return automatic;
}

KDVFS_INLINE Plan make_plan(const CostTable& table, const Objective& objective, Aggregate aggregate,
                            const solve::KnapsackEffort& effort) {
    const bool bounded = aggregate != Aggregate::automatic;
    const std::vector<detail::Unit> units =
        detail::make_units(table, aggregate, bounded ? objective : Objective{});
    detail::Decision decision;
    if (aggregate == Aggregate::automatic) {
        for (const detail::Unit& unit : units) decision.chosen.push_back(*unit.baseline);
    } else if (aggregate == Aggregate::local) {
        decision = detail::decide_each(units, objective);
    } else {
        decision = detail::decide(units, objective, table.baseline_cost(), effort);
    }
    return detail::to_plan(table, objective, aggregate, units, decision);
}

KDVFS_INLINE Plans make_plans(const CostTable& table, const Objective& objective) {
    return {make_plan(table, objective, Aggregate::automatic),
            make_plan(table, objective, Aggregate::single),
            make_plan(table, objective, Aggregate::per_group),
            make_plan(table, objective, Aggregate::local),
            make_plan(table, objective, Aggregate::global)};
}

#endif

}  // namespace kdvfs::inline v0_3::tune
