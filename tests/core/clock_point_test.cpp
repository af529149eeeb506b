// SPDX-License-Identifier: MIT
#include <kdvfs/clock.hpp>

#include <gtest/gtest.h>

#include <set>

namespace kdvfs {
namespace {

using namespace kdvfs::literals;

template <ClockPoint Point>
struct At {};
static_assert(!std::is_same_v<At<ClockPoint{1100_MHz}>, At<ClockPoint{1100_MHz, 810_MHz}>>);

TEST(ClockPoint, IsAutoOnlyWhereBothClocksAre) {
    EXPECT_TRUE(ClockPoint{}.is_auto());
    EXPECT_FALSE((ClockPoint{1100_MHz, auto_clock}.is_auto()));
    EXPECT_FALSE((ClockPoint{auto_clock, 810_MHz}.is_auto()));
}

TEST(ClockPoint, NoCapIsHigherThanEveryCap) {
    EXPECT_EQ(higher_cap(500_MHz, 1100_MHz), 1100_MHz);
    EXPECT_EQ(higher_cap(1100_MHz, 500_MHz), 1100_MHz);
    EXPECT_EQ(higher_cap(auto_clock, 2100_MHz), auto_clock);
    EXPECT_EQ(higher_cap(2100_MHz, auto_clock), auto_clock);
}

TEST(ClockPoint, TwoRequestsAreArbitratedDomainByDomain) {
    const ClockPoint slow_core{500_MHz, auto_clock};
    const ClockPoint slow_memory{1100_MHz, 810_MHz};
    EXPECT_EQ(higher_cap(slow_core, slow_memory), (ClockPoint{1100_MHz, auto_clock}));
    EXPECT_EQ(higher_cap(slow_memory, slow_core), (ClockPoint{1100_MHz, auto_clock}));
    EXPECT_EQ(higher_cap(slow_core, slow_core), slow_core);
}

TEST(ClockPoint, OrdersByCoreThenMemory) {
    const std::set<ClockPoint> points{{1100_MHz, 810_MHz}, {}, {500_MHz, 9501_MHz}, {500_MHz}};
    EXPECT_EQ(*points.begin(), ClockPoint{});
    EXPECT_EQ(*std::next(points.begin()), ClockPoint{500_MHz});
    EXPECT_EQ(*points.rbegin(), (ClockPoint{1100_MHz, 810_MHz}));
}

TEST(ClockPoint, ReadsAsText) {
    EXPECT_EQ(to_string(1100_MHz), "1100 MHz");
    EXPECT_EQ(to_string(auto_clock), "auto");
    EXPECT_EQ(to_string(ClockPoint{1100_MHz}), "core 1100 MHz, memory auto");
}

}  // namespace
}  // namespace kdvfs
