// SPDX-License-Identifier: MIT
#include <kdvfs/detail/measure/attribution.hpp>
#include <tests/measure/metered_work.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;

TEST(EnergyGroups, PutsTogetherWhatIsOnlyKnownTogether) {
    // 0 is told. 1 and 2 trade energy: only their sum is known. 3 is unknown, and nothing opposes.
    const std::vector<double> joules{100, 50, 50, 40};
    SymmetricMatrix covariance{4};
    covariance(0, 0) = 1;
    covariance(1, 1) = covariance(2, 2) = 400;
    covariance(1, 2) = -399;
    covariance(3, 3) = 100;
    const EnergyGroups groups{joules, covariance, 1.96, 0.1};
    ASSERT_EQ(groups.found().size(), 1U);
    EXPECT_EQ(groups.found()[0].units, (std::vector<std::size_t>{1, 2}));
    EXPECT_EQ(groups.found()[0].joules, 100);
    EXPECT_NEAR(groups.found()[0].half_width, 1.96 * std::sqrt(2.0), 1e-9);
}

class Attributed : public testing::Test {
protected:
    KernelTable table;
    KernelId gemm = table.id("gemm");
    KernelId gelu = table.id("gelu");
    EnergyAccumulator accumulator{table};
    MeteredWork work{accumulator, {.period = 10ms}, 1};
    std::mt19937_64 random{2};

    Duration microseconds(int from, int to) {
        return std::chrono::microseconds{std::uniform_int_distribution{from, to}(random)};
    }
    static void expect_balanced(const EnergyTotals& totals) {
        EXPECT_DOUBLE_EQ((totals.together.joules + totals.unexplained).count, totals.counter.count);
    }
};

TEST_F(Attributed, FindsPowersAndBalancesTheCounter) {
    for (int i = 0; i < 4000; ++i) {
        work.run(gemm, microseconds(500, 4000), 650);
        work.run(gelu, microseconds(500, 4000), 300);
        if (i % 8 == 0) work.idle(microseconds(500, 9000));
    }
    const Attribution found = attribute(accumulator.sums());
    ASSERT_EQ(found.powers.size(), 2U);
    ASSERT_TRUE(found.powers[0].energy.resolved);
    EXPECT_NEAR(found.powers[0].power().count, 650, 2);
    EXPECT_NEAR(found.powers[1].power().count, 300, 2);
    EXPECT_TRUE(found.totals.idle.resolved);
    EXPECT_LT(std::abs(found.totals.unexplained / found.totals.counter), 1e-3);
    expect_balanced(found.totals);
}

TEST_F(Attributed, AFixedMixIsTheGroupAndNeverSplit) {
    for (int i = 0; i < 4000; ++i) {
        work.run(gemm, 3ms, 650);
        work.run(gelu, 2ms, 300);
    }
    const Attribution found = attribute(accumulator.sums());
    for (const AttributedKernel& kernel : found.kernels) EXPECT_FALSE(kernel.energy.resolved);
    ASSERT_EQ(found.groups.size(), 1U);
    EXPECT_EQ(found.groups[0].kernels.size(), 2U);
    EXPECT_NEAR(found.groups[0].energy.joules.count, work.joules(), 0.01 * work.joules());
    expect_balanced(found.totals);
}

TEST_F(Attributed, WithoutSamplesThereIsNoNumber) {
    accumulator.add(KernelInterval{.kernel = gemm, .start = {}, .end = TimePoint{1ms}});
    accumulator.advance(TimePoint{2ms});
    const Attribution found = attribute(accumulator.sums());
    EXPECT_TRUE(found.powers.empty());
    EXPECT_FALSE(found.totals.kernels.resolved);
    EXPECT_EQ(found.fit.rows, 0U);
}

TEST_F(Attributed, AKernelThatRanOutsideAllSamplesIsNotTold) {
    for (int i = 0; i < 1000; ++i) work.run(gemm, microseconds(500, 4000), 650);
    accumulator.add(KernelInterval{
        .kernel = gelu, .start = TimePoint{work.now()}, .end = TimePoint{work.now() + 1ms}});
    accumulator.advance(TimePoint{work.now() + 2ms});
    for (const AttributedKernel& kernel : attribute(accumulator.sums()).kernels) {
        EXPECT_EQ(kernel.energy.resolved, kernel.kernel == gemm);
    }
}

/// A sensor's delay gives one kernel what another one lacks: a power that cannot be shows both.
TEST_F(Attributed, WhereASensorMayLagAnImpossiblePowerResolvesNone) {
    for (int i = 0; i < 4000; ++i) {
        work.run(gemm, microseconds(500, 4000), 650);
        work.run(gelu, microseconds(500, 4000), 300);
    }
    EnergySums sums = accumulator.sums();
    sums.possible.limit = 580;
    sums.room.assign(sums.columns_seen(), 0);
    for (const bool lags : {false, true}) {
        sums.sensor_may_lag = lags;
        const Attribution found = attribute(sums);
        ASSERT_EQ(found.kernels.size(), 2U);
        EXPECT_FALSE(found.kernels[0].energy.resolved);
        EXPECT_EQ(found.kernels[1].energy.resolved, !lags);
    }
}

/// What the powers lack of the counter may lie inside iterations or between them.
TEST_F(Attributed, AnIterationsIntervalHasWhatThePowersLack) {
    constexpr double lack = 500;  // J
    for (int i = 0; i < 4000; ++i) {
        work.run(gemm, microseconds(500, 4000), 650);
        work.run(gelu, microseconds(500, 4000), 300);
    }
    EnergySums sums = accumulator.sums();
    LevelTime half{.counted_seconds = 0.5 * sums.counted_time.count()};
    for (const double seconds : sums.column_seconds) half.column_seconds.push_back(0.5 * seconds);
    const EnergyEstimate before = Attributing{sums}.energy(half);
    sums.counter += Joules{lack};
    const EnergyEstimate after = Attributing{sums}.energy(half);
    EXPECT_NEAR((after.joules - before.joules).count, 0.5 * lack, 1e-6);
    EXPECT_GT(after.half_width.count, 0.5 * lack);
}

TEST_F(Attributed, AStoppedLoggerLeavesItsTimeOut) {
    for (int i = 0; i < 1000; ++i) work.run(gemm, microseconds(500, 4000), 650);
    const double counted = accumulator.sums().counter.count;
    for (int i = 0; i < 1000; ++i) {
        const TimePoint start{work.now() + i * 2ms};
        accumulator.add(KernelInterval{.kernel = gelu, .start = start, .end = start + 2ms});
    }
    accumulator.advance(TimePoint{work.now() + 3s});
    EXPECT_EQ(accumulator.sums().counter.count, counted);
    const Attribution found = attribute(accumulator.sums());
    for (const AttributedKernel& kernel : found.kernels) {
        EXPECT_EQ(kernel.energy.resolved, kernel.kernel == gemm);
    }
    EXPECT_NEAR(found.totals.kernels.joules.count, counted, 0.01 * counted);
}

}  // namespace
}  // namespace kdvfs::measure
