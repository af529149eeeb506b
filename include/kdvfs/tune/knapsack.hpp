// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/knapsack_search.hpp>
#include <kdvfs/tune/multiple_choice.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::tune {

namespace detail {

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

}  // namespace detail

/// Chooses one of each class so that the energy is least within a time limit: the multiple-choice
/// knapsack. Linear relaxation along the hull walk (Sinha and Zoltners, Operations Research 27,
/// 1979), greedy completion, then exact search over what the bound leaves open.
/// Nothing if not even the fastest choices meet the limit. O(n log n) for n choices, plus the
/// search, whose memory `effort` bounds; where it was cut short the bound says so.
inline std::optional<KnapsackSolution> solve_knapsack(const MultipleChoice& problem,
                                                      const HullWalk& walk, double time_limit,
                                                      const KnapsackEffort& effort = {}) {
    if (walk.start().total.time > time_limit) return std::nullopt;
    detail::Crossing crossing = detail::cross(walk, time_limit);
    Selection greedy = crossing.before;
    detail::fill_slack(problem, walk, crossing.steps, time_limit, greedy);
    return detail::KnapsackSearch{
        problem, walk, time_limit, crossing.price, crossing.energy_bound, std::move(greedy), effort}
        .run();
}

}  // namespace kdvfs::tune
