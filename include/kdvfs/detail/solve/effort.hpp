// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>

#include <cstddef>

namespace kdvfs::inline v0_3::solve {

/// How hard `solve_knapsack` tries.
struct KnapsackEffort {
    double good_enough = 1e-6;         ///< relative gap that ends the search once patience is out
    std::size_t patience = 30'000;     ///< partial solutions looked at whatever the gap
    std::size_t states = 32'768;       ///< partial solutions kept at a time, at most
    std::size_t open_classes = 2'000;  ///< more undecided classes than that are left as they are
    /// Partial solutions kept of all classes, at most, of 8 bytes each: with many undecided
    /// classes, fewer of each.
    std::size_t all_states = std::size_t{1} << 22U;
};

/// How much work the search for the best schedule may take. Counted, not timed: plans repeat.
struct ScheduleEffort {
    double tolerance = 1e-5;        ///< relative, of the cheapest schedule at given prices
    std::size_t own_laps = 4;       ///< start clocks that get a lap of their own at a price
    std::size_t work = 60'000'000;  ///< requests looked at by the label search, in all
    double good_enough = 1e-4;      ///< gap, relative to the energy, that ends the search
};

}  // namespace kdvfs::inline v0_3::solve
