// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// What a plan makes small. To add one, write a function that returns an `Objective`.
///
/// The planner's proofs need `score` to be non-decreasing in time and in energy, and quasi-concave
/// in the two together (products and sums of them are; see `minimise`).
struct Objective {
    std::string name;  ///< as in plan files: "waste", "edp"
    /// Lower is better. The baseline is the cost of the same work at the board's own clocks.
    std::function<double(const Cost& cost, const Cost& baseline)> score;
    /// The slowdown tolerated, as a fraction of the baseline's time.
    double max_slowdown = std::numeric_limits<double>::infinity();
    /// No launch of any kernel and variant may take longer. What does so at every clock runs where
    /// it is fastest.
    Seconds launch_limit{std::numeric_limits<double>::infinity()};
    /// With what probability the slowdown stays within that, where the table knows how far its
    /// times may be off.
    double confidence = 0.9;
};

/// How many standard deviations a normal variable stays below with the objective's confidence;
/// never less than none.
KDVFS_INLINE double deviations(const Objective& objective);

/// By how many standard deviations plans take times to be longer than estimated: none where nothing
/// bounds them.
inline double careful_deviations(const Objective& objective) {
    return std::isfinite(objective.max_slowdown) ? deviations(objective) : 0;
}

/// The time that an objective tolerates. The allowance of 1e-12 keeps a sum of the very same
/// numbers in another order from counting as slower.
inline Seconds time_limit(const Objective& objective, const Cost& baseline) {
    return baseline.time * ((1 + objective.max_slowdown) * (1 + 1e-12));
}

/// The same objective, with a slowdown tolerated: 0.01 is 1 %.
/// @throws Error (invalid_input) unless the slowdown is zero or more (infinity is no limit).
KDVFS_INLINE Objective with_max_slowdown(Objective objective, double max_slowdown);

/// The same objective, with the energy that the rest of a node draws beside the GPU counted as
/// well: what is slower then costs energy. Its name gets "+node".
/// @param node what the node draws for each GPU beside it, whatever the GPU does
/// @throws Error (invalid_input) unless the power is zero or more and finite
KDVFS_INLINE Objective with_node_power(Objective objective, Watts node);

/// The same objective, its bound to hold with a probability: 0.9 is 90 %.
/// @throws Error (invalid_input) unless the probability lies from 0.5 to below 1.
KDVFS_INLINE Objective with_confidence(Objective objective, double confidence);

/// Least energy, whatever the time.
inline Objective minimum_energy() {
    return {"energy", [](const Cost& cost, const Cost&) { return cost.energy.count; }};
}

/// The same objective, with a bound on the time of each launch: a latency target.
/// @throws Error (invalid_input) unless the bound is above zero (infinity is no bound).
KDVFS_INLINE Objective keep_under(Objective objective, Seconds launch_limit);

/// Least energy with every launch under a bound: `keep_under(95ms)`.
/// @throws Error (invalid_input) unless the bound is above zero.
inline Objective keep_under(Seconds launch_limit) {
    return keep_under(minimum_energy(), launch_limit);
}

/// Whether a launch keeps its bound, with the allowance of `time_limit`.
inline bool keeps_bound(const Objective& objective, Seconds launch) {
    return launch <= objective.launch_limit * (1 + 1e-12);
}

/// Relaxed waste: energy that can go within a tolerated slowdown.
KDVFS_INLINE Objective relaxed_waste(double max_slowdown);

/// Strict waste: energy that can go without losing any time (arXiv 2601.08539).
inline Objective strict_waste() { return relaxed_waste(0); }

/// Energy-delay product.
KDVFS_INLINE Objective energy_delay();

/// Energy-delay-squared product.
KDVFS_INLINE Objective energy_delay_squared();

/// Zeus' cost, eta * energy + (1 - eta) * max_power * time (You, Chung, Chowdhury, NSDI 2023);
/// `max_power` is the board's limit.
/// @throws Error (invalid_input) unless 0 <= eta <= 1 and the power is above zero.
KDVFS_INLINE Objective zeus_cost(double eta, Watts max_power);

/// What one launch of a kernel is taken to cost at a clock point.
struct PointCost {
    ClockPoint clock;
    Cost cost;
};

/// One kernel as the planner sees it.
struct KernelCosts {
    KernelKey key;
    std::string group;
    std::uint32_t count = 1;        ///< launches per iteration
    std::vector<PointCost> points;  ///< ascending by clock; each clock once
    std::size_t baseline = 0;       ///< index into `points`
    /// By point: how far the time's ratio to that at the baseline may be off, as the standard
    /// deviation of its log. Empty where nothing is known.
    std::vector<double> time_errors{};
    /// Likewise of energies that were not measured but predicted; empty elsewhere.
    std::vector<double> energy_errors{};

    /// One launch, its time longer by so many standard deviations of its ratio to that at the
    /// baseline, where these are known. Deviations of kernels that resemble each other add up when
    /// costs are added: such kernels are off alike, and margins for errors that are half their own
    /// left the bound broken in up to half of the cases (bench/promise). With such a margin a
    /// launch that is longer than at the baseline by `as_good_as_none` at most is not longer.
    [[nodiscard]] Cost launch(std::size_t point, double many = 0) const;
    /// What one standard deviation is.
    [[nodiscard]] Seconds time_deviation(std::size_t point) const;
    /// A slowdown, margin included, that counts as none: what a bound of 0 can spend. Validation
    /// does not tell 0.1 % from none. With 0.03 % sums stay below that in 92 % of programs drawn,
    /// with 0.1 % in 83 % (bench/promise/repeated_bench).
    static constexpr double as_good_as_none = 0.0003;
    /// All launches of an iteration.
    [[nodiscard]] Cost at(std::size_t point, double many = 0) const;
};

/// One estimate per kernel and clock point: what plans are made from. Profiles hold samples; how
/// those become estimates is a choice (`mean_costs` trusts them as they are).
struct CostTable {
    std::string gpu;
    ClockPoint baseline;
    std::vector<KernelCosts> kernels;
    std::string caveat{};  ///< what cannot be known of the estimates, a clause; empty where nothing
    /// Of the kernels' `time_errors`, what a kernel that is bounded by itself must reckon with.
    /// What they are off in common adds up in a sum, but not in each of them.
    double own_share = 1;

    /// The cost of an iteration at the baseline.
    [[nodiscard]] Cost baseline_cost() const;
};

/// A table from a profile, `estimate` turning each `ProfilePoint` of a `KernelProfile` into a cost.
/// Points whose energy is not told are left out; a kernel whose baseline is not told has no other.
/// @throws Error (invalid_input) if there is no kernel, or one lacks the baseline.
KDVFS_INLINE CostTable make_cost_table(
    const Profile& profile,
    const std::function<Cost(const KernelProfile& kernel, const ProfilePoint& point)>& estimate);

/// The table of plain means.
KDVFS_INLINE CostTable mean_costs(const Profile& profile);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/cost_table.hpp>
#endif
