// SPDX-License-Identifier: MIT
#include <kdvfs/measure/normal_equations.hpp>

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace kdvfs::measure {
namespace {

TEST(Student, AgreesWithTheTables) {
    EXPECT_NEAR(student_95(3), 3.182, 0.003 * 3.182);
    EXPECT_NEAR(student_95(10), 2.228, 0.001);
    EXPECT_NEAR(student_95(1000), 1.962, 0.001);
}

/// Rows of random times whose joules follow known watts, with white noise.
NormalEquations random_rows(const std::vector<double>& watts, std::size_t rows, double noise,
                            std::uint64_t seed) {
    std::mt19937_64 random{seed};
    std::uniform_real_distribution<double> time{0, 1};
    std::normal_distribution<double> error{0, noise};
    NormalEquations equations;
    for (std::size_t j = 0; j < watts.size(); ++j) equations.add_column();
    for (std::size_t i = 0; i < rows; ++i) {
        double joules = noise > 0 ? error(random) : 0;
        for (std::size_t j = 0; j < watts.size(); ++j) {
            const double seconds = time(random);
            equations.add(j, seconds);
            joules += watts[j] * seconds;
        }
        equations.finish_row(joules, 1);
    }
    return equations;
}

TEST(LeastSquares, FindsTheWattsOfExactRows) {
    const std::vector<double> watts{100, 250, 700, 5};
    const LeastSquares solved = random_rows(watts, 20, 0, 1).solve();
    EXPECT_EQ(solved.rank(), 4U);
    for (std::size_t j = 0; j < watts.size(); ++j) EXPECT_NEAR(solved.watts(j), watts[j], 1e-7);
}

TEST(LeastSquares, IntervalsCoverTheTruth) {
    const std::vector<double> watts{100, 250, 700};
    int covered = 0;
    constexpr int seeds = 2000;
    for (int seed = 0; seed < seeds; ++seed) {
        const auto solved = random_rows(watts, 12, 10, static_cast<std::uint64_t>(seed)).solve();
        const Combination sum = solved.combine(std::vector<double>{0, 2, 0});
        const double half_width = student_95(solved.degrees_of_freedom()) * sum.standard_error;
        if (std::abs(sum.joules - 500) <= half_width) ++covered;
    }
    EXPECT_NEAR(covered, 0.95 * seeds, 0.015 * seeds);  // 3 standard errors of the count
}

TEST(LeastSquares, LeavesAMixOpenAndItsSumTold) {
    std::mt19937_64 random{7};
    std::uniform_real_distribution<double> time{0.1, 1};
    NormalEquations equations;
    for (int j = 0; j < 4; ++j) equations.add_column();
    for (int i = 0; i < 30; ++i) {
        const double together = time(random);
        const double alone = time(random);
        equations.add(0, together);
        equations.add(2, 3 * together);  // always three times column 0
        equations.add(3, alone);
        equations.finish_row(100 * together + 3 * 200 * together + 50 * alone, 1);
    }
    const LeastSquares solved = equations.solve();
    EXPECT_EQ(solved.rank(), 2U);
    EXPECT_EQ(solved.group(0), solved.group(2));
    EXPECT_NE(solved.group(0), solved.group(3));
    EXPECT_NE(solved.group(0), solved.group(1));

    EXPECT_GT(solved.combine(std::vector<double>{1, 0, 0, 0}).open_seconds, 0.3);
    const Combination mix = solved.combine(std::vector<double>{1, 0, 3, 0});
    EXPECT_NEAR(mix.open_seconds, 0, 1e-6);
    EXPECT_NEAR(mix.joules, 700, 1e-4);
    const Combination alone = solved.combine(std::vector<double>{0, 0, 0, 2});
    EXPECT_NEAR(alone.open_seconds, 0, 1e-6);
    EXPECT_NEAR(alone.joules, 100, 1e-4);
    EXPECT_EQ(solved.combine(std::vector<double>{0, 1, 0, 0}).open_seconds, 1);
}

TEST(NormalEquations, AColumnAddedLateChangesNothingBefore) {
    NormalEquations equations;
    equations.add_column();
    equations.add(0, 2);
    equations.finish_row(200, 1);
    const std::size_t late = equations.add_column();
    equations.add(0, 1);
    equations.add(late, 1);
    equations.finish_row(150, 1);
    const LeastSquares solved = equations.solve();
    EXPECT_NEAR(solved.watts(0), 100, 1e-9);
    EXPECT_NEAR(solved.watts(late), 50, 1e-9);
    EXPECT_EQ(equations.time(0), 3);
}

TEST(NormalEquations, ADiscardedRowLeavesNoTrace) {
    NormalEquations equations;
    equations.add_column();
    equations.add(0, 5);
    equations.discard_row();
    equations.add(0, 1);
    equations.finish_row(10, 1);
    EXPECT_EQ(equations.rows(), 1U);
    EXPECT_NEAR(equations.solve().watts(0), 10, 1e-9);
}

}  // namespace
}  // namespace kdvfs::measure
