// SPDX-License-Identifier: MIT
#include <kdvfs/tune/segments.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

/// Two kernels: `gemm` is fastest on auto, `copy` as fast at 500 MHz and far cheaper.
CostTable two_kinds() {
    Profile profile{"g"};
    const auto add = [&](const char* kernel, Megahertz core, double time, double energy) {
        profile.add({{kernel, {}}, {core, auto_clock}, {Seconds{time}, Joules{energy}}});
    };
    add("gemm", auto_clock, 1, 100);
    add("gemm", {500}, 2, 90);
    add("copy", auto_clock, 1, 80);
    add("copy", {500}, 1, 40);
    return mean_costs(profile);
}

/// `run` launches of gemm, then as many of copy, and once more.
std::vector<std::size_t> phases(std::size_t run) {
    std::vector<std::size_t> launches;
    for (std::size_t phase = 0; phase < 4; ++phase) launches.insert(launches.end(), run, phase % 2);
    return launches;
}

void expect_sound(const SegmentPlan& plan, std::size_t launches) {
    Cost sum;
    ASSERT_FALSE(plan.segments.empty());
    EXPECT_EQ(plan.segments.front().first, 0U);
    EXPECT_EQ(plan.segments.back().last, launches);
    for (std::size_t s = 0; s < plan.segments.size(); ++s) {
        EXPECT_EQ(plan.segments[s].first, s == 0 ? 0 : plan.segments[s - 1].last);
        EXPECT_LT(plan.segments[s].arrives_in, plan.segments[s].last);
        sum += plan.segments[s].expected;
    }
    EXPECT_NEAR(sum.time.count(), plan.expected.time.count(), 1e-9);
    EXPECT_NEAR(sum.energy.count, plan.expected.energy.count, 1e-9);
}

TEST(Segments, EachPhaseHasItsClockWhereLatencyIsShort) {
    const SegmentPlan plan =
        plan_segments(two_kinds(), phases(10), uniform_switch_costs(Seconds{0.5}), strict_waste());
    expect_sound(plan, 40);
    EXPECT_EQ(plan.reason, "");
    EXPECT_LE(plan.time_pct(), 1e-9);
    // 800 J of 3600 J are waste. Two lowerings arrive half a copy late, and two raises, asked for
    // before the last copy, half a copy early: 20 J each.
    EXPECT_NEAR(plan.expected.energy.count, 3600 - 800 + 4 * 20, 1e-9);
    EXPECT_LE(plan.without_latency.energy.count, plan.expected.energy.count);
    EXPECT_EQ(plan.single_clock, ClockPoint{});
}

TEST(Segments, ARaiseIsAskedForBeforeItIsNeeded) {
    const SegmentPlan plan =
        plan_segments(two_kinds(), phases(10), uniform_switch_costs(Seconds{1.5}), strict_waste());
    expect_sound(plan, 40);
    bool raised = false;
    for (const Segment& segment : plan.segments) {
        if (!segment.clock.is_auto() || segment.lead.count() == 0) continue;
        raised = true;
        EXPECT_DOUBLE_EQ(segment.lead.count(), 1.5);
        // Asked for while copies still run, so that no gemm runs slowly.
        EXPECT_EQ(segment.first % 20, 18U);
    }
    EXPECT_TRUE(raised);
    EXPECT_LE(plan.time_pct(), 1e-9);
}

TEST(Segments, AllLaunchesRunAtOneClockWhereLatencyIsLong) {
    const SegmentPlan plan =
        plan_segments(two_kinds(), phases(10), uniform_switch_costs(Seconds{100}), strict_waste());
    expect_sound(plan, 40);
    EXPECT_EQ(plan.segments.size(), 1U);
    EXPECT_EQ(plan.energy_pct(), 0);
    EXPECT_NE(plan.reason.find("no switch pays"), std::string::npos);
    EXPECT_LT(energy_percent(plan.without_latency, plan.baseline), -20);
}

