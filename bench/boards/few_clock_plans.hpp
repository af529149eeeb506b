// SPDX-License-Identifier: MIT
#pragma once

#include <bench/boards/saving_programs.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/predicted_costs.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

/// Plans from few clock points, judged by whole sweeps.
namespace savings {

/// What plans kept and saved.
struct FewClockScore {
    int programs = 0;
    int kept = 0;          ///< within their bound
    int promised = 0;      ///< saved what was promised at least
    double saved_pct = 0;  ///< sums over programs
    double swept_pct = 0;  ///< by the best plan from the whole sweep
    double worst_time_pct = 0;

    [[nodiscard]] double kept_pct() const { return 100.0 * kept / programs; }
    [[nodiscard]] double promised_pct() const { return 100.0 * promised / programs; }
    [[nodiscard]] double part_pct() const {
        return swept_pct > 0 ? 100 * saved_pct / swept_pct : 100;
    }

    FewClockScore& operator+=(const FewClockScore& other) {
        programs += other.programs;
        kept += other.kept;
        promised += other.promised;
        saved_pct += other.saved_pct;
        swept_pct += other.swept_pct;
        worst_time_pct = std::max(worst_time_pct, other.worst_time_pct);
        return *this;
    }
};

/// The costs of a program at all clocks of the sweep; it takes a second as found.
inline kdvfs::tune::CostTable swept_costs(const Sweep& sweep, const Mix& mix) {
    namespace tune = kdvfs::tune;
    const double joules = mix.power_share() * sweep.limit_watts;
    tune::CostTable table{"board", sweep.as_found, {}, {}};
    for (const Mix::Part& part : mix.parts()) {
        tune::KernelCosts kernel;
        kernel.key.name = "kernel_" + std::to_string(table.kernels.size());
        for (std::size_t c = 0; c < sweep.clocks.size(); ++c)
            kernel.points.push_back({sweep.clocks[c],
                                     {kdvfs::Seconds{part.time * part.kernel->time[c]},
                                      {joules * part.energy * part.kernel->energy[c]}}});
        std::sort(kernel.points.begin(), kernel.points.end(),
                  [](const auto& a, const auto& b) { return a.clock < b.clock; });
        while (kernel.points[kernel.baseline].clock != sweep.as_found) ++kernel.baseline;
        table.kernels.push_back(std::move(kernel));
    }
    return table;
}

/// The rows of some clocks and of those as found.
inline kdvfs::tune::Profile rows_at(const kdvfs::tune::CostTable& costs,
                                    const std::vector<kdvfs::ClockPoint>& clocks) {
    kdvfs::tune::Profile profile{costs.gpu};
    for (const kdvfs::tune::KernelCosts& kernel : costs.kernels)
        for (const auto& [clock, cost] : kernel.points)
            if (clock == costs.baseline ||
                std::find(clocks.begin(), clocks.end(), clock) != clocks.end()) {
                kdvfs::tune::ProfileRow row{kernel.key, clock, cost};
                row.is_baseline = clock == costs.baseline;
                profile.add(row);
            }
    return profile;
}

/// What a plan's clocks cost by a table.
inline kdvfs::tune::Cost cost_of(const kdvfs::tune::Plan& plan,
                                 const kdvfs::tune::CostTable& costs) {
    kdvfs::tune::Cost sum;
    for (std::size_t k = 0; k < plan.kernels.size(); ++k)
        for (const auto& [clock, cost] : costs.kernels[k].points)
            if (clock == plan.kernels[k].clock) sum += cost;
    return sum;
}

/// The clock points that are known beside those as found: so many of `points_to_measure`. One is
/// the middle one, two are the first and the last of core clocks.
inline std::vector<kdvfs::ClockPoint> known_points(const Sweep& sweep, std::size_t points) {
    std::vector<kdvfs::ClockPoint> all = kdvfs::tune::points_to_measure(
        {sweep.clocks, std::nullopt, sweep.highest_core}, sweep.as_found);
    if (points == 1) return {all.at(1)};
    all.resize(std::min(points, all.size()));
    return all;
}

inline FewClockScore judge_few_clocks(const Sweep& sweep, std::size_t points, double bound_pct,
                                      int programs) {
    namespace tune = kdvfs::tune;
    const tune::PredictedBoard board{sweep.clocks, kdvfs::Watts{sweep.limit_watts},
                                     sweep.highest_core};
    const std::vector<kdvfs::ClockPoint> known = known_points(sweep, points);
    const tune::Objective objective = tune::relaxed_waste(bound_pct / 100);
    constexpr kdvfs::detail::KnapsackEffort little{1e-4, 0};
    FewClockScore score;
    std::mt19937_64 random{17};
    for (; score.programs < programs; ++score.programs) {
        const tune::CostTable truth = swept_costs(sweep, Mix{sweep, random});
        const tune::CostTable predicted = tune::predicted_costs(rows_at(truth, known), board);
        const tune::Plan plan = make_plan(predicted, objective, tune::Aggregate::global, little);
        const tune::Plan best = make_plan(truth, objective, tune::Aggregate::global, little);
        const tune::Cost cost = cost_of(plan, truth);
        const double time = time_percent(cost, plan.baseline);
        const double energy = energy_percent(cost, plan.baseline);
        score.kept += time <= bound_pct + 1e-6 ? 1 : 0;
        score.promised += energy <= plan.energy_pct() + *plan.predicted_within + 0.01 ? 1 : 0;
        score.worst_time_pct = std::max(score.worst_time_pct, time);
        score.saved_pct -= energy;
        score.swept_pct -= best.energy_pct();
    }
    return score;
}

}  // namespace savings
