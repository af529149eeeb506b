// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>

#include <vector>

namespace kdvfs::tune {

/// The time-energy frontier of an iteration, kernel by kernel: from the fastest plan to the most
/// frugal, each entry a plan that no other beats in both. Only the corners of the frontier's
/// convex hull are listed; between two of them plans lie close to the line.
inline std::vector<Cost> time_energy_frontier(const CostTable& table) {
    MultipleChoice problem;
    for (const detail::Unit& unit : detail::make_units(table, Aggregate::global))
        problem.add_class(unit.choices);
    const HullWalk walk{problem};
    Choice total = walk.start().total;
    std::vector<Cost> frontier{detail::to_cost(total)};
    for (const HullWalk::Step& step : walk.steps()) {
        total = walk.after(total, step);
        frontier.push_back(detail::to_cost(total));
    }
    return frontier;
}

}  // namespace kdvfs::tune
