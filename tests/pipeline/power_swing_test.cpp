// SPDX-License-Identifier: MIT
// Power over an iteration: cases by hand, and sums over a fine grid of time as another way.
#include <kdvfs/train/pipeline_power.hpp>
#include <kdvfs/train/schedules.hpp>
#include <kdvfs/tune/power_swing.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

constexpr Seconds ms{1e-3};

TEST(PowerSwing, IsThatOfTheMeanOverTheWindow) {
    const std::vector<PowerStep> steps{{40 * ms, {100}}, {60 * ms, {300}}};
    PowerSwing swing = power_swing(steps, 10 * ms);
    EXPECT_NEAR(swing.mean.count, 220, 1e-9);
    EXPECT_NEAR(swing.lowest.count, 100, 1e-9);
    EXPECT_NEAR(swing.highest.count, 300, 1e-9);
    EXPECT_NEAR(swing.steepest_w_per_ms, 20, 1e-6);
    // 50 ms hold 10 ms of the high step beside the low one.
    swing = power_swing(steps, 50 * ms);
    EXPECT_NEAR(swing.lowest.count, 140, 1e-9);
    EXPECT_NEAR(swing.highest.count, 300, 1e-9);
    EXPECT_NEAR(swing.steepest_w_per_ms, 4, 1e-6);
    // Whole iterations are all alike; 150 ms hold half an iteration more.
    EXPECT_NEAR(power_swing(steps, 200 * ms).range().count, 0, 1e-9);
    EXPECT_NEAR(power_swing(steps, 150 * ms).range().count, (300.0 - 140.0) / 3, 1e-9);
    EXPECT_EQ(power_swing({}, 10 * ms).range(), Watts{});
}

TEST(PowerSwing, IsThatOfAFineGridOfTime) {
    std::mt19937_64 random{5};
    std::uniform_int_distribution<int> lengths{1, 30};
    std::uniform_real_distribution<double> powers{50, 500};
    for (int round = 0; round < 20; ++round) {
        std::vector<PowerStep> steps;
        std::vector<double> grid;  // a value a millisecond
        for (int i = 0; i < 6; ++i) {
            const int length = lengths(random);
            steps.push_back({length * ms, {powers(random)}});
            grid.insert(grid.end(), static_cast<std::size_t>(length), steps.back().power.count);
        }
        const std::size_t window = 7;
        const auto mean = [&](std::size_t end) {
            double sum = 0;
            for (std::size_t k = 0; k < window; ++k) sum += grid[(end + k) % grid.size()];
            return sum / static_cast<double>(window);
        };
        double lowest = mean(0);
        double highest = mean(0);
        double steepest = 0;
        for (std::size_t i = 0; i < grid.size(); ++i) {
            lowest = std::min(lowest, mean(i));
            highest = std::max(highest, mean(i));
            steepest = std::max(steepest, std::abs(mean(i + 1) - mean(i)));
        }
        const PowerSwing swing = power_swing(steps, window * ms);
        EXPECT_NEAR(swing.lowest.count, lowest, 1e-6);
        EXPECT_NEAR(swing.highest.count, highest, 1e-6);
        EXPECT_NEAR(swing.steepest_w_per_ms, steepest, 1e-6);
    }
}

TEST(PowerSwing, OfSeveralIsThatOfTheirSum) {
    const std::vector<std::vector<PowerStep>> parts{{{10 * ms, {100}}, {30 * ms, {50}}},
                                                    {{25 * ms, {200}}, {15 * ms, {0}}}};
    const std::vector<PowerStep> sum = sum_power(parts);
    ASSERT_EQ(sum.size(), 3U);
    const double lengths[] = {10, 15, 15};
    const double powers[] = {300, 250, 50};
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(sum[i].length / ms, lengths[i], 1e-9);
        EXPECT_NEAR(sum[i].power.count, powers[i], 1e-9);
    }
}

