// SPDX-License-Identifier: MIT
#include <kdvfs/detail/measure/kernel_interval.hpp>

#include <gtest/gtest.h>

namespace kdvfs {
namespace {

using namespace kdvfs::literals;
using namespace std::chrono_literals;

static_assert(std::is_trivially_copyable_v<KernelInterval>, "intervals pass through rings");

KernelInterval interval(Duration length, std::uint64_t cycles) {
    KernelInterval run;
    run.start = TimePoint{5s};
    run.end = run.start + length;
    run.core_cycles = cycles;
    return run;
}

TEST(HeldClock, IsCyclesOverWallClock) {
    EXPECT_EQ(held_clock(interval(1ms, 1'100'000)), 1100_MHz);
    EXPECT_EQ(held_clock(interval(10s, 17'000'000'000)), 1700_MHz);
}

TEST(HeldClock, IsRoundedToTheNearestMegahertz) {
    EXPECT_EQ(held_clock(interval(1ms, 1'099'500)), 1100_MHz);
    EXPECT_EQ(held_clock(interval(1ms, 1'099'499)), 1099_MHz);
}

TEST(HeldClock, IsAutoWhereItIsNotKnown) {
    EXPECT_EQ(held_clock(interval(1ms, 0)), auto_clock);
    EXPECT_EQ(held_clock(interval(0ns, 1000)), auto_clock);
    EXPECT_EQ(held_clock(interval(-1ms, 1000)), auto_clock);
}

}  // namespace
}  // namespace kdvfs
