// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/tune/block_totals.hpp>
#include <kdvfs/detail/tune/cap_law.hpp>
#include <kdvfs/detail/tune/clock_curves.hpp>
#include <kdvfs/detail/tune/curve_estimate.hpp>
#include <kdvfs/detail/tune/sample_noise.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/profile.hpp>

#include <Eigen/Core>

#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

/// Estimates of what kernels cost at each clock point, from all samples together.
namespace kdvfs::inline v0_3::tune::detail {

/// The logs of all samples, by kernel and point.
struct ProfileLogs {
    std::vector<KernelSamples> times;
    std::vector<KernelSamples> energies;
    double time_level = 0;    ///< what `remove_levels` found
    double energy_level = 0;  ///< likewise; levels stay where totals of blocks have them, too

    /// @pre energies above zero
    ProfileLogs(const Profile& profile, const std::vector<ClockPoint>& clocks) {
        for (const KernelProfile& kernel : profile.kernels()) {
            auto& time = times.emplace_back().at;
            auto& energy = energies.emplace_back().at;
            time.resize(clocks.size());
            energy.resize(clocks.size());
            for (const ProfilePoint& point : kernel.points) {
                const std::size_t at = index_of(clocks, point.clock);
                for (const ProfileSample& sample : point.samples) {
                    const double stated = sample.energy_sd / sample.cost.energy;
                    time[at].push_back({std::log(sample.cost.time.count()), 0, 0, sample.index});
                    energy[at].push_back({std::log(sample.cost.energy.count), stated * stated,
                                          stated * stated, sample.index});
                }
            }
        }
        time_level = remove_levels(times);
        if (profile.blocks().empty()) energy_level = remove_levels(energies);
    }
};

/// By kernel; none where there is no noise to judge by.
inline std::vector<CurveEstimate> estimate_energies(QuantityShrinkage& energy,
                                                    const std::vector<const SamePoints*>& maps,
                                                    std::vector<BlockTotal> blocks) {
    std::vector<CurveEstimate> found;
    if (!energy.has_noise()) return found;
    for (std::size_t k = 0; k < maps.size(); ++k) found.push_back(energy.estimate(k, *maps[k]));
    if (blocks.empty()) return found;
    std::vector<bool> in_blocks(maps.size());
    for (const BlockTotal& block : blocks)
        for (const BlockTotal::Member& member : block.members) in_blocks[member.kernel] = true;
    std::vector<EnergyCurve> curves;
    for (std::size_t k = 0; k < found.size(); ++k)
        curves.push_back({found[k].mean, in_blocks[k] ? *found[k].covariance : Eigen::MatrixXd{}});
    BlockTotals{std::move(blocks), maps.size()}.apply_to(curves);
    for (std::size_t k = 0; k < found.size(); ++k) {
        if (!in_blocks[k]) continue;
        found[k].mean = std::move(curves[k].mean);
        found[k].covariance =
            std::make_shared<const Eigen::MatrixXd>(std::move(curves[k].covariance));
    }
    return found;
}

/// Estimates of all that was measured, before any luck is taken off, and how far they may be off.
struct Estimates {
    CostTable table;
    /// By kernel and point of the table: the standard deviation of the log of the energy's ratio to
    /// that at the baseline. Empty where there is no noise to judge by.
    std::vector<std::vector<double>> energy_errors;
    std::vector<double> time_scales;    ///< by kernel, of its samples' noise, as a fraction
    std::vector<double> energy_scales;  ///< likewise, beyond what was stated
    NoiseShares time_shares;            ///< of that noise, what samples have in common
    NoiseShares energy_shares;
    double time_level = 0;  ///< variance of sweeps' levels against that of samples' own noise
    double energy_level = 0;

    /// With each energy taken to be more by so many standard deviations.
    [[nodiscard]] CostTable shrunk(double deviations) const {
        CostTable shrunk = table;
        for (std::size_t k = 0; k < energy_errors.size(); ++k)
            for (std::size_t p = 0; p < energy_errors[k].size(); ++p)
                shrunk.kernels[k].points[p].cost.energy.count *=
                    std::exp(deviations * energy_errors[k][p]);
        return shrunk;
    }
};

inline constexpr std::size_t fewest_clocks = 3;  ///< points that tell of each other

/// @pre what `shrunk_costs` demands of a profile that it shrinks
inline Estimates estimate_costs(const Profile& profile) {
    Estimates found;
    found.table = mean_costs(profile);
    const std::vector<ClockPoint> clocks = clock_points(profile);
    ProfileLogs logs{profile, clocks};
    found.time_level = logs.time_level;
    found.energy_level = logs.energy_level;
    std::vector<BlockTotal> blocks = take_apart(profile, clocks, logs.energies);
    const std::vector<ClockShare> grid = clock_shares(clocks);
    QuantityShrinkage time{grid, std::move(logs.times)};
    QuantityShrinkage energy{grid, std::move(logs.energies)};
    found.time_shares = time.shares();
    found.energy_shares = energy.shares();
    const SameClocks same{clocks};
    const auto maps = surest_maps(same, found.table.kernels.size(), time, energy);
    time.pool(grid, maps);
    energy.pool(grid, maps);
    const std::vector<CurveEstimate> energies = estimate_energies(energy, maps, std::move(blocks));
    const CapLaw law{clocks};
    const auto baseline = static_cast<Eigen::Index>(index_of(clocks, found.table.baseline));
    const double many = deviations(Objective{});
    for (std::size_t k = 0; k < found.table.kernels.size(); ++k) {
        KernelCosts& kernel = found.table.kernels[k];
        std::vector<CapLaw::Slowdown> slowdowns;
        Seconds reference{};
        if (time.has_noise()) {
            const CurveEstimate times = time.estimate(k, *maps[k]);
            slowdowns = law.slowdowns(times, baseline, many);
            reference = Seconds{std::exp(times.mean(baseline))};
        }
        found.time_scales.push_back(time.scale(k));
        found.energy_scales.push_back(energy.scale(k));
        if (!energies.empty()) found.energy_errors.emplace_back();
        for (PointCost& point : kernel.points) {
            const std::size_t at = index_of(clocks, point.clock);
            if (!slowdowns.empty()) {
                point.cost.time = reference * std::exp(slowdowns[at].mean);
                kernel.time_errors.push_back(slowdowns[at].deviation);
            }
            if (energies.empty()) continue;
            const auto i = static_cast<Eigen::Index>(at);
            point.cost.energy = Joules{std::exp(energies[k].mean(i))};
            found.energy_errors.back().push_back(energies[k].off(i, baseline));
        }
    }
    return found;
}

}  // namespace kdvfs::inline v0_3::tune::detail