TEST(PowerSwing, LowerRangesOfAPlanCostWhatTheirClocksTake) {
    // "hungry" takes 60 ms at 300 W, 80 at 200 or 120 at 100; "light" 40 ms at 100 W.
    KernelCosts hungry;
    hungry.key = {"hungry", {}};
    hungry.points = {{{{600}, auto_clock}, {120 * ms, {12}}},
                     {{{900}, auto_clock}, {80 * ms, {16}}},
                     {{{1200}, auto_clock}, {60 * ms, {18}}}};
    CostTable table;
    table.kernels = {hungry};
    Plan plan;
    plan.kernels = {{{"hungry", {}}, 1, {}, {}, {60 * ms, {18}}},
                    {{"light", {}}, 4, {}, {}, {10 * ms, {1}}}};
    const auto rows = lower_ranges(plan, table, 10 * ms);
    ASSERT_EQ(rows.size(), static_cast<std::size_t>(swing_caps));
    EXPECT_NEAR(rows[0].time / ms, 100, 1e-9);
    EXPECT_NEAR(rows[0].swing.range().count, 200, 1e-9);
    EXPECT_NEAR(rows[1].cap.count, 276, 1e-9);
    for (std::size_t row = 1; row < 5; ++row) {
        EXPECT_NEAR(rows[row].time / ms, 120, 1e-9);
        EXPECT_NEAR(rows[row].swing.range().count, 100, 1e-9);
        EXPECT_NEAR(rows[row].swing.steepest_w_per_ms, 10, 1e-6);
    }
    EXPECT_NEAR(rows[5].time / ms, 160, 1e-9) << "below 180 W";
    EXPECT_NEAR(rows[5].swing.range().count, 0, 1e-9);
}

}  // namespace
}  // namespace kdvfs::tune

namespace kdvfs::train {
namespace {

constexpr Seconds ms{1e-3};

/// Two stages, one microbatch: forward 10 ms at 300 W (20 at 200), backward 20 ms at 400 W (30 at
/// 250), 100 W in waits.
Pipeline two_stages() {
    std::vector<Curve> curves;
    curves.push_back(
        Curve{"forward",
              {{{{1200}, auto_clock}, 10 * ms, {3}}, {{{900}, auto_clock}, 20 * ms, {4}}},
              {50}});
    curves.push_back(
        Curve{"backward",
              {{{{1200}, auto_clock}, 20 * ms, {8}}, {{{900}, auto_clock}, 30 * ms, {7.5}}},
              {50}});
    const Operation forward{0, Pass::forward, 0, 0, 0};
    const Operation backward{0, Pass::backward, 0, 0, 1};
    return make_graph({{forward, backward}, {forward, backward}}, {{0, 2}, {3, 1}}, curves, {50});
}

TEST(PipelinePower, IsOfOperationsAndWaits) {
    const Pipeline pipeline = two_stages();
    const auto [operations, time] = run_below(pipeline, {1000});
    EXPECT_NEAR(time / ms, 60, 1e-9);  // forward, forward, backward, backward
    const auto stages = stage_powers(pipeline, operations, time);
    const std::vector<tune::PowerStep> first{{10 * ms, {300}}, {30 * ms, {50}}, {20 * ms, {400}}};
    ASSERT_EQ(stages[0].size(), first.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
        EXPECT_NEAR(stages[0][i].length / ms, first[i].length / ms, 1e-9);
        EXPECT_NEAR(stages[0][i].power.count, first[i].power.count, 1e-9);
    }
    // Stage 1 waits 10 ms, works 30 ms, waits 20 ms.
    const tune::PowerSwing all = tune::power_swing(tune::sum_power(stages), 10 * ms);
    EXPECT_NEAR(all.lowest.count, 350, 1e-6);
    EXPECT_NEAR(all.highest.count, 450, 1e-6);
    EXPECT_NEAR(all.steepest_w_per_ms, 10, 1e-6);
}

TEST(PipelinePower, LowerRangesCostTheLongestPathBelowTheCap) {
    const auto rows = lower_ranges(two_stages(), 10 * ms);
    EXPECT_NEAR(rows[0].cap.count, 400, 1e-9);
    EXPECT_NEAR(rows[0].time / ms, 60, 1e-9);
    EXPECT_NEAR(rows[1].time / ms, 80, 1e-9) << "both backwards below 368 W";
    EXPECT_NEAR(rows[1].swing.range().count, 50, 1e-6);
    EXPECT_NEAR(rows[4].time / ms, 100, 1e-9) << "both forwards below 272 W, too";
    EXPECT_NEAR(rows[4].swing.range().count, 50, 1e-6);
}

TEST(PipelinePower, HasTheMeanOfThePlan) {
    Pipeline pipeline = two_stages();
    pipeline.waiting = {{{{900}, {50}}}, {90}};
    const Frontier frontier{pipeline, {}};
    PipelinePlan plan = make_plan(frontier, frontier.shortest(), Clocks::one);
    plan_waits(pipeline, 1 * ms, plan);
    ASSERT_FALSE(plan.waits.empty());
    const auto stages = stage_powers(pipeline, run_operations(pipeline, plan), plan.time);
    const tune::PowerSwing all = tune::power_swing(tune::sum_power(stages), 10 * ms);
    EXPECT_NEAR(all.mean.count, (plan.total / plan.time).count, 1e-6);
}

}  // namespace
}  // namespace kdvfs::train
