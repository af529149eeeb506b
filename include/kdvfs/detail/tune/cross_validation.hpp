// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/tune/block_totals.hpp>
#include <kdvfs/detail/tune/cost_estimates.hpp>
#include <kdvfs/detail/tune/sample_noise.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

/// What plans promise too much, found by planning on simulated measurements whose truth is known.
namespace kdvfs::inline v0_3::tune::detail {

/// What measurements like those of the profile would find, if costs were as `world` has them: as
/// many samples of each point, with noise as it was found. Nothing where that is no measurement.
inline std::optional<Profile> measure_again(const CostTable& world, const Profile& profile,
                                            const Estimates& estimates,
                                            const std::vector<std::size_t>& kernels,
                                            std::uint64_t seed) {
    std::mt19937_64 random{seed};
    std::normal_distribution<double> normal;
    const std::vector<ClockPoint> clocks = clock_points(profile);
    NoiseDraws times{estimates.time_shares, estimates.time_level, clocks.size(), random()};
    NoiseDraws energies{estimates.energy_shares, estimates.energy_level, clocks.size(), random()};
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

/// Finds how much of kernels' deviations the margin of a sum must have: luck of each kernel's own
/// averages out in a sum, luck in common does not. Plans are made with several shares, and the
/// smallest is taken whose plans stay within their bounds.
class SumMargins {
public:
    /// @param table the estimates, as they are planned on
    void rehearse(const CostTable& table, const CostTable& truth) {
        constexpr kdvfs::detail::KnapsackEffort little{1e-3, 0};  // no proofs are needed
        const Seconds baseline = truth.baseline_cost().time;
        for (Share& share : shares_) {
            const CostTable careful = with_share(table, share.value);
            for (std::size_t b = 0; b < bounds.size(); ++b) {
                const Objective objective = relaxed_waste(bounds[b]);
                const double limit = with_allowance(table, objective).max_slowdown;
                const Plan plan = make_plan(careful, objective, Aggregate::global, little);
                const double beyond = time_of(plan, truth) / baseline - 1 - limit;
                share.sum[b] += beyond;
                share.squares[b] += beyond * beyond;
            }
        }
        ++rounds_;
    }
    [[nodiscard]] double share() const {
        double found = 1;
        if (rounds_ < 3) return found;
        for (const Share& candidate : shares_) {
            if (!is_kept(candidate)) break;
            found = candidate.value;
        }
        return found;
    }
    static CostTable with_share(CostTable table, double share) {
        for (KernelCosts& kernel : table.kernels)
            for (double& error : kernel.time_errors) error *= share;
        table.own_share /= share;
        return table;
    }

private:
    static constexpr std::array bounds{0.0, 0.01, 0.05};
    /// By bound: by how much plans were slower, as fractions of the baseline.
    struct Share {
        double value;
        std::array<double, bounds.size()> sum{};
        std::array<double, bounds.size()> squares{};
    };

    /// Worlds that are estimates are smoother than real ones, so that their deviations count more.
    [[nodiscard]] bool is_kept(const Share& share) const {
        constexpr double smoother = 1.5;
        for (std::size_t b = 0; b < bounds.size(); ++b) {
            const double mean = share.sum[b] / rounds_;
            const double variance =
                std::max(0.0, share.squares[b] - rounds_ * mean * mean) / (rounds_ - 1);
            if (mean + smoother * deviations(Objective{}) * std::sqrt(variance) > 0) return false;
        }
        return true;
    }
    static Seconds time_of(const Plan& plan, const CostTable& truth) {
        Seconds sum{0};
        for (std::size_t k = 0; k < plan.kernels.size(); ++k)
            for (const PointCost& point : truth.kernels[k].points)
                if (point.clock == plan.kernels[k].clock)
                    sum += point.cost.time * truth.kernels[k].count;
        return sum;
    }

    std::array<Share, 8> shares_{{{1}, {0.8}, {0.6}, {0.45}, {0.3}, {0.2}, {0.1}, {0.05}}};
    double rounds_ = 0;
};

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
            1 + std::clamp<std::size_t>((enough + kernels.size() / 2) / kernels.size(), 7, 15);
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

    /// Of the deviations of kernels' times, what a sum of kernels must reckon with.
    [[nodiscard]] double sum_share() const { return sums_.share(); }

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
        sums_.rehearse(table, truth);
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

    SumMargins sums_;
    double shrinkage_ = 0.5;
    double own_share_ = 1;
    std::vector<double> luck_;
    std::array<Share, 5> shares_{{{1}, {0.8}, {0.6}, {0.4}, {0.2}}};
    double kernels_ = 0;  ///< that were rehearsed
};

}  // namespace kdvfs::inline v0_3::tune::detail
