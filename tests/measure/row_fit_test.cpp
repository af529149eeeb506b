// SPDX-License-Identifier: MIT
#include <kdvfs/detail/measure/attribution.hpp>
#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/row_fit.hpp>
#include <kdvfs/detail/measure/source_choice.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;

TEST(Student, IsWhatTablesSay) {
    EXPECT_NEAR(student_95(3), 3.182, 0.01);
    EXPECT_NEAR(student_95(10), 2.228, 0.001);
    EXPECT_NEAR(student_95(1e6), 1.960, 0.001);
    EXPECT_TRUE(std::isinf(student_95(0.5)));
}

TEST(SymmetricMatrix, KeepsItsValuesAsItGrows) {
    SymmetricMatrix matrix{1};
    matrix(0, 0) = 2;
    matrix.grow(3);
    matrix(2, 0) = 5;
    EXPECT_EQ(matrix(0, 0), 2);
    EXPECT_EQ(matrix(0, 2), 5);
    EXPECT_EQ(matrix(1, 1), 0);
    const std::array<std::size_t, 2> columns{2, 1};
    const std::array<double, 2> values{3, 4};
    matrix.add_outer(columns, values, 2);
    EXPECT_EQ(matrix(2, 2), 18);
    EXPECT_EQ(matrix(1, 2), 24);
}

TEST(Cholesky, SolvesAndMakesSandwiches) {
    SymmetricMatrix matrix{2};
    matrix(0, 0) = 4;
    matrix(1, 0) = 2;
    matrix(1, 1) = 3;
    const Cholesky factor{matrix};
    const std::vector<double> x = factor.solve({10, 13});
    EXPECT_NEAR(x[0], 0.5, 1e-12);
    EXPECT_NEAR(x[1], 4, 1e-12);
    const SymmetricMatrix inverse = factor.robust_covariance(matrix);
    EXPECT_NEAR(inverse(0, 0), 3.0 / 8, 1e-12);
    EXPECT_NEAR(inverse(0, 1), -2.0 / 8, 1e-12);
    EXPECT_NEAR(factor.inverse_diagonal()[1], 4.0 / 8, 1e-12);
}

TEST(Autoregression, FindsTheOrderAndTheWeights) {
    const std::array<double, 4> first{0.9, 0.81, 0.729, 0.6561};
    const Autoregression found{first, 1000};
    ASSERT_EQ(found.order(), 1U);
    EXPECT_NEAR(found.predictor(5)[0], 0.9, 1e-12);
    EXPECT_NEAR(found.innovation(5), 1 - 0.81, 1e-12);
    EXPECT_EQ(found.innovation(0), 1);
    const std::array<double, 2> white{0.01, -0.02};
    EXPECT_EQ((Autoregression{white, 1000}.order()), 0U);
}

/// Rows of three columns (100, 300, 600 W), each the mean of about two of them.
struct MadeUpRows {
    static constexpr double mean_watts = 1000.0 / 3;

    PowerRows rows;
    RowSums sums;

    /// @param noise   of a row of the mean power, in W, and in proportion to its power
    /// @param lasting correlation of the noise with the row before
    /// @param wrong_every of so many rows one is off by `wrong_by` W
    MadeUpRows(int count, double noise, double lasting = 0, int wrong_every = 0,
               double wrong_by = 0) {
        std::mt19937_64 random{11};
        std::uniform_real_distribution<double> time{0, 1};
        std::normal_distribution<double> normal{0, 1};
        for (int j = 0; j < 3; ++j) sums.add_column();
        double last = 0;
        for (int i = 1; i <= count; ++i) {
            last = lasting * last + std::sqrt(1 - lasting * lasting) * normal(random);
            std::vector<PowerRows::Entry> entries;
            double joules = 0;
            double seconds = 0;
            for (const auto& [column, watts] : {std::pair{0U, 100.0}, {1U, 300.0}, {2U, 600.0}}) {
                const double part = time(random);
                entries.push_back({column, part});
                joules += watts * part;
                seconds += part;
            }
            joules *= 1 + noise / mean_watts * last;
            if (wrong_every > 0 && i % wrong_every == 0) joules += wrong_by * seconds;
            rows.push(entries, joules, i > 1);
        }
    }
    PowerEstimate fit() {
        RowFit{rows, sums}.add_to(sums);
        return PowerEstimate{sums, sums.shares, 500};
    }
};

TEST(RowFit, FindsPowersOfExactRows) {
    const PowerEstimate found = MadeUpRows{500, 0}.fit();
    EXPECT_NEAR(found.watts()[0], 100, 0.1);
    EXPECT_NEAR(found.watts()[1], 300, 0.1);
    EXPECT_NEAR(found.watts()[2], 600, 0.1);
    EXPECT_FALSE(found.whitened());
}

