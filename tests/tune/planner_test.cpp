// SPDX-License-Identifier: MIT
#include <kdvfs/tune/planner.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

namespace kdvfs::tune {
namespace {

ProfileRow row(const std::string& kernel, Megahertz core, double time, double energy,
               const std::string& group = "", std::uint32_t count = 1) {
    return {{kernel, {}}, {core, auto_clock}, {Seconds{time}, Joules{energy}}, group, count};
}

/// `a` gains time at 1000 MHz that `b` can spend; only the sum knows.
CostTable trading() {
    Profile profile{"g"};
    profile.add(row("a", auto_clock, 10, 100, "fw"));
    profile.add(row("a", {1000}, 9, 90, "fw"));
    profile.add(row("a", {500}, 12, 85, "fw"));
    profile.add(row("b", auto_clock, 5, 50, "bw", 2));
    profile.add(row("b", {1000}, 5.5, 40, "bw", 2));
    profile.add(row("b", {500}, 9, 39, "bw", 2));
    return mean_costs(profile);
}

TEST(Planner, GlobalSpendsOnOneKernelWhatItGainsOnAnother) {
    const Plans plans = make_plans(trading(), strict_waste());
    EXPECT_EQ(plans.automatic.energy_pct(), 0);
    EXPECT_EQ(plans.automatic.baseline, (Cost{Seconds{20}, Joules{200}}));
    EXPECT_EQ(plans.local.expected, (Cost{Seconds{19}, Joules{190}}));
    EXPECT_EQ(plans.global.expected, (Cost{Seconds{20}, Joules{170}}));
    EXPECT_EQ(plans.single.expected, (Cost{Seconds{20}, Joules{170}}));
    EXPECT_EQ(plans.global.gap_pct, 0);
    EXPECT_EQ(plans.global.kernels[1].clock, (ClockPoint{{1000}, auto_clock}));
    EXPECT_EQ(plans.global.kernels[1].expected, (Cost{Seconds{5.5}, Joules{40}}));
}

TEST(Planner, HoldsBoundsWithAMarginForWhatTimesMayBeOff) {
    Profile profile{"g"};
    for (const char* kernel : {"a", "b"}) {
        profile.add(row(kernel, auto_clock, 10, 100));
        profile.add(row(kernel, {1000}, 10, 50));
    }
    CostTable table = mean_costs(profile);
    // One deviation of 1 % at the cap; 90 % are 1.28 of them.
    for (KernelCosts& kernel : table.kernels)
        for (const PointCost& point : kernel.points)
            kernel.time_errors.push_back(point.clock == table.baseline ? 0 : 0.01);
    const auto saves = [&](double bound, Aggregate aggregate, double confidence = 0.9) {
        const Plan plan =
            make_plan(table, with_confidence(relaxed_waste(bound), confidence), aggregate);
        EXPECT_EQ(plan.expected.time, plan.baseline.time) << "promises have no margin";
        return plan.energy_pct() < -49;
    };
    for (const Aggregate aggregate : {Aggregate::local, Aggregate::global, Aggregate::single}) {
        EXPECT_FALSE(saves(0.0128, aggregate)) << to_string(aggregate);
        EXPECT_TRUE(saves(0.0129, aggregate)) << to_string(aggregate);
        EXPECT_TRUE(saves(0, aggregate, 0.5)) << to_string(aggregate);
    }
    // Of what errors have in common, which adds up in a sum, a kernel by itself knows less.
    table.own_share = 0.5;
    EXPECT_TRUE(saves(0.0065, Aggregate::local));
    EXPECT_FALSE(saves(0.0063, Aggregate::local));
    EXPECT_FALSE(saves(0.0128, Aggregate::global));
    // What nothing bounds has no margin.
    EXPECT_EQ(make_plan(table, energy_delay(), Aggregate::local).energy_pct(), -50);
}

TEST(Planner, ASingleClockMustBeMeasuredForAll) {
    Profile profile{"g"};
    profile.add(row("a", auto_clock, 10, 100));
    profile.add(row("a", {700}, 10, 10));
    profile.add(row("b", auto_clock, 10, 100));
    profile.add(row("b", {800}, 10, 10));
    const Plans plans = make_plans(mean_costs(profile), strict_waste());
    EXPECT_EQ(plans.single.energy_pct(), 0);
    EXPECT_EQ(plans.global.expected.energy.count, 20);
}

TEST(Planner, APassSharesOneClock) {
    Profile profile{"g"};
    for (const char* kernel : {"a", "b"}) {
        profile.add(row(kernel, auto_clock, 10, 100, "fw"));
        profile.add(row(kernel, {500}, kernel == std::string{"a"} ? 10 : 11, 50, "fw"));
    }
    profile.add(row("c", auto_clock, 10, 100, "bw"));
    profile.add(row("c", {500}, 10, 60, "bw"));
    const Plan plan = make_plan(mean_costs(profile), strict_waste(), Aggregate::per_group);
    EXPECT_EQ(plan.expected, (Cost{Seconds{30}, Joules{260}}));
    EXPECT_EQ(plan.kernels[0].clock, plan.kernels[1].clock);
}

TEST(Planner, TheBoardIsLeftAloneWhereNothingIsBetter) {
    Profile profile{"g"};
    profile.add(row("a", auto_clock, 10, 100));
    profile.add(row("a", {900}, 10, 100));
    for (const Aggregate aggregate : all_aggregates)
        EXPECT_TRUE(
            make_plan(mean_costs(profile), strict_waste(), aggregate).kernels[0].clock.is_auto());
}

/// Whatever the kernels, every launch is under the bound or as fast as it can be, and no choice of
/// such clocks takes less energy.
TEST(Planner, KeepUnderIsTheBestThatKeepsEachLaunchUnder) {
    std::mt19937 random{1};
    const auto uniform = [&](int from, int to) {
        return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
    };
    const std::array<Megahertz, 3> clocks{auto_clock, Megahertz{1000}, Megahertz{500}};
    for (int round = 0; round < 500; ++round) {
        Profile profile{"g"};
        const int kernels = uniform(1, 3);
        for (int k = 0; k < kernels; ++k)
            for (const Megahertz clock : clocks)
                profile.add(row(std::string(1, static_cast<char>('a' + k)), clock, uniform(5, 15),
                                uniform(50, 150), "", static_cast<std::uint32_t>(k + 1)));
        const CostTable table = mean_costs(profile);
        const Objective objective = keep_under(Seconds{10});
        const auto allowed = [&](const KernelCosts& kernel, std::size_t p) {
            Seconds fastest = kernel.points[0].cost.time;
            for (const auto& point : kernel.points) fastest = std::min(fastest, point.cost.time);
            return kernel.points[p].cost.time <= std::max(Seconds{10}, fastest);
        };
        double least = 0;
        for (const KernelCosts& kernel : table.kernels) {
            double best = std::numeric_limits<double>::infinity();
            for (std::size_t p = 0; p < kernel.points.size(); ++p)
                if (allowed(kernel, p)) best = std::min(best, kernel.at(p).energy.count);
            least += best;
        }
        for (const Aggregate aggregate : {Aggregate::local, Aggregate::global}) {
            const Plan plan = make_plan(table, objective, aggregate);
            ASSERT_DOUBLE_EQ(plan.expected.energy.count, least) << round;
            ASSERT_EQ(plan.launch_limit, Seconds{10});
        }
        // One clock for all: one that all may run at, where there is such a clock.
        double single = std::numeric_limits<double>::infinity();
        for (std::size_t p = 0; p < clocks.size(); ++p) {
            Cost sum;
            bool may = true;
            for (const KernelCosts& kernel : table.kernels) {
                sum += kernel.at(p);
                may = may && allowed(kernel, p);
            }
            if (may) single = std::min(single, sum.energy.count);
        }
        const Plan one = make_plan(table, objective, Aggregate::single);
        if (std::isfinite(single)) {
            ASSERT_DOUBLE_EQ(one.expected.energy.count, single) << round;
        }
        EXPECT_EQ(make_plan(table, objective, Aggregate::automatic).energy_pct(), 0);
    }
}

TEST(Planner, KeepUnderStandsBesideARelativeBound) {
    Profile profile{"g"};
    profile.add(row("a", auto_clock, 10, 100));
    profile.add(row("a", {1000}, 10.4, 80));
    profile.add(row("a", {500}, 14, 50));
    const CostTable table = mean_costs(profile);
    const auto clock = [&](const Objective& objective) {
        return make_plan(table, objective, Aggregate::local).kernels[0].clock.core;
    };
    EXPECT_EQ(clock(keep_under(Seconds{20})), Megahertz{500});
    EXPECT_EQ(clock(keep_under(Seconds{11})), Megahertz{1000});
    EXPECT_EQ(clock(keep_under(relaxed_waste(0.05), Seconds{20})), Megahertz{1000});
    EXPECT_EQ(clock(keep_under(relaxed_waste(0.05), Seconds{10.1})), auto_clock);
    EXPECT_EQ(clock(keep_under(Seconds{1})), auto_clock) << "nothing meets it: as fast as it can";
    EXPECT_THROW(keep_under(Seconds{0}), Error);
    EXPECT_THROW(keep_under(Seconds{std::nan("")}), Error);
}

TEST(Planner, KernelsThatAreFasterAtLowerClocksAreUsedAsMeasured) {
    Profile profile{"g"};
    profile.add(row("a", auto_clock, 10, 100));
    profile.add(row("a", {900}, 11, 95));
    profile.add(row("a", {800}, 9.5, 80));
    const Plan plan = make_plan(mean_costs(profile), strict_waste(), Aggregate::global);
    EXPECT_EQ(plan.kernels[0].clock, (ClockPoint{{800}, auto_clock}));
}

TEST(Planner, ProductsAreOfSumsNotSumsOfProducts) {
    const CostTable table = trading();
    const Plan global = make_plan(table, energy_delay(), Aggregate::global);
    double best = 1e300;
    for (const auto& a : table.kernels[0].points) {
        for (const auto& b : table.kernels[1].points) {
            const Cost sum = a.cost + b.cost * 2;
            best = std::min(best, sum.time.count() * sum.energy.count);
        }
    }
    EXPECT_DOUBLE_EQ(global.expected.time.count() * global.expected.energy.count, best);
}

/// The best clock is slower than the fastest one that saves, and faster than the most frugal.
TEST(Planner, ASingleClockIsTheBestByItsScore) {
    Profile profile{"g"};
    profile.add(row("k", auto_clock, 0.1, 10));
    profile.add(row("k", {1000}, 0.106, 4));
    profile.add(row("k", {1200}, 0.1045, 9));
    profile.add(row("k", {1300}, 0.101, 9.1));
    const CostTable table = mean_costs(profile);
    for (const Aggregate aggregate : {Aggregate::single, Aggregate::local, Aggregate::global}) {
        for (const Objective& objective : {with_node_power(relaxed_waste(0.05), Watts{400}),
                                           with_max_slowdown(energy_delay(), 0.05)}) {
            const Plan plan = make_plan(table, objective, aggregate);
            EXPECT_EQ(plan.kernels[0].clock.core, Megahertz{1300})
                << objective.name << ", " << to_string(aggregate);
            EXPECT_EQ(plan.gap_pct, 0);
        }
    }
}

/// Noisy curves of a kernel's time and energy by its clock.
CostTable noisy_curves(std::mt19937_64& random, int kernels) {
    const auto uniform = [&](double from, double to) {
        return std::uniform_real_distribution<double>{from, to}(random);
    };
    CostTable table{"g", {}, {}};
    for (int k = 0; k < kernels; ++k) {
        KernelCosts costs;
        costs.key.name = "k" + std::to_string(k);
        const double memory = uniform(0, 1);
        const double size = uniform(0.5, 2);
        costs.points.push_back({{}, {Seconds{size}, Joules{500 * size}}});
        for (int p = 0; p < 11; ++p) {
            const double clock = 0.48 + 0.05 * p;
            const double time =
                size * (memory + (1 - memory) / clock) * (1 + 0.003 * uniform(-1, 1));
            const double watts = (100 + 400 * clock * clock * clock) * (1 + 0.01 * uniform(-1, 1));
            costs.points.push_back({{Megahertz{static_cast<unsigned>(2000 * clock)}, auto_clock},
                                    {Seconds{time}, Joules{time * watts}}});
        }
        std::sort(costs.points.begin(), costs.points.end(),
                  [](const PointCost& a, const PointCost& b) { return a.clock < b.clock; });
        for (std::size_t p = 0; p < costs.points.size(); ++p)
            if (costs.points[p].clock.is_auto()) costs.baseline = p;
        table.kernels.push_back(costs);
    }
    return table;
}

TEST(Planner, ManyClocksAreNoWorseThanOneByTheScore) {
    std::mt19937_64 random{1};
    for (int i = 0; i < 1500; ++i) {
        const CostTable table = noisy_curves(random, 1 + i % 3);
        for (const Objective& objective : {with_max_slowdown(energy_delay_squared(), 0.05),
                                           with_node_power(relaxed_waste(0.05), Watts{600})}) {
            const auto score = [&](Aggregate aggregate) {
                return objective.score(make_plan(table, objective, aggregate).expected,
                                       table.baseline_cost());
            };
            ASSERT_LE(score(Aggregate::global), score(Aggregate::single) * (1 + 1e-9))
                << objective.name << ", table " << i;
        }
    }
}

TEST(Planner, AProfileWithoutItsBaselineIsAnError) {
    Profile profile{"g"};
    EXPECT_THROW(mean_costs(profile), Error);
    profile.add(row("a", auto_clock, 10, 100));
    profile.add(row("b", {900}, 10, 100));
    EXPECT_THROW(mean_costs(profile), Error);
}

TEST(Planner, SamplesAreAveraged) {
    Profile profile{"g"};
    profile.add({{"a", {}}, {}, {Seconds{1}, Joules{10}}, "", 1, 0});
    profile.add({{"a", {}}, {}, {Seconds{3}, Joules{20}}, "", 1, 1});
    EXPECT_EQ(mean_costs(profile).baseline_cost(), (Cost{Seconds{2}, Joules{15}}));
}

TEST(Objective, RejectsWhatMakesNoSense) {
    EXPECT_THROW(relaxed_waste(-0.01), Error);
    EXPECT_THROW(relaxed_waste(std::nan("")), Error);
    EXPECT_THROW(zeus_cost(1.5, Watts{300}), Error);
    EXPECT_THROW(zeus_cost(0.5, Watts{0}), Error);
}

TEST(Objective, ZeusWeighsEnergyAgainstTimeAtFullPower) {
    const Objective zeus = zeus_cost(0.25, Watts{300});
    EXPECT_DOUBLE_EQ(zeus.score({Seconds{2}, Joules{100}}, {}), 0.25 * 100 + 0.75 * 300 * 2);
}

}  // namespace
}  // namespace kdvfs::tune
