// SPDX-License-Identifier: MIT
#include <bench/promise/noisy_profile.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/shrinkage.hpp>
#include <kdvfs/tune/validation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>

namespace kdvfs::tune {
namespace {

struct Promise {
    double energy_difference = 0;  ///< promised less kept, points
    double time_difference = 0;
};

Promise promise_of(const Plan& plan, const CostTable& truth) {
    const Cost real = cost_under(plan, truth);
    const Cost baseline = truth.baseline_cost();
    return {plan.energy_pct() - energy_percent(real, baseline),
            plan.time_pct() - time_percent(real, baseline)};
}

TEST(Shrinkage, PromisesWhatIsKept) {
    const CostTable truth = simulated_truth();
    constexpr int seeds = 4;
    Promise naive;
    Promise shrunk;
    for (int seed = 0; seed < seeds; ++seed) {
        const Profile profile = noisy_profile(truth, 0.01, 5, static_cast<std::uint64_t>(seed));
        const auto add = [&](Promise& sum, const CostTable& estimates) {
            const Promise one =
                promise_of(make_plan(estimates, strict_waste(), Aggregate::global), truth);
            sum.energy_difference += one.energy_difference / seeds;
            sum.time_difference += one.time_difference / seeds;
        };
        add(naive, mean_costs(profile));
        add(shrunk, shrunk_costs(profile));
    }
    std::printf(
        "promised less kept, mean of %d seeds: naive energy %+.3f time %+.3f points, "
        "shrunk energy %+.3f time %+.3f points\n",
        seeds, naive.energy_difference, naive.time_difference, shrunk.energy_difference,
        shrunk.time_difference);
    EXPECT_LT(std::abs(shrunk.energy_difference), 0.3);
    EXPECT_LT(std::abs(shrunk.time_difference), 0.3);
    EXPECT_LT(std::abs(shrunk.time_difference), 0.5 * std::abs(naive.time_difference));
    EXPECT_LT(std::abs(shrunk.energy_difference), std::abs(naive.energy_difference));
}

TEST(Shrinkage, ComesCloserToTheTruthThanMeansDo) {
    const CostTable truth = simulated_truth();
    const Profile profile = noisy_profile(truth, 0.01, 5, 99);
    const auto error_of = [&](const CostTable& estimates, auto quantity) {
        double sum = 0;
        std::size_t count = 0;
        for (std::size_t k = 0; k < truth.kernels.size(); ++k) {
            for (std::size_t p = 0; p < truth.kernels[k].points.size(); ++p, ++count) {
                const double off = quantity(estimates.kernels[k].points[p].cost) /
                                       quantity(truth.kernels[k].points[p].cost) -
                                   1;
                sum += off * off;
            }
        }
        return std::sqrt(sum / static_cast<double>(count));
    };
    const auto time = [](const Cost& cost) { return cost.time.count(); };
    const auto energy = [](const Cost& cost) { return cost.energy.count; };
    const CostTable means = mean_costs(profile);
    const CostTable shrunk = shrunk_costs(profile);
    std::printf("rms error of time: means %.4f, shrunk %.4f; of energy: means %.4f, shrunk %.4f\n",
                error_of(means, time), error_of(shrunk, time), error_of(means, energy),
                error_of(shrunk, energy));
    EXPECT_NEAR(error_of(means, time), 0.01 / std::sqrt(5), 0.0005);
    // Where a quantity bends much between neighbouring clocks, they tell little of each other.
    EXPECT_LT(error_of(shrunk, time), error_of(means, time));
    EXPECT_LT(error_of(shrunk, energy), error_of(means, energy));
}

TEST(Shrinkage, LeavesWhatItCannotTellApart) {
    const CostTable truth = simulated_truth();
    const Profile once = noisy_profile(truth, 0.01, 1, 3);
    EXPECT_EQ(shrunk_costs(once).kernels[5].points[7].cost,
              mean_costs(once).kernels[5].points[7].cost);
}

TEST(Shrinkage, KeepsAKernelThatReallyIsOdd) {
    // One point is 20 % cheaper than its neighbours, again and again: no noise.
    Profile profile{"g"};
    std::mt19937_64 random{1};
    std::normal_distribution<double> noise{1, 0.01};
    for (std::uint32_t c = 0; c <= 20; ++c) {
        const ClockPoint clock{{c == 20 ? 0 : 1000 + 50 * c}, auto_clock};
        const double energy = c == 9 ? 80 : 100;
        for (std::uint32_t s = 0; s < 10; ++s) {
            profile.add({{"a", {}},
                         clock,
                         {Seconds{noise(random)}, Joules{energy * noise(random)}},
                         "",
                         1,
                         s});
        }
    }
    const auto costs = shrunk_costs(profile);
    for (const PointCost& point : costs.kernels[0].points) {
        const double truth = point.clock.core == Megahertz{1450} ? 80 : 100;
        EXPECT_NEAR(point.cost.energy.count, truth, 0.015 * truth) << to_string(point.clock);
    }
}

TEST(Validation, FindsASavingThroughDriftAndNoise) {
    std::mt19937_64 random{7};
    std::normal_distribution<double> noise{1, 0.01};
    Plan plan;
    plan.baseline = {Seconds{1}, Joules{100}};
    plan.expected = {Seconds{1}, Joules{88}};
    double drift = 1;
    const Validation found = validate(plan, 20, [&](bool planned) {
        drift *= 1.02;  // the board warms up, and how
        return Cost{Seconds{noise(random)}, Joules{drift * (planned ? 90 : 100) * noise(random)}};
    });
    EXPECT_EQ(found.promised_energy_pct, plan.energy_pct());
    EXPECT_TRUE(found.energy.contains(-10)) << found.energy.low << " " << found.energy.high;
    EXPECT_FALSE(found.energy.contains(0));
    EXPECT_TRUE(found.time.contains(0));
    EXPECT_LT(found.energy.high - found.energy.low, 4);
    EXPECT_THROW(validate(plan, 1, [](bool) { return Cost{}; }), Error);
}

TEST(Validation, IntervalsHoldTheTruthAsOftenAsTheySay) {
    std::mt19937_64 random{11};
    std::normal_distribution<double> noise{-5, 1};
    int covered = 0;
    for (int i = 0; i < 400; ++i) {
        std::vector<double> changes(30);
        for (double& change : changes) change = noise(random);
        covered += bootstrap(changes, static_cast<std::uint64_t>(i)).contains(-5) ? 1 : 0;
    }
    EXPECT_GT(covered, 400 * 90 / 100);
    EXPECT_LT(covered, 400 * 99 / 100);
}

}  // namespace
}  // namespace kdvfs::tune
