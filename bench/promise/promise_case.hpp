// SPDX-License-Identifier: MIT
#pragma once

#include <bench/promise/noisy_profile.hpp>
#include <kdvfs/detail/tune/shrunk_costs.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/validation.hpp>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::tune {

/// How plans of one kind fared over many noisy measurements of the same board; energies in percent
/// of the baseline's, means over the seeds.
struct PromiseTally {
    double bound = 0;  ///< as a fraction
    Aggregate aggregate = Aggregate::global;
    int seeds = 0;
    double noise_free = 0;  ///< of the plan that knows the truth
    double promised = 0;
    double kept = 0;
    int bounds_kept =
        0;  ///< seeds whose iteration stayed within the bound and what validation lets pass
    double kernels_within = 0;  ///< share of all seeds' kernels

    /// Of the noise-free plan's, where that is over a point.
    [[nodiscard]] double share_of_saving() const { return noise_free < -1 ? kept / noise_free : 1; }

    /// What plans must do, by the scale of the noise.
    [[nodiscard]] bool holds(double scale) const {
        const bool kept_often =
            aggregate == Aggregate::local ? kernels_within >= 0.84 : bounds_kept >= 0.84 * seeds;
        const bool saves = share_of_saving() >= (scale < 0.02 ? 0.8 : 0.6);
        return std::abs(promised - kept) <= 0.3 && kept_often && saves;
    }
};

inline PromiseTally& operator+=(PromiseTally& tally, const std::pair<Plan, const CostTable*>& one) {
    const auto& [plan, truth] = one;
    const Cost baseline = truth->baseline_cost();
    const Cost real = cost_under(plan, *truth);
    tally.promised += plan.energy_pct() / tally.seeds;
    tally.kept += energy_percent(real, baseline) / tally.seeds;
    const auto within = [&](Seconds time, Seconds reference) {
        return time <= reference * (1 + tally.bound + Validation::time_tolerance_pct / 100);
    };
    tally.bounds_kept += within(real.time, baseline.time) ? 1 : 0;
    int kernels = 0;
    for (std::size_t k = 0; k < plan.kernels.size(); ++k) {
        const KernelCosts& kernel = truth->kernels[k];
        for (const PointCost& point : kernel.points)
            if (point.clock == plan.kernels[k].clock)
                kernels +=
                    within(point.cost.time, kernel.points[kernel.baseline].cost.time) ? 1 : 0;
    }
    tally.kernels_within +=
        static_cast<double>(kernels) / static_cast<double>(plan.kernels.size()) / tally.seeds;
    return tally;
}

/// Global and local plans at bounds of 0, 1 and 2 %, made from what `estimate` says of each seed.
template <class Estimate>
std::vector<PromiseTally> judge_plans(const CostTable& truth, int seeds, Estimate estimate) {
    std::vector<PromiseTally> tallies;
    for (const double bound : {0.0, 0.01, 0.02}) {
        for (const Aggregate aggregate : {Aggregate::global, Aggregate::local}) {
            PromiseTally& tally = tallies.emplace_back();
            tally.bound = bound;
            tally.aggregate = aggregate;
            tally.seeds = seeds;
            tally.noise_free = make_plan(truth, relaxed_waste(bound), aggregate).energy_pct();
        }
    }
    for (int seed = 0; seed < seeds; ++seed) {
        const CostTable estimates = estimate(static_cast<std::uint64_t>(seed));
        for (PromiseTally& tally : tallies)
            tally += {make_plan(estimates, relaxed_waste(tally.bound), tally.aggregate), &truth};
    }
    return tallies;
}

/// From three samples a point, with heavy-tailed noise of that scale.
inline std::vector<PromiseTally> judge_promises(std::string_view board, double scale, int seeds) {
    const CostTable truth = simulated_truth(board);
    return judge_plans(truth, seeds, [&](std::uint64_t seed) {
        return shrunk_costs(heavy_tailed_profile(truth, scale, 3, seed));
    });
}

}  // namespace kdvfs::tune
