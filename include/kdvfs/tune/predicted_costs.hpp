// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/units.hpp>

#include <optional>
#include <vector>

/// Costs at clock points that were not measured, from few that were: for plans without a sweep.
namespace kdvfs::inline v0_3::tune {

/// What is known of a board beside the profile.
struct PredictedBoard {
    std::vector<ClockPoint> clocks;      ///< that a plan may choose
    std::optional<Watts> power_limit{};  ///< nothing where it is not known
    /// What a core clock that is left to the board is; auto: the highest of `clocks`.
    Megahertz highest_core = auto_clock;
};

/// The three clock points that tell most of others, of those that a plan may choose: at 0.9, 0.75
/// and 0.5 of the highest core clock; where the memory clock can be chosen, at 0.85 and 0.55, and
/// at the next memory clock below the baseline's.
KDVFS_INLINE std::vector<ClockPoint> points_to_measure(const PredictedBoard& board,
                                                       ClockPoint baseline);

/// A table with all clocks of a board, from few that were measured; without any but the baseline
/// from what time can depend on at most. `KernelCosts::time_errors` say how far times may be off,
/// so that plans keep their bounds, and `energy_errors` what savings may be off. Left out are
/// memory clocks that were not measured, clocks above the baseline, and those below the lowest
/// measured one.
/// @throws Error (invalid_input) as `make_cost_table` does
KDVFS_INLINE CostTable predicted_costs(const Profile& profile, const PredictedBoard& board);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/predicted_costs.hpp>
#endif
