// SPDX-License-Identifier: MIT
#include <kdvfs/detail/solve/knapsack.hpp>
#include <kdvfs/detail/tune/segments.hpp>
#include <kdvfs/tune/segments.hpp>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace kdvfs::tune {
namespace {

/// Times are multiples of 1/8 in a third of the cases, so that ties happen.
kdvfs::detail::MultipleChoice random_problem(std::mt19937_64& random, std::size_t classes,
                                             std::size_t choices) {
    std::uniform_real_distribution<double> uniform{0.1, 10};
    const bool coarse = random() % 3 == 0;
    kdvfs::detail::MultipleChoice problem;
    for (std::size_t i = 0; i < classes; ++i) {
        const double scale = std::pow(10.0, static_cast<double>(random() % 4) - 2);
        std::vector<kdvfs::detail::Choice> options;
        for (std::size_t j = 0; j < choices; ++j) {
            kdvfs::detail::Choice choice{uniform(random), uniform(random)};
            if (coarse)
                choice = {std::ceil(choice.time * 8) / 8, std::ceil(choice.energy * 8) / 8};
            else
                choice = {choice.time * scale, choice.energy * scale};
            options.push_back(choice);
        }
        problem.add_class(options);
    }
    return problem;
}

/// Every sum that the classes from `first` to before `last` allow.
std::vector<kdvfs::detail::Choice> all_sums(const kdvfs::detail::MultipleChoice& problem,
                                            std::size_t first, std::size_t last) {
    std::vector<kdvfs::detail::Choice> sums{{}};
    for (std::size_t i = first; i < last; ++i) {
        std::vector<kdvfs::detail::Choice> longer;
        for (const kdvfs::detail::Choice& sum : sums)
            for (const kdvfs::detail::Choice& choice : problem[i]) longer.push_back(sum + choice);
        sums = std::move(longer);
    }
    return sums;
}

/// Tries every selection there is.
double brute_force(const kdvfs::detail::MultipleChoice& problem, const Objective& objective,
                   const Cost& baseline) {
    double best = std::numeric_limits<double>::infinity();
    const double limit = time_limit(objective, baseline).count();
    const bool only_energy = objective.name == "waste";
    const std::vector<kdvfs::detail::Choice> tails =
        all_sums(problem, problem.size() / 2, problem.size());
    for (const kdvfs::detail::Choice& head : all_sums(problem, 0, problem.size() / 2)) {
        for (const kdvfs::detail::Choice& tail : tails) {
            const kdvfs::detail::Choice total{head.time + tail.time, head.energy + tail.energy};
            if (total.time > limit) continue;
            best = std::min(best, only_energy
                                      ? total.energy
                                      : objective.score(kdvfs::detail::to_cost(total), baseline));
        }
    }
    return best;
}

Cost first_choices(const kdvfs::detail::MultipleChoice& problem) {
    kdvfs::detail::Choice total;
    for (std::size_t i = 0; i < problem.size(); ++i) total += problem[i][0];
    return kdvfs::detail::to_cost(total);
}

void expect_equal_to_brute_force(const Objective& objective, int instances, std::size_t classes,
                                 std::size_t choices, std::uint64_t seed) {
    std::mt19937_64 random{seed};
    double widest_gap = 0;
    for (int i = 0; i < instances; ++i) {
        const kdvfs::detail::MultipleChoice problem = random_problem(random, classes, choices);
        const Cost baseline = first_choices(problem);
        const auto found = kdvfs::detail::minimise(problem, objective, baseline);
        ASSERT_TRUE(found.has_value());
        const double score =
            objective.score(kdvfs::detail::to_cost(found->selection.total), baseline);
        const double best = brute_force(problem, objective, baseline);
        ASSERT_NEAR(score, best, 1e-9 * best) << objective.name << ", instance " << i;
        ASSERT_LE(found->selection.total.time, time_limit(objective, baseline).count());
        ASSERT_EQ(found->selection.total, kdvfs::detail::sum_of(problem, found->selection.chosen));
        widest_gap = std::max(widest_gap, found->gap_pct);
    }
    EXPECT_LT(widest_gap, 1e-6) << objective.name;
}

TEST(Knapsack, EqualsBruteForceOnThousandsOfSmallInstances) {
    for (const double slowdown : {0.0, 0.01, 0.05, 0.3})
        expect_equal_to_brute_force(relaxed_waste(slowdown), 1500, 4, 8, 11);
}

TEST(Knapsack, EqualsBruteForceOnSixKernelsOfEightPoints) {
    expect_equal_to_brute_force(strict_waste(), 1000, 6, 8, 12);
    expect_equal_to_brute_force(relaxed_waste(0.02), 1000, 6, 8, 13);
    expect_equal_to_brute_force(energy_delay(), 100, 6, 8, 14);
}

TEST(Knapsack, ProductsEqualBruteForceOnThousandsOfSmallInstances) {
    expect_equal_to_brute_force(energy_delay(), 1500, 4, 8, 21);
    expect_equal_to_brute_force(energy_delay_squared(), 1500, 4, 8, 22);
    expect_equal_to_brute_force(minimum_energy(), 1500, 4, 8, 23);
    expect_equal_to_brute_force(zeus_cost(0.5, Watts{3}), 1500, 4, 8, 24);
}

/// At a time limit the least energy is not the best of a score that weighs time.
void expect_bounded_score(Objective objective, std::size_t classes, double not_best_of,
                          double widest_loss_pct) {
    std::mt19937_64 random{25};
    int not_best = 0;
    constexpr int instances = 1000;
    for (int i = 0; i < instances; ++i) {
        const kdvfs::detail::MultipleChoice problem = random_problem(random, classes, 8);
        const Cost baseline = first_choices(problem);
        objective.max_slowdown = 0.05 * (i % 4);
        const auto found = kdvfs::detail::minimise(problem, objective, baseline);
        ASSERT_TRUE(found.has_value());
        ASSERT_LE(found->selection.total.time, time_limit(objective, baseline).count());
        const double whole = objective.score(baseline, baseline);
        const double best = brute_force(problem, objective, baseline);
        const double lost_pct =
            100 *
            (objective.score(kdvfs::detail::to_cost(found->selection.total), baseline) - best) /
            whole;
        ASSERT_LE(lost_pct, found->gap_pct + 1e-7) << objective.name << ", instance " << i;
        ASSERT_LE(lost_pct, widest_loss_pct) << objective.name << ", instance " << i;
        not_best += lost_pct > 1e-7 ? 1 : 0;
        if (classes == 1) {
            ASSERT_EQ(found->gap_pct, 0) << i;
        }
    }
    EXPECT_LE(not_best, not_best_of * instances) << objective.name;
}

TEST(Knapsack, ScoresAtATimeLimitAreNearBruteForce) {
    for (const Objective& objective :
         {energy_delay(), energy_delay_squared(), zeus_cost(0.5, Watts{3}),
          with_node_power(minimum_energy(), Watts{2})})
        expect_bounded_score(objective, 1, 0, 0);
    expect_bounded_score(with_node_power(minimum_energy(), Watts{2}), 4, 0, 1e-7);
    expect_bounded_score(zeus_cost(0.5, Watts{3}), 4, 0, 1e-7);
    expect_bounded_score(energy_delay(), 4, 0.005, 2);
    expect_bounded_score(energy_delay_squared(), 4, 0, 1e-7);
}

TEST(Knapsack, NothingWhereNotEvenTheFastestIsInTime) {
    kdvfs::detail::MultipleChoice problem;
    const std::vector<kdvfs::detail::Choice> choices{{1, 5}, {2, 3}};
    problem.add_class(choices);
    EXPECT_FALSE(
        kdvfs::detail::solve_knapsack(problem, kdvfs::detail::HullWalk{problem}, 0.5).has_value());
}

TEST(Knapsack, ABoundThatWasCutShortStillHolds) {
    std::mt19937_64 random{31};
    const kdvfs::detail::KnapsackEffort three_a_class{0, 0, 3, 2000};
    const kdvfs::detail::KnapsackEffort ten_in_all{0, 0, 32'768, 2000, 10};
    int cut_short[]{0, 0};
    for (int i = 0; i < 600; ++i) {
        const auto& hasty = i % 2 == 0 ? three_a_class : ten_in_all;
        const kdvfs::detail::MultipleChoice problem = random_problem(random, 5, 8);
        const Cost baseline = first_choices(problem);
        const Objective objective = relaxed_waste(0.02);
        const auto found = kdvfs::detail::minimise(problem, objective, baseline, hasty);
        const double best = brute_force(problem, objective, baseline);
        const double bound =
            found->selection.total.energy - found->gap_pct / 100 * baseline.energy.count;
        ASSERT_LE(bound, best * (1 + 1e-12)) << i;
        ASSERT_GE(found->selection.total.energy, best * (1 - 1e-12)) << i;
        cut_short[i % 2] += found->gap_pct > 1e-9 ? 1 : 0;
    }
    for (const int times : cut_short)
        EXPECT_GT(times, 0) << times << "nothing was cut short, so nothing was tested";
}

/// Megabytes that the process had at most. Under sanitizers they say nothing.
long peak_memory() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr long enough_memory = std::numeric_limits<long>::max();
#else
constexpr long enough_memory = 60;
#endif

/// A kernel that saves a little less for each added second at each of its clocks.
KernelCosts smooth_kernel(std::uint32_t clocks, double size, double fixed = 0.5) {
    KernelCosts kernel;
    for (std::uint32_t i = 1; i <= clocks; ++i) {
        const double f = 0.4 + 0.6 * i / clocks;
        const double time = size * (fixed + (1 - fixed) / f);
        kernel.points.push_back(
            {{{1000 + i}, auto_clock}, {Seconds{time}, Joules{time * (100 + 300 * f * f * f)}}});
    }
    kernel.baseline = clocks - 1;
    return kernel;
}

TEST(Knapsack, ManyUndecidedKernelsTakeLittleMemory) {
    kdvfs::detail::MultipleChoice problem;
    std::mt19937_64 random{51};
    std::uniform_real_distribution<double> unlike{0.999, 1.001};
    for (int k = 0; k < 700; ++k) {
        std::vector<kdvfs::detail::Choice> choices;
        for (const PointCost& point : smooth_kernel(40, unlike(random), unlike(random) / 2).points)
            choices.insert(choices.begin(), {point.cost.time.count(), point.cost.energy.count});
        problem.add_class(choices);
    }
    const long before = peak_memory();
    const auto found =
        kdvfs::detail::minimise(problem, relaxed_waste(0.005), first_choices(problem), {0, 0, 64});
    EXPECT_LT(peak_memory() - before, enough_memory);
    EXPECT_LT(found->gap_pct, 0.01);
}

TEST(Knapsack, AProgramOfOneKernelTakesLittleMemory) {
    CostTable table;
    table.kernels.push_back(smooth_kernel(30, 1e-3));
    table.baseline = table.kernels[0].points.back().clock;
    const std::vector<std::size_t> launches(900, 0);
    const SwitchCosts switches = uniform_switch_costs(Seconds{1e-3});
    const SwitchModel model{table, launches, switches};
    const Cost baseline = table.baseline_cost() * 900;
    const long before = peak_memory();
    const Cost found = detail::best_without_latency(model, relaxed_waste(0.005), baseline);
    EXPECT_LT(peak_memory() - before, enough_memory);
    EXPECT_LE(found.time, baseline.time * (1.005 + 1e-9));
    EXPECT_GE(found.time, baseline.time * 1.0049);  // the whole bound is used
    EXPECT_LT(found.energy, baseline.energy);
}

TEST(HullWalk, GoesFromFastestToMostFrugalByFallingPrice) {
    std::mt19937_64 random{41};
    for (int i = 0; i < 200; ++i) {
        const kdvfs::detail::MultipleChoice problem = random_problem(random, 5, 12);
        const kdvfs::detail::HullWalk walk{problem};
        double fastest = 0;
        double frugal = 0;
        for (std::size_t c = 0; c < problem.size(); ++c) {
            const auto by_time = [](const kdvfs::detail::Choice& a,
                                    const kdvfs::detail::Choice& b) { return a.time < b.time; };
            const auto by_energy = [](const kdvfs::detail::Choice& a,
                                      const kdvfs::detail::Choice& b) {
                return a.energy < b.energy;
            };
            fastest += std::min_element(problem[c].begin(), problem[c].end(), by_time)->time;
            frugal += std::min_element(problem[c].begin(), problem[c].end(), by_energy)->energy;
        }
        EXPECT_NEAR(walk.start().total.time, fastest, 1e-9);
        EXPECT_NEAR(walk.selection_after(walk.steps().size()).total.energy, frugal, 1e-9);
        for (std::size_t k = 1; k < walk.steps().size(); ++k)
            EXPECT_GE(walk.steps()[k - 1].price, walk.steps()[k].price);
    }
}

}  // namespace
}  // namespace kdvfs::tune
