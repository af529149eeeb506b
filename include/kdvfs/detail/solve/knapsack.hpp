// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/solve/knapsack_search.hpp>
#include <kdvfs/detail/solve/multiple_choice.hpp>
#include <kdvfs/tune/objective.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::detail {

/// Where a hull walk crosses a time limit.
struct Crossing {
    Selection before;         ///< the last selection of the walk within the limit
    std::size_t steps = 0;    ///< the steps that `before` took
    double price = 0;         ///< of the step that would cross, 0 if none would
    double energy_bound = 0;  ///< of the linear relaxation: part of that step
};

inline Crossing cross(const HullWalk& walk, double time_limit) {
    Choice total = walk.start().total;
    std::size_t count = 0;
    for (const HullWalk::Step& step : walk.steps()) {
        const Choice next = walk.after(total, step);
        if (next.time > time_limit) break;
        total = next;
        ++count;
    }
    Crossing crossing{walk.selection_after(count), count, 0, 0};
    crossing.energy_bound = crossing.before.total.energy;
    if (count < walk.steps().size()) {
        crossing.price = walk.steps()[count].price;
        const double slack = std::max(0.0, time_limit - crossing.before.total.time);
        crossing.energy_bound -= crossing.price * slack;
    }
    return crossing;
}

/// Fills what is left of the time limit with later steps of the walk that still fit.
inline void fill_slack(const MultipleChoice& problem, const HullWalk& walk, std::size_t first,
                       double time_limit, Selection& selection) {
    for (std::size_t k = first; k < walk.steps().size(); ++k) {
        const HullWalk::Step& step = walk.steps()[k];
        const Choice& now = problem[step.of_class][selection.chosen[step.of_class]];
        const Choice& then = problem[step.of_class][step.to];
        if (then.energy < now.energy && selection.total.time - now.time + then.time <= time_limit) {
            selection.total -= now;
            selection.total += then;
            selection.chosen[step.of_class] = step.to;
        }
    }
    selection.total = sum_of(problem, selection.chosen);
}

/// Chooses one of each class so that the energy is least within a time limit: the multiple-choice
/// knapsack. Linear relaxation along the hull walk (Sinha and Zoltners, Operations Research 27,
/// 1979), greedy completion, then exact search over what the bound leaves open.
/// Nothing if not even the fastest choices meet the limit. O(n log n) for n choices, plus the
/// search, whose memory `effort` bounds; where it was cut short the bound says so.
inline std::optional<KnapsackSolution> solve_knapsack(const MultipleChoice& problem,
                                                      const HullWalk& walk, double time_limit,
                                                      const KnapsackEffort& effort = {}) {
    if (walk.start().total.time > time_limit) return std::nullopt;
    Crossing crossing = cross(walk, time_limit);
    Selection greedy = crossing.before;
    fill_slack(problem, walk, crossing.steps, time_limit, greedy);
    return KnapsackSearch{
        problem, walk, time_limit, crossing.price, crossing.energy_bound, std::move(greedy), effort}
        .run();
}

/// A selection and how far from the best it can be.
struct Minimum {
    Selection selection;
    double gap_pct = 0;  ///< of the baseline's score; 0 = proven best
};

inline tune::Cost to_cost(const Choice& choice) {
    return {Seconds{choice.time}, Joules{choice.energy}};
}

/// The best selection along a hull walk within a time limit.
struct BestOnWalk {
    std::size_t steps = 0;
    double score = 0;
    bool crossed = false;  ///< the walk goes on beyond the limit
};

inline BestOnWalk best_on_walk(const HullWalk& walk, const tune::Objective& objective,
                               const tune::Cost& baseline, double limit) {
    Choice total = walk.start().total;
    BestOnWalk best{0, objective.score(to_cost(total), baseline), false};
    std::size_t count = 0;
    for (const HullWalk::Step& step : walk.steps()) {
        total = walk.after(total, step);
        ++count;
        if (total.time > limit) return {best.steps, best.score, true};
        const double score = objective.score(to_cost(total), baseline);
        if (score < best.score) best = {count, score, false};
    }
    return best;
}

/// Finds the selection of least score within the objective's time limit; nothing if there is none.
///
/// Why this is proven: a non-decreasing quasi-concave score takes its minimum over the convex hull
/// of all sums at a corner of the hull's lower left side, every corner is on the hull walk, and
/// every corner is itself a selection. A time limit cuts the hull and adds one corner, where the
/// walk crosses it: its score bounds what the knapsack at the limit may still find.
inline std::optional<Minimum> minimise(const MultipleChoice& problem,
                                       const tune::Objective& objective, const tune::Cost& baseline,
                                       const KnapsackEffort& effort = {}) {
    const double limit = time_limit(objective, baseline).count();
    const HullWalk walk{problem};
    if (walk.start().total.time > limit) return std::nullopt;

    const BestOnWalk corner = best_on_walk(walk, objective, baseline, limit);
    Minimum minimum{walk.selection_after(corner.steps), 0};
    if (!corner.crossed) return minimum;

    const auto score = [&](const Choice& choice) {
        return objective.score(to_cost(choice), baseline);
    };
    auto solution = solve_knapsack(problem, walk, limit, effort);
    double best = score(minimum.selection.total);
    if (score(solution->selection.total) < best) {
        minimum.selection = std::move(solution->selection);
        best = score(minimum.selection.total);
    }
    const Crossing crossing = cross(walk, limit);
    const double hull_bound = std::min(corner.score, score({limit, crossing.energy_bound}));
    const double energy_bound = score({walk.start().total.time, solution->energy_bound});
    const double bound = std::min(best, std::max(hull_bound, energy_bound));
    minimum.gap_pct = 100 * (best - bound) / std::abs(objective.score(baseline, baseline));
    return minimum;
}

}  // namespace kdvfs::detail
