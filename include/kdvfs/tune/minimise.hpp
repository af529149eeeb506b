// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/knapsack.hpp>
#include <kdvfs/tune/multiple_choice.hpp>
#include <kdvfs/tune/objective.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

namespace kdvfs::tune {

/// A selection and how far from the best it can be.
struct Minimum {
    Selection selection;
    double gap_pct = 0;  ///< of the baseline's score; 0 = proven best
};

namespace detail {

inline Cost to_cost(const Choice& choice) { return {Seconds{choice.time}, Joules{choice.energy}}; }

/// The best selection along a hull walk within a time limit.
struct BestOnWalk {
    std::size_t steps = 0;
    double score = 0;
    bool crossed = false;  ///< the walk goes on beyond the limit
};

inline BestOnWalk best_on_walk(const HullWalk& walk, const Objective& objective,
                               const Cost& baseline, double limit) {
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

}  // namespace detail

/// Finds the selection of least score within the objective's time limit; nothing if there is none.
///
/// Why this is proven: a non-decreasing quasi-concave score takes its minimum over the convex hull
/// of all sums at a corner of the hull's lower left side, every corner is on the hull walk, and
/// every corner is itself a selection. A time limit cuts the hull and adds one corner, where the
/// walk crosses it: its score bounds what the knapsack at the limit may still find.
inline std::optional<Minimum> minimise(const MultipleChoice& problem, const Objective& objective,
                                       const Cost& baseline, const KnapsackEffort& effort = {}) {
    const double limit = time_limit(objective, baseline).count();
    const HullWalk walk{problem};
    if (walk.start().total.time > limit) return std::nullopt;

    const detail::BestOnWalk corner = detail::best_on_walk(walk, objective, baseline, limit);
    Minimum minimum{walk.selection_after(corner.steps), 0};
    if (!corner.crossed) return minimum;

    const auto score = [&](const Choice& choice) {
        return objective.score(detail::to_cost(choice), baseline);
    };
    auto solution = solve_knapsack(problem, walk, limit, effort);
    double best = score(minimum.selection.total);
    if (score(solution->selection.total) < best) {
        minimum.selection = std::move(solution->selection);
        best = score(minimum.selection.total);
    }
    const detail::Crossing crossing = detail::cross(walk, limit);
    const double hull_bound = std::min(corner.score, score({limit, crossing.energy_bound}));
    const double energy_bound = score({walk.start().total.time, solution->energy_bound});
    const double bound = std::min(best, std::max(hull_bound, energy_bound));
    minimum.gap_pct = 100 * (best - bound) / std::abs(objective.score(baseline, baseline));
    return minimum;
}

}  // namespace kdvfs::tune
