// SPDX-License-Identifier: MIT
#include <kdvfs/detail/measure/energy_accumulator.hpp>
#include <kdvfs/detail/measure/power_windows.hpp>

#include <tests/measure/time_at.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;

TEST(PowerWindows, BecomeEnergyBetweenTheirEnds) {
    PowerWindows windows;
    const auto pair = windows.take({at(10ms), {300}, 4ms});
    ASSERT_EQ(pair.size(), 2U);
    EXPECT_EQ(pair[0].at, at(6ms));
    EXPECT_EQ(pair[1].at, at(10ms));
    EXPECT_NEAR((pair[1].total - pair[0].total).count, 1.2, 1e-12);
    const std::uint32_t segment = pair[0].segment;
    EXPECT_NE(windows.take({at(20ms), {300}, 4ms}).front().segment, segment);
}

TEST(PowerWindows, WhatFollowsWithinTheJitterIsOneSegment) {
    PowerWindows windows;
    const auto first = windows.take({at(20ms), {300}, 20ms});
    const EnergySample end = first[1];
    for (const Duration time : {39ms, 61ms, 80ms}) {
        const auto next = windows.take({at(time), {300}, 20ms});
        ASSERT_EQ(next.size(), 1U);
        EXPECT_EQ(next[0].at, at(time));
        EXPECT_EQ(next[0].segment, end.segment);
        EXPECT_NEAR((next[0].total - end.total).count, 300 * Seconds{time - 20ms}.count(), 1e-9);
    }
    EXPECT_EQ(windows.take({at(110ms), {300}, 20ms}).size(), 2U);
}

TEST(PowerWindows, OverlappingAndUnorderedOnesAreSkipped) {
    PowerWindows windows;
    EXPECT_EQ(windows.take({at(10ms), {300}, 8ms}).size(), 2U);
    EXPECT_TRUE(windows.take({at(12ms), {300}, 8ms}).empty());
    EXPECT_TRUE(windows.take({at(9ms), {300}, 1ms}).empty());
    EXPECT_TRUE(windows.take({at(10ms), {300}, 8ms}).empty());
    EXPECT_EQ(windows.take({at(18ms), {300}, 8ms}).size(), 1U);
    EXPECT_EQ(windows.skipped(), 3U);
}

TEST(PowerWindows, NonsenseIsNeverANumber) {
    PowerWindows windows;
    for (const double watts : {std::numeric_limits<double>::quiet_NaN(), -1.0, 1e6}) {
        EXPECT_TRUE(windows.take({at(10ms), {watts}, 1ms}).empty());
    }
    EXPECT_TRUE(windows.take({at(10ms), {300}, 0ms}).empty());
    EXPECT_EQ(windows.implausible(), 4U);
}

TEST(PowerWindows, AttributeLikeACounter) {
    KernelTable table;
    const KernelId gemm = table.id("gemm");
    const KernelId gelu = table.id("gelu");
    EnergyAccumulator accumulator{table};
    PowerWindows windows;
    std::mt19937_64 random{4};
    std::vector<std::pair<Duration, double>> edges{{0ns, 0.0}};
    const auto run = [&](KernelId kernel, double watts) {
        const auto [now, joules] = edges.back();
        const Duration length = std::chrono::microseconds{200 + random() % 3000};
        accumulator.add(
            KernelInterval{.kernel = kernel, .start = at(now), .end = at(now + length)});
        edges.emplace_back(now + length, joules + watts * Seconds{length}.count());
    };
    for (int i = 0; i < 2000; ++i) random() % 2 == 0 ? run(gemm, 650) : run(gelu, 300);
    const auto joules_at = [&](Duration time) {
        const auto next =
            std::lower_bound(edges.begin(), edges.end(), time,
                             [](const auto& edge, Duration value) { return edge.first < value; });
        if (next == edges.begin()) return 0.0;
        const auto& [from, before] = *std::prev(next);
        return before +
               (next->second - before) * (Seconds{time - from} / Seconds{next->first - from});
    };
    for (Duration time = 5ms; time < edges.back().first; time += 10ms) {
        const double mean = (joules_at(time) - joules_at(time - 5ms)) / 5e-3;
        for (const EnergySample& sample : windows.take({at(time), {mean}, 5ms})) {
            accumulator.add(sample);
        }
    }
    accumulator.advance(at(edges.back().first));
    Report report;
    accumulator.fill(report);
    ASSERT_TRUE(report.rows[0].energy.resolved);
    EXPECT_NEAR(report.rows[0].energy.joules.count / report.rows[0].counted_time.count(), 650, 1);
    EXPECT_NEAR(report.rows[1].energy.joules.count / report.rows[1].counted_time.count(), 300, 1);
}

}  // namespace
}  // namespace kdvfs::measure