TEST(RowFit, KnowsItsErrorInWhiteNoise) {
    MadeUpRows made{4000, 10};
    const PowerEstimate found = made.fit();
    EXPECT_NEAR(made.sums.autocorrelation(), 0, 0.05);
    EXPECT_NEAR(found.watts()[1], 300, 3);
    // Three columns in equal parts: the gram is rows * (1/9 + spread of the shares).
    EXPECT_GT(std::sqrt(found.covariance()(1, 1)), 0.2);
    EXPECT_LT(std::sqrt(found.covariance()(1, 1)), 1.5);
    EXPECT_NEAR(found.degrees_of_freedom(), 3997, 0.1);
}

TEST(RowFit, NoiseThatLastsIsTakenOut) {
    MadeUpRows white{4000, 10};
    MadeUpRows lasting{4000, 10, 0.9};
    const PowerEstimate plain = white.fit();
    const PowerEstimate found = lasting.fit();
    EXPECT_TRUE(found.whitened());
    EXPECT_NEAR(lasting.sums.autocorrelation(), 0.9, 0.03);
    EXPECT_NEAR(found.watts()[1], 300, 3);
    // Differences of rows hold less of it: intervals are narrower than in white noise.
    EXPECT_LT(found.covariance()(1, 1), plain.covariance()(1, 1));
}

TEST(RowFit, AFewWrongRowsAreDrawnIn) {
    MadeUpRows made{4000, 5, 0, 50, 500};
    const PowerEstimate found = made.fit();
    EXPECT_NEAR(found.watts()[0], 100, 3);
    EXPECT_NEAR(found.watts()[1], 300, 3);
    EXPECT_NEAR(found.watts()[2], 600, 3);
}

TEST(RowFit, BlocksAddUpToTheWhole) {
    MadeUpRows whole{4000, 10};
    MadeUpRows parts{2000, 10};
    const PowerEstimate once = whole.fit();
    parts.fit();
    EXPECT_EQ(parts.sums.rows, 2000);
    RowFit{parts.rows, parts.sums}.add_to(parts.sums);
    const PowerEstimate twice{parts.sums, parts.sums.shares, 500};
    EXPECT_EQ(parts.sums.rows, 4000);
    EXPECT_NEAR(twice.covariance()(2, 2) / once.covariance()(2, 2), 1, 0.3);
}

TEST(RowFit, PowersAreNeverNegative) {
    MadeUpRows made{60, 400};
    const PowerEstimate found = made.fit();
    for (const double watts : found.watts()) EXPECT_GE(watts, 0);
}

TEST(RowFit, WhatNeverVariesIsLeftToThePrior) {
    RowSums sums;
    sums.add_column();
    sums.add_column();
    PowerRows rows;
    const std::array<PowerRows::Entry, 2> mix{{{0, 0.5}, {1, 0.5}}};
    for (int i = 0; i < 100; ++i) rows.push(mix, 400 + i % 2, i > 0);
    RowFit{rows, sums}.add_to(sums);
    const PowerEstimate found{sums, sums.shares, 500};
    EXPECT_NEAR(found.watts()[0], 400.5, 1);
    EXPECT_GT(std::sqrt(found.covariance()(0, 0)), 200);
    const double sum =
        found.covariance()(0, 0) + 2 * found.covariance()(0, 1) + found.covariance()(1, 1);
    EXPECT_LT(std::sqrt(std::abs(sum)), 1);
    EXPECT_NEAR(found.degrees_of_freedom(), 99, 0.1);
}

TEST(SourceChoice, TakesWhatTellsKernelsApart) {
    SelfCheck good;
    good.passed = true;
    good.counted = {510};
    good.drawn = Watts{500};
    good.power_window = 20ms;
    EXPECT_EQ(choose_source(good, {.counter = 100ms, .power = 20ms}).source, EnergyFrom::both);
    EXPECT_NEAR(choose_source(good, {.counter = 100ms, .power = 20ms}).power_scale, 1.02, 1e-9);
    EXPECT_EQ(choose_source(good, {.counter = 1ms, .power = 20ms}).source, EnergyFrom::counter);
    EXPECT_EQ(choose_source(good, {.counter = 100ms, .power = 0ms}).source, EnergyFrom::counter);
    // Means over 20 ms of every 100 ms miss most of the time.
    EXPECT_EQ(choose_source(good, {.counter = 400ms, .power = 100ms}).source, EnergyFrom::counter);
    SelfCheck bad;
    bad.reason = "the counter stands still";
    const SourceChoice choice = choose_source(bad, {.counter = 100ms, .power = 20ms});
    EXPECT_EQ(choice.source, EnergyFrom::power);
    EXPECT_NE(choice.reason.find("the counter stands still"), std::string::npos);
    EXPECT_EQ(choose_source(bad, {}).source, EnergyFrom::nothing);
}

}  // namespace
}  // namespace kdvfs::measure
