// SPDX-License-Identifier: MIT
#include <kdvfs/detail/tune/loss_budget.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace kdvfs::tune {
namespace {

TEST(LossBudget, WaitsUntilASlowBlockIsAffordable) {
    LossBudget budget{0.05};
    budget.set_baseline(Seconds{1});
    // 2 iterations of 3 s cost 4 s, which is 5 % of 80 iterations.
    EXPECT_EQ(budget.wait_before(2, Seconds{3}), 78U);
    for (int i = 0; i < 78; ++i) budget.count_iteration();
    EXPECT_EQ(budget.wait_before(2, Seconds{3}), 0U);
    budget.charge(2, Seconds{3}, Seconds{1});
    budget.count_iteration();
    budget.count_iteration();
    EXPECT_DOUBLE_EQ(budget.slowdown(), 0.05);
    EXPECT_EQ(budget.wait_before(1, Seconds{1}), 0U);
    EXPECT_EQ(budget.wait_before(1, Seconds{2}), 19U);
    budget.charge(2, Seconds{2}, Seconds{3});  // it was not that slow
    EXPECT_EQ(budget.wait_before(1, Seconds{2}), 0U);
}

/// Slow blocks of random lengths, each run as soon as it is affordable, by what it will take at
/// most: the loss is within the budget after each of their iterations, and nearly all is used.
TEST(LossBudget, HoldsAtEveryMomentAndIsUsed) {
    constexpr double bound = 0.01;
    constexpr Seconds start{20};
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        std::mt19937_64 random{seed};
        std::uniform_real_distribution<double> drawn{0, 1};
        const Seconds iteration{0.05 + drawn(random)};
        LossBudget budget{bound, start};
        budget.set_baseline(iteration);
        Seconds lost{0};
        Seconds passed{0};
        while (passed < Seconds{20000}) {
            const auto slow = static_cast<std::uint32_t>(1 + random() % 20);
            const Seconds most = iteration * (1 + drawn(random));
            const Seconds each = iteration + (most - iteration) * drawn(random);
            for (std::uint32_t i = budget.wait_before(slow, most); i > 0; --i) {
                budget.count_iteration();
                passed += iteration;
            }
            for (std::uint32_t i = 0; i < slow; ++i) {
                budget.count_iteration();
                passed += iteration;
                lost += each - iteration;
            }
            ASSERT_LE(lost, start + bound * passed + Seconds{1e-9}) << "seed " << seed;
            budget.charge(slow, each, iteration);
            ASSERT_NEAR(budget.lost().count(), lost.count(), 1e-6);
        }
        EXPECT_LT(budget.left(), Seconds{25}) << "seed " << seed;
    }
}

}  // namespace
}  // namespace kdvfs::tune
