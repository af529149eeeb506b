// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/profile.hpp>

/// Estimates that do not promise the winner's luck. Whoever picks the best of many noisy means
/// picks lucky ones, and is disappointed later. Estimates are shrunk, and what luck is left in them
/// is found out by planning on simulated measurements.
namespace kdvfs::inline v0_3::tune {

/// A table of shrunk estimates, with how far its times may be off. Noise is estimated from repeated
/// samples of the same point. Energies that were measured together are estimated together
/// (`BlockTotals`). Times follow what caps can do (`CapLaw`). Energies get a credit
/// (`CrossValidation`), so that plans keep on average what they promise. What cannot be shrunk
/// keeps its plain means, and `CostTable::caveat` says why; samples that are all alike are taken as
/// they are.
/// @throws Error as `make_cost_table`
KDVFS_INLINE CostTable shrunk_costs(const Profile& profile);

/// The profile, with kernels whose energy the counter could not resolve taken to draw at each clock
/// what they draw at the baseline, where the board's mean is taken if that is not resolved either.
/// Nothing is gained by such kernels then, but plans need not go back to the baseline for one that
/// is short: they are judged while they are followed.
KDVFS_INLINE Profile with_likely_energies(const Profile& profile);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/shrinkage.hpp>
#endif
