// SPDX-License-Identifier: MIT
#include <kdvfs/detail/tune/block_schedule.hpp>
#include <kdvfs/detail/tune/paired_blocks.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace kdvfs::tune::detail {
namespace {

using Blocks = BlockSchedule<int, std::uint32_t>;
constexpr int baseline = 0;

/// Gives out all work that is planned. @returns the numbers and points of its measured stages
std::vector<std::pair<std::uint64_t, int>> run(Blocks& blocks) {
    std::vector<std::pair<std::uint64_t, int>> ran;
    while (!blocks.is_idle()) {
        if (blocks.begins_measuring())
            ran.emplace_back(blocks.stage().number, blocks.stage().point);
        blocks.pass(1);
    }
    return ran;
}

TEST(BlockSchedule, RunsWantedPointsInRandomOrderBesideTheBaseline) {
    std::map<std::vector<int>, int> orders;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        Blocks blocks{baseline, seed};
        blocks.wanted() = {1, 2, 3};
        blocks.shuffle();
        while (!blocks.wanted().empty()) blocks.add(blocks.take(1).front(), 2, 3);
        EXPECT_EQ(blocks.left(), 6U);
        std::vector<int> order;
        std::uint64_t number = 0;
        for (const auto& [stage, point] : run(blocks)) {
            EXPECT_EQ(stage, ++number);
            if (stage % 2 == 1)
                EXPECT_EQ(point, baseline);
            else
                order.push_back(point);
        }
        EXPECT_EQ(blocks.ended(), 6U);
        ++orders[order];
    }
    EXPECT_EQ(orders.size(), 6U);
    for (const auto& [order, times] : orders) EXPECT_LE(times, 25);
}

TEST(BlockSchedule, MeasuresTheLastPartOfAStage) {
    Blocks blocks{baseline};
    blocks.add(1, 2, 3, 10);  // ten at the baseline before it
    std::vector<bool> measured;
    for (; !blocks.is_idle(); blocks.pass(1)) measured.push_back(blocks.is_measured());
    EXPECT_EQ(measured, (std::vector<bool>{false, false, false, false, false, false, false, true,
                                           true, true, false, false, true, true, true}));
}

TEST(BlockSchedule, TriesAPointThreeTimesEachTwiceAsLong) {
    Blocks blocks{baseline};
    blocks.wanted() = {1};
    for (std::uint32_t longer = 1; longer <= 4; longer *= 2) {
        EXPECT_EQ(blocks.growth(1), longer);
        EXPECT_TRUE(blocks.given_up().empty());
        ASSERT_FALSE(blocks.wanted().empty());
        const std::uint64_t number = blocks.add(blocks.take(1), 1, 1, 1, 0);
        EXPECT_TRUE(blocks.has_blocks_out());
        run(blocks);
        blocks.came_back(number, 1, false);
        EXPECT_FALSE(blocks.has_blocks_out());
    }
    EXPECT_EQ(blocks.given_up().count(1), 1U);
    EXPECT_TRUE(blocks.wanted().empty());
}

TEST(BlockSchedule, OneOfSeveralRanksIsEnough) {
    Blocks blocks{baseline};
    blocks.wanted() = {1};
    const std::uint64_t number = blocks.add(blocks.take(2), 1, 1, 1, 0);
    ASSERT_TRUE(run(blocks).back().first == number);
    blocks.came_back(number, 1, true);
    EXPECT_TRUE(blocks.has_blocks_out());
    blocks.came_back(number, 1, false);
    EXPECT_FALSE(blocks.has_blocks_out());
    EXPECT_TRUE(blocks.wanted().empty());
}

/// A board whose kernels take longer by a drift that is drawn: a walk, and noise of each block.
class DriftingBoard {
public:
    DriftingBoard(double drift, double noise, std::uint64_t seed)
        : drift_{drift}, noise_{noise}, random_{seed} {}

    MeasuredBlock block(double slowdown) {
        level_ += drift_ * normal_(random_);
        const double off = std::exp(level_ + noise_ * normal_(random_));
        MeasuredBlock found;
        found.block.iterations = 1;
        BlockKernel& kernel = found.kernels.emplace_back();
        kernel.launches = 1;
        kernel.launch = {Seconds{slowdown * off}, Joules{100 * off}};
        kernel.attributed = kernel.launch.energy;
        return found;
    }

private:
    double drift_;
    double noise_;
    std::mt19937_64 random_;
    std::normal_distribution<double> normal_;
    double level_ = 0;
};

/// How far the slowdown found of twelve blocks at one clock is off, in percent, as a root mean
/// square of two hundred sweeps: from the blocks as they were measured, and paired.
std::pair<double, double> off(double drift, double noise) {
    constexpr double slowdown = 1.05;
    constexpr int sweeps = 200;
    double plain = 0;
    double paired = 0;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        DriftingBoard board{drift, noise, static_cast<std::uint64_t>(sweep)};
        PairedBlocks pairs;
        double sums[2][2] = {};  // as measured and paired, at the baseline and at the clock
        std::size_t returned = 0;
        const auto count = [&](const std::vector<MeasuredBlock>& blocks) {
            for (const MeasuredBlock& block : blocks) {
                sums[1][block.block.stage] += std::log(block.kernels[0].launch.time.count());
                ++returned;
            }
        };
        for (std::size_t i = 0; i < 24; ++i) {
            // Blocks at the clock come late in the sweep, as points do that a model asked for.
            const bool at_baseline = i % 2 == 0 || i < 12;
            MeasuredBlock block = board.block(at_baseline ? 1 : slowdown);
            block.block.stage = at_baseline ? 0 : 1;
            sums[0][block.block.stage] += std::log(block.kernels[0].launch.time.count());
            count(pairs.add(std::move(block), at_baseline));
        }
        count(pairs.take_rest());
        EXPECT_EQ(returned, 24U);
        const auto error = [&](const double(&sum)[2]) {
            return 100 * (sum[1] / 6 - sum[0] / 18 - std::log(slowdown));
        };
        plain += error(sums[0]) * error(sums[0]) / sweeps;
        paired += error(sums[1]) * error(sums[1]) / sweeps;
    }
    std::cout << "drift " << 100 * drift << " % a block, noise " << 100 * noise << " %: off by "
              << std::sqrt(plain) << " % as measured, " << std::sqrt(paired)
              << " % paired (simulated, 200 sweeps)\n";
    return {std::sqrt(plain), std::sqrt(paired)};
}

TEST(PairedBlocks, DriftCancels) {
    for (const double noise : {0.0, 0.0005}) {
        const auto [plain, paired] = off(0.002, noise);
        EXPECT_LT(paired, 0.4 * plain);
    }
}

TEST(PairedBlocks, NoiseWithoutDriftIsNotAdded) {
    const auto [plain, paired] = off(0, 0.002);
    EXPECT_LT(paired, 1.15 * plain);
}

}  // namespace
}  // namespace kdvfs::tune::detail
