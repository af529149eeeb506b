// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/limited_plan.hpp>

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/tune/limit_search.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <cmath>

namespace kdvfs::inline v0_3::tune {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE LimitedPlan plan_at_limit(const CostTable& table,
                                       const std::vector<std::size_t>& launches,
                                       const SwitchCosts& costs,
                                       const device::PowerLimiter& limiter,
                                       const LimitObjective& objective) {
    if (!(limiter.limit.count > 0 && limiter.rate > 0 && limiter.top_mhz > 0))
        throw Error{Errc::invalid_input,
                    {"plan at the power limit", table.gpu,
                     "the limiter's limit, rate or highest clock is not above zero",
                     "take the limit from the board and the rate from PowerLimiter"}};
    const SwitchModel model{table, launches, costs};
    const std::size_t baseline = model.index_of(table.baseline);
    detail::LimitSearch search{model, costs, limiter, objective, baseline};
    search.search();
    const Cost found = search.found().held;
    const auto goal = [&](const Cost& cost) { return search.goal(cost); };
    detail::LimitedSchedule chosen = search.best();
    LimitedPlan plan;
    SegmentPlan& segments = plan.segments;
    const double gain_pct = 100 * (goal(search.single().held) - goal(chosen.held)) / goal(found);
    if (chosen.schedule.requests.empty()) {
        segments.reason = "no switch pays at this limit";
    } else if (gain_pct < objective.worthwhile_pct) {
        segments.reason = "several clocks gain less than the " +
                          kdvfs::detail::to_text(objective.worthwhile_pct) + " % that count";
        chosen = search.single();
    }
    segments.gpu = table.gpu;
    segments.objective = objective.goal == LimitGoal::least_time ? "time at the power limit"
                                                                 : "energy at the power limit";
    if (objective.goal == LimitGoal::least_energy) segments.max_slowdown = objective.max_slowdown;
    segments.baseline_clock = table.baseline;
    segments.baseline = found;
    segments.expected = chosen.held;
    segments.gap_pct = 100 * std::max(0.0, goal(chosen.held) - search.bound()) / goal(found);
    segments.single = search.single().held;
    segments.single_clock = model.clocks()[search.single().schedule.start];
    segments.without_latency = chosen.held;
    segments.segments = detail::to_segments(model, chosen.schedule);
    segments.sequence = detail::to_sequence(segments, table, launches);
    plan.bound_pct = 100 * (search.bound() / goal(found) - 1);
    plan.found_power = Watts{found.energy / found.time};
    plan.at_limit = plan.found_power.count > limiter.limit.count * (1 - at_limit_within);
    plan.if_higher = search.higher().saving(chosen.schedule);
    plan.if_lower = search.lower().saving(chosen.schedule);
    return plan;
}

KDVFS_INLINE std::vector<double> clocks_at_limit(std::span<const PowerByClock> kernels,
                                                 const PowerByClock& idle,
                                                 std::span<const LimitedRun> runs,
                                                 const device::PowerLimiter& limiter) {
    constexpr Seconds longest_step{1e-3};
    device::ClockCeiling ceiling{limiter};
    const auto pass = [&](const PowerByClock& power, Seconds time) {
        const double steps = std::max(1.0, std::ceil(time / longest_step));
        double sum = 0;
        for (double i = 0; i < steps; ++i) {
            sum += ceiling.mhz();
            ceiling.pass(limiter, power(ceiling.mhz()), time / steps);
        }
        return sum / steps;
    };
    std::vector<double> clocks;
    for (const LimitedRun& run : runs) {
        if (run.rest > Seconds{0}) pass(idle, run.rest);
        clocks.push_back(pass(kernels[run.kernel], run.time));
    }
    return clocks;
}

KDVFS_INLINE device::PowerLimiter fit_limiter(
    std::span<const PowerByClock> kernels, const PowerByClock& idle,
    std::span<const LimitedRun> runs, device::PowerLimiter limiter,
    const std::function<bool(const LimitedRun&)>& counts) {
    if (std::none_of(runs.begin(), runs.end(), counts))
        throw Error{Errc::invalid_input,
                    {"find how fast a power limit acts", "the runs", "none is at the limit",
                     "run a kernel that draws more than the limit, for 20 ms to some seconds"}};
    const auto error = [&](double log_rate) {
        limiter.rate = std::exp(log_rate);
        const std::vector<double> clocks = clocks_at_limit(kernels, idle, runs, limiter);
        double sum = 0;
        for (std::size_t i = 0; i < runs.size(); ++i)
            if (counts(runs[i])) sum += std::abs(clocks[i] / runs[i].mhz - 1);
        return sum;
    };
    const double low = std::log(0.3);
    const double high = std::log(100.0);
    constexpr int coarse = 30;
    double best = low;
    double least = error(low);
    double step = (high - low) / coarse;
    for (int i = 1; i <= coarse; ++i)
        if (const double its = error(low + i * step); its < least)
            least = its, best = low + i * step;
    for (step /= 2; step > 1e-3; step /= 2)
        for (const double other : {best - step, best + step})
            if (const double its = error(other); its < least) least = its, best = other;
    limiter.rate = std::exp(best);
    return limiter;
}

#endif

}  // namespace kdvfs::inline v0_3::tune
