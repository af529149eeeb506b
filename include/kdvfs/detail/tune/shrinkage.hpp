// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/tune/shrunk_costs.hpp>

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/tune/block_totals.hpp>
#include <kdvfs/detail/tune/cap_law.hpp>
#include <kdvfs/detail/tune/clock_curves.hpp>
#include <kdvfs/detail/tune/curve_estimate.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {
namespace detail {

/// Whether any point was measured more than once, or its error stated.
inline bool reports_noise(const Profile& profile) {
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
                    const double variance = stated * stated;
                    time[at].push_back({std::log(sample.cost.time.count()), 0, 0, sample.index});
                    energy[at].push_back(
                        {std::log(sample.cost.energy.count), variance, variance, sample.index});
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

/// Estimates of all that was measured, before any luck is taken off, and how far they may be off.
struct Estimates {
    CostTable table;
    /// By kernel and point of the table: the standard deviation of the log of the energy's ratio to
    /// that at the baseline. Empty where there is no noise to judge by.
    std::vector<std::vector<double>> energy_errors;
    std::vector<double> time_scales;    ///< by kernel, of its samples' noise, as a fraction
    std::vector<double> energy_scales;  ///< likewise, beyond what was stated
    SweepLuck time_luck{};              ///< what samples have in common
    SweepLuck energy_luck{};

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
    Estimates found{mean_costs(profile), {}, {}, {}, {}, {}};
    const std::vector<ClockPoint> clocks = clock_points(profile);
    ProfileLogs logs{profile, clocks};
    std::vector<BlockTotal> blocks = take_apart(profile, clocks, logs.energies);
    const std::vector<ClockShare> grid = clock_shares(clocks);
    QuantityShrinkage time{grid, std::move(logs.times)};
    QuantityShrinkage energy{grid, std::move(logs.energies)};
    const SameClocks same{clocks};
    const auto maps = surest_maps(same, found.table.kernels.size(), time, energy);
    time.pool(grid, maps);
    energy.pool(grid, maps);
    const std::vector<CurveEstimate> energies = estimate_energies(energy, maps, std::move(blocks));
    found.time_luck = time.luck();
    found.energy_luck = energy.luck();
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

/// What measurements like those of the profile would find, if costs were as `world` has them: as
/// many samples of each point, with noise as it was found. Nothing where that is no measurement.
inline std::optional<Profile> measure_again(const CostTable& world, const Profile& profile,
                                            const Estimates& estimates,
                                            const std::vector<std::size_t>& kernels,
                                            std::uint64_t seed) {
    std::mt19937_64 random{seed};
    std::normal_distribution<double> normal;
    const std::vector<ClockPoint> clocks = clock_points(profile);
    LuckDraws times{estimates.time_luck, clocks.size(), random()};
    LuckDraws energies{estimates.energy_luck, clocks.size(), random()};
    Profile again{profile.gpu()};
    for (const std::size_t k : kernels) {
        const KernelCosts& kernel = world.kernels[k];
        times.begin_kernel();
        energies.begin_kernel();
        for (std::size_t p = 0; p < kernel.points.size(); ++p) {
            const auto& [clock, cost] = kernel.points[p];
            const std::size_t at = index_of(clocks, clock);
            for (const ProfileSample& sample : profile.kernels()[k].find(clock)->samples) {
                const double stated = sample.energy_sd / sample.cost.energy;
                const double time = estimates.time_scales[k] * times.draw(at, sample.index);
                const double energy = estimates.energy_scales[k] * energies.draw(at, sample.index) +
                                      stated * normal(random);
                if (again.try_add({kernel.key,
                                   clock,
                                   {cost.time * std::exp(time), cost.energy * std::exp(energy)},
                                   kernel.group,
                                   kernel.count,
                                   sample.index,
                                   p == kernel.baseline,
                                   cost.energy * (std::exp(energy) * stated)}))
                    return std::nullopt;
            }
        }
    }
    return again;
}

/// How much less a plan saves than estimates said, in standard deviations of these: by how much
/// energies that were chosen must be taken to be more, so that what is promised is kept.
/// @param planned for `truth`, on estimates of it that were credited before
inline std::optional<double> luck_of(const Plan& planned, const Estimates& estimates,
                                     const CostTable& truth) {
    double off = 0;
    double deviations = 0;
    for (std::size_t k = 0; k < planned.kernels.size(); ++k) {
        const KernelCosts& real = truth.kernels[k];
        const KernelCosts& resolved = estimates.table.kernels[k];
        std::size_t p = 0;
        while (resolved.points[p].clock != planned.kernels[k].clock) ++p;
        const double energy = real.at(p).energy.count;
        const auto ratio = [p](const KernelCosts& kernel) {
            return kernel.points[p].cost.energy / kernel.points[kernel.baseline].cost.energy;
        };
        off += energy * std::log(ratio(real) / ratio(resolved));
        deviations += energy * estimates.energy_errors[k][p];
    }
    if (!(deviations > 0)) return std::nullopt;
    return off / deviations;
}

/// What simulated measurements of what the estimates say, where the truth is known, tell of plans
/// that are made of them (the bootstrap's estimate of optimism: Efron, Journal of the American
/// Statistical Association 78, 1983). Estimates still have luck in them, which makes them a world
/// with more to gain than there is; so each world is credited with what those before have told.
class CrossValidation {
public:
    CrossValidation(const Profile& profile, const Estimates& estimates) {
        constexpr std::size_t enough = 128;  // kernels; more would hardly change a mean
        std::vector<std::size_t> kernels;
        const std::size_t all = estimates.table.kernels.size();
        for (std::size_t k = 0; k < all; k += 1 + (all - 1) / enough) kernels.push_back(k);
        // The first world is what the others begin with.
        const std::size_t rounds =
            1 + std::min<std::size_t>(15, (enough + kernels.size() / 2) / kernels.size());
        for (std::uint64_t round = 0; round < rounds; ++round) {
            const CostTable world = estimates.shrunk(shrinkage_);
            const auto again = measure_again(world, profile, estimates, kernels, round);
            if (!again || clock_points(*again).size() < fewest_clocks) continue;
            CostTable truth{world.gpu, world.baseline, {}, {}};
            for (const std::size_t k : kernels) truth.kernels.push_back(world.kernels[k]);
            rehearse(estimate_costs(*again), truth);
        }
    }

    /// By how many standard deviations energies must be taken to be more than estimated, for plans
    /// to keep on average what they promise.
    [[nodiscard]] double shrinkage() const { return shrinkage_; }
    /// `CostTable::own_share`
    [[nodiscard]] double own_share() const { return own_share_; }

private:
    void rehearse(const Estimates& found, const CostTable& truth) {
        if (found.energy_errors.empty()) return;
        CostTable table = found.shrunk(shrinkage_);
        table.own_share = own_share_;
        constexpr kdvfs::detail::KnapsackEffort little{1e-3, 0};  // no proofs are needed
        for (const Aggregate aggregate : {Aggregate::global, Aggregate::local})
            if (const auto luck =
                    luck_of(make_plan(table, relaxed_waste(0.01), aggregate, little), found, truth))
                luck_.push_back(*luck);
        for (Share& share : shares_) {
            table.own_share = share.value;
            for (std::size_t b = 0; b < bounds.size(); ++b)
                share.beyond[b] += beyond_bound(
                    make_plan(table, relaxed_waste(bounds[b]), Aggregate::local), truth);
        }
        kernels_ += static_cast<double>(truth.kernels.size());
        own_share_ = 1;
        const double many = deviations(Objective{});
        const double most = (1 - Objective{}.confidence) * kernels_;
        for (const Share& share : shares_) {
            if (std::any_of(share.beyond.begin(), share.beyond.end(), [&](double beyond) {
                    return beyond + many * std::sqrt(beyond + 1) > most;
                }))
                break;
            own_share_ = share.value;
        }
        if (luck_.empty()) return;
        const std::size_t first = luck_.size() > 2 ? 2 : 0;
        double sum = 0;
        for (std::size_t i = first; i < luck_.size(); ++i) sum += luck_[i];
        shrinkage_ = std::max(0.0, sum / static_cast<double>(luck_.size() - first));
    }

    /// How many kernels are slower than a local plan's bound allows.
    static double beyond_bound(const Plan& plan, const CostTable& truth) {
        double beyond = 0;
        for (std::size_t k = 0; k < plan.kernels.size(); ++k) {
            const KernelCosts& kernel = truth.kernels[k];
            const Seconds limit =
                kernel.points[kernel.baseline].cost.time * ((1 + plan.max_slowdown) * (1 + 1e-12));
            for (const PointCost& point : kernel.points)
                if (point.clock == plan.kernels[k].clock) beyond += point.cost.time > limit ? 1 : 0;
        }
        return beyond;
    }

    static constexpr std::array bounds{0.0, 0.01};  // where it is hard to keep; more is easier
    /// A share of what times may be off, and how many kernels went beyond each bound with it.
    struct Share {
        double value;
        std::array<double, bounds.size()> beyond{};
    };

    double shrinkage_ = 0.5;
    double own_share_ = 1;
    std::vector<double> luck_;
    std::array<Share, 5> shares_{{{1}, {0.8}, {0.6}, {0.4}, {0.2}}};
    double kernels_ = 0;  ///< that were rehearsed
};

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE CostTable shrunk_costs(const Profile& profile) {
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
    return table;
}

KDVFS_INLINE Profile with_likely_energies(const Profile& profile) {
    const auto baseline = profile.baseline();
    Cost all;
    for (const KernelProfile& kernel : profile.kernels())
        if (const ProfilePoint* point = baseline ? kernel.find(*baseline) : nullptr)
            all += point->mean() * kernel.count;
    if (all.time <= Seconds{0}) return profile;
    Profile likely{profile.gpu()};
    for (const KernelProfile& kernel : profile.kernels()) {
        const ProfilePoint* const found = kernel.find(*baseline);
        const bool known = found != nullptr && found->is_resolved();
        const Watts power =
            known ? found->mean().energy / found->mean().time : all.energy / all.time;
        for (const ProfilePoint& point : kernel.points) {
            for (const ProfileSample& sample : point.samples) {
                ProfileRow row{kernel.key,
                               point.clock,
                               sample.cost,
                               kernel.group,
                               kernel.count,
                               sample.index,
                               point.clock == *baseline,
                               sample.energy_sd,
                               profile.block_of(sample)};
                if (!sample.is_resolved()) {
                    constexpr double unsure = 0.4;  // of the energy: as much as counts as resolved
                    row.cost.energy = power * row.cost.time;
                    row.energy_sd = row.cost.energy * unsure;
                }
                likely.add(row);
            }
        }
    }
    return likely;
}

#endif

}  // namespace kdvfs::inline v0_3::tune
