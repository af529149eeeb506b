// SPDX-License-Identifier: MIT
#include <kdvfs/measure/robust_rows.hpp>

#include <gtest/gtest.h>

#include <random>

namespace kdvfs::measure {
namespace {

/// Rows of three columns (100, 300, 600 W) with noise; every `wrong_every`-th is off by `wrong_by`.
RobustRows rows(int count, double noise, int wrong_every, double wrong_by) {
    std::mt19937_64 random{11};
    std::uniform_real_distribution<double> time{0, 1};
    std::normal_distribution<double> error{0, noise};
    RobustRows result;
    for (int j = 0; j < 3; ++j) result.add_column();
    for (int i = 1; i <= count; ++i) {
        double joules = noise > 0 ? error(random) : 0;
        for (const auto& [column, watts] : {std::pair{0U, 100.0}, {1U, 300.0}, {2U, 600.0}}) {
            const double seconds = time(random);
            result.add(column, seconds);
            joules += watts * seconds;
        }
        if (wrong_every > 0 && i % wrong_every == 0) joules += wrong_by;
        result.finish_row(joules, 1);
    }
    return result;
}

TEST(RobustRows, KeepsWhiteNoiseAndExactRows) {
    EXPECT_EQ(rows(5000, 5, 0, 0).judged().refused, 0U);
    EXPECT_EQ(rows(5000, 0, 0, 0).judged().refused, 0U);
}

TEST(RobustRows, RefusesJumpsBeforeAndAfterItsFirstBlock) {
    for (const int count : {200, 5000}) {
        const RobustRows sums = rows(count, 1, 50, 200);
        EXPECT_EQ(sums.judged().refused, static_cast<std::uint64_t>(count / 50)) << count;
        const LeastSquares solved = sums.judged().equations.solve();
        EXPECT_NEAR(solved.watts(1), 300, 1);
        EXPECT_NEAR(solved.residual_variance(), 1, 0.3);
    }
}

TEST(RobustRows, KeepsABlockWholeWhenNothingFits) {
    EXPECT_EQ(rows(1024, 1, 3, 200).judged().refused, 0U);
}

TEST(RobustRows, ADiscardedRowLeavesNoTrace) {
    RobustRows sums;
    sums.add_column();
    sums.add(0, 5);
    sums.discard_row();
    sums.add(0, 1);
    sums.finish_row(10, 1);
    EXPECT_EQ(sums.judged().equations.time(0), 1);
}

}  // namespace
}  // namespace kdvfs::measure