TEST(Segments, AGainWithinTheNoiseIsNoReasonToSwitch) {
    SegmentOptions options;
    options.worthwhile_pct = 50;
    const SegmentPlan plan = plan_segments(
        two_kinds(), phases(10), uniform_switch_costs(Seconds{0.5}), strict_waste(), options);
    expect_sound(plan, 40);
    EXPECT_EQ(plan.segments.size(), 1U);
    EXPECT_NE(plan.reason.find("less than the 50 % that count"), std::string::npos) << plan.reason;
    EXPECT_NEAR(plan.gap_pct, 20, 1e-6) << "what was left lying is part of the gap";
}

TEST(Segments, TheBoundHoldsWithItsConfidence) {
    CostTable table = two_kinds();
    for (KernelCosts& kernel : table.kernels)
        for (std::size_t p = 0; p < kernel.points.size(); ++p)
            kernel.time_errors.push_back(p == kernel.baseline ? 0 : 0.01);
    const Objective surely = relaxed_waste(0.005);
    const auto plan_at = [&](double confidence) {
        return plan_segments(table, phases(10), uniform_switch_costs(Seconds{0.5}),
                             with_confidence(surely, confidence));
    };
    // 40 launches may take 0.2 s longer. Of the 20 of copy, each may be off by 0.01 s.
    const SegmentPlan unsure = plan_at(0.5);
    EXPECT_LE(unsure.time_pct(), 0.5);
    EXPECT_LT(unsure.energy_pct(), -19.9);
    const SegmentPlan sure = plan_at(0.9);
    expect_sound(sure, 40);
    double slow = 0;  // launches at the lower clock
    for (const Segment& segment : sure.segments)
        if (!segment.clock.is_auto())
            slow += static_cast<double>(segment.last - segment.arrives_in);
    EXPECT_LE(sure.expected.time.count() + 1.2816 * 0.01 * (slow - 2), 40 * 1.005);
    EXPECT_LT(slow, 18);
    EXPECT_LT(sure.energy_pct(), -5);
    // What is promised has no margins in it.
    EXPECT_NEAR(sure.expected.time.count(), 40, 0.03);
}

TEST(Switches, OvertakeOneAnotherWhereLaunchesAskForClocksOfTheirOwn) {
    const CostTable table = two_kinds();
    const auto measure = [&](std::size_t kernel, ClockPoint clock) {
        return table.kernels[kernel].points[clock.is_auto() ? 0 : 1].cost;
    };
    const ClockPoint low{{500}, auto_clock};
    ASSERT_TRUE(table.kernels[0].points[0].clock.is_auto());
    const std::vector<AskedLaunch> launches{{0, {}}, {1, low}, {0, {}}, {1, low}};
    const auto cost_at = [&](Seconds latency, Seconds transition) {
        return replay_launches(launches, {}, uniform_switch_costs(latency, transition, {10}),
                               measure);
    };
    // At once: each launch at its clock. Longer than a launch: no request ever arrives.
    EXPECT_EQ(cost_at(Seconds{0}, Seconds{0}), (Cost{Seconds{4}, Joules{2 * 100 + 2 * 40}}));
    EXPECT_EQ(cost_at(Seconds{3}, Seconds{0}), (Cost{Seconds{4}, Joules{2 * 100 + 2 * 80}}));
    // A quarter of a second late: copies run as long at 80 W, gemms as long at half their speed;
    // each switch ends in a pause of an eighth.
    const Cost late = cost_at(Seconds{0.375}, Seconds{0.125});
    EXPECT_NEAR(late.energy.count,
                2 * (0.25 * 80 + 0.75 * 40) + 2 * (0.125 * 90 + 0.875 * 100) + 4 * 1.25, 1e-9);
    EXPECT_NEAR(late.time.count(), 2 * 1 + 2 * (0.25 + 0.875) + 4 * 0.125, 1e-9);
}

TEST(Segments, UnknownKernelsAreNamed) {
    const std::vector<KernelKey> known{{"copy", {}}, {"gemm", {}}, {"copy", {}}};
    EXPECT_EQ(launch_indices(two_kinds(), known), (std::vector<std::size_t>{1, 0, 1}));
    const std::vector<KernelKey> unknown{{"copy", {}}, {"sort", variant(2)}};
    try {
        launch_indices(two_kinds(), unknown);
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.text().object, "sort#2");
    }
    EXPECT_THROW(launch_indices(two_kinds(), {}), Error);
}

}  // namespace
}  // namespace kdvfs::tune
