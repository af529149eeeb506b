// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/tune/cost_estimates.hpp>
#include <kdvfs/detail/tune/cross_validation.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/profile.hpp>

#include <string>
#include <utility>

/// Estimates that do not promise the winner's luck. Whoever picks the best of many noisy means
/// picks lucky ones, and is disappointed later. Estimates are shrunk, and what luck is left in them
/// is found out by planning on simulated measurements.
namespace kdvfs::inline v0_3::tune {
namespace detail {

/// Whether any point was measured more than once, or its error stated.
inline bool reports_noise(const Profile& profile) {
    for (const KernelProfile& kernel : profile.kernels())
        for (const ProfilePoint& point : kernel.points)
            if (point.samples.size() > 1 || point.samples[0].energy_sd.count > 0) return true;
    return false;
}

/// A kernel with an energy that has no logarithm, as a clause; empty where there is none.
inline std::string find_no_energy(const Profile& profile) {
    for (const KernelProfile& kernel : profile.kernels())
        for (const ProfilePoint& point : kernel.points)
            for (const ProfileSample& sample : point.samples)
                if (sample.cost.energy.count <= 0)
                    return to_string(kernel.key) + " has an energy of 0 J at " +
                           to_string(point.clock);
    return {};
}

}  // namespace detail

/// A table of shrunk estimates, with how far its times may be off. Noise is estimated from repeated
/// samples of the same point. Energies that were measured together are estimated together
/// (`BlockTotals`). Times follow what caps can do (`CapLaw`). Energies are told with a credit,
/// and times with margins, so that plans keep on average what they promise (`CrossValidation`).
/// What cannot be shrunk keeps its plain means, and `CostTable::caveat` says why; samples that are
/// all alike are taken as they are.
/// @throws Error as `make_cost_table`
inline CostTable shrunk_costs(const Profile& profile) {
    const auto plain = [&](std::string caveat) {
        CostTable table = mean_costs(profile);
        table.caveat = std::move(caveat);
        return table;
    };
    if (!detail::reports_noise(profile))
        return plain(
            "no point was measured twice, so nothing was shrunk and the bound has no confidence");
    if (const std::string none = detail::find_no_energy(profile); !none.empty())
        return plain(none + ", so nothing was shrunk");
    if (detail::clock_points(profile).size() < detail::fewest_clocks)
        return plain("fewer than three clock points were measured, so nothing was shrunk");
    const detail::Estimates estimates = detail::estimate_costs(profile);
    if (estimates.energy_errors.empty()) return estimates.table;
    const detail::CrossValidation cross_validation{profile, estimates};
    CostTable table = estimates.shrunk(cross_validation.shrinkage());
    table.own_share = cross_validation.own_share();
    return detail::SumMargins::with_share(std::move(table), cross_validation.sum_share());
}

}  // namespace kdvfs::inline v0_3::tune
