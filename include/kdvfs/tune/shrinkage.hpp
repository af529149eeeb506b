// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/tune/block_totals.hpp>
#include <kdvfs/tune/cap_law.hpp>
#include <kdvfs/tune/clock_curves.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/curve_estimate.hpp>
#include <kdvfs/tune/profile.hpp>

#include <Eigen/Core>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// Estimates that do not promise the winner's luck. Whoever picks the best of many noisy means
/// picks lucky ones, and is disappointed later; posterior means under a fair prior have no such
/// bias.
namespace kdvfs::tune {
namespace detail {

/// Whether any point was measured more than once, or its error stated.
inline bool tells_noise(const Profile& profile) {
    for (const KernelProfile& kernel : profile.kernels())
        for (const ProfilePoint& point : kernel.points)
            if (point.samples.size() > 1 || point.samples[0].energy_sd.count > 0) return true;
    return false;
}

/// The logs of all samples, by kernel and point.
struct ProfileLogs {
    std::vector<KernelSamples> times;
    std::vector<KernelSamples> energies;

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
                    time[at].push_back({std::log(sample.cost.time.count()), 0});
                    energy[at].push_back({std::log(sample.cost.energy.count), stated * stated});
                }
            }
        }
    }
};

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

}  // namespace detail

/// A table of shrunk estimates, with how far its times may be off. Noise is estimated from repeated
/// samples of the same point. Energies that were measured together are estimated together
/// (`BlockTotals`). Times follow what caps can do (`CapLaw`). Kernels that resemble each other are
/// off alike, so that luck does not average out when clocks are picked for all of them: a clock is
/// credited with half a standard deviation less than it seems to save, which was found to balance
/// promised and kept savings (bench/promise). What cannot be shrunk keeps its plain means, and
/// `CostTable::caveat` says why; samples that are all alike are taken as they are.
/// @throws Error as `make_cost_table`
inline CostTable shrunk_costs(const Profile& profile) {
    CostTable table = mean_costs(profile);
    if (!detail::tells_noise(profile)) {
        table.caveat =
            "no point was measured twice, so nothing was shrunk and the bound has no confidence";
        return table;
    }
    if (const std::string none = detail::find_no_energy(profile); !none.empty()) {
        table.caveat = none + ", so nothing was shrunk";
        return table;
    }
    const std::vector<ClockPoint> clocks = detail::clock_points(profile);
    if (clocks.size() < 3) {
        table.caveat = "fewer than three clock points were measured, so nothing was shrunk";
        return table;
    }
    detail::ProfileLogs logs{profile, clocks};
    std::vector<detail::BlockTotal> blocks = detail::take_apart(profile, clocks, logs.energies);
    const std::vector<ClockShare> grid = clock_shares(clocks);
    detail::QuantityShrinkage time{grid, std::move(logs.times)};
    detail::QuantityShrinkage energy{grid, std::move(logs.energies)};
    const detail::SameClocks same{clocks};
    const auto maps = detail::likeliest_maps(same, table.kernels.size(), time, energy);
    time.pool(grid, maps);
    energy.pool(grid, maps);
    const std::vector<detail::CurveEstimate> energies =
        detail::estimate_energies(energy, maps, std::move(blocks));
    const detail::CapLaw law{clocks};
    const auto baseline = static_cast<Eigen::Index>(detail::index_of(clocks, table.baseline));
    const double many = deviations(Objective{});
    constexpr double credit = 0.5;
    for (std::size_t k = 0; k < table.kernels.size(); ++k) {
        KernelCosts& kernel = table.kernels[k];
        std::vector<detail::CapLaw::Slowdown> slowdowns;
        Seconds reference{};
        if (time.has_noise()) {
            const detail::CurveEstimate times = time.estimate(k, *maps[k]);
            slowdowns = law.slowdowns(times, baseline, many);
            reference = Seconds{std::exp(times.mean(baseline))};
        }
        for (PointCost& point : kernel.points) {
            const std::size_t at = detail::index_of(clocks, point.clock);
            if (!slowdowns.empty()) {
                point.cost.time = reference * std::exp(slowdowns[at].mean);
                kernel.time_errors.push_back(slowdowns[at].deviation);
            }
            if (energies.empty()) continue;
            const auto i = static_cast<Eigen::Index>(at);
            point.cost.energy =
                Joules{std::exp(energies[k].mean(i) + credit * energies[k].off(i, baseline))};
        }
    }
    return table;
}

}  // namespace kdvfs::tune
