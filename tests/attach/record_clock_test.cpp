// SPDX-License-Identifier: MIT
#include <tools/attach/record_clock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>

namespace attach {
namespace {

using namespace std::chrono_literals;

std::int64_t ns(const std::optional<kdvfs::TimePoint>& time) {
    return time ? time->time_since_epoch().count() : -1;
}

TEST(RecordClock, OfNanosecondsKeepsDurationsAndFollowsTheOffset) {
    RecordClock clock;
    clock.restart(true);
    clock.add({.host = 1000, .record = 500000});
    EXPECT_EQ(ns(clock.on_host(500100)), 1100);
    clock.add({.host = 2000, .record = 501010});  // stepped by 10 ns
    EXPECT_EQ(ns(clock.on_host(501010)), 2000);
    EXPECT_EQ(ns(clock.on_host(500010)), 1000);
}

TEST(RecordClock, OfTicksHasTheRateBetweenItsComparisons) {
    RecordClock clock;
    clock.restart(false);
    clock.add({.host = 1'000'000, .record = 10'000'000'000});
    clock.add({.host = 6'000'000, .record = 10'012'500'000});  // 2.5 a nanosecond
    EXPECT_EQ(ns(clock.on_host(10'012'500'000)), 6'000'000);
    EXPECT_EQ(ns(clock.on_host(10'000'000'000)), 1'000'000);
    EXPECT_EQ(ns(clock.on_host(10'025'000'000)), 11'000'000);
}

TEST(RecordClock, HasNoTimesBeforeItsRateIsKnownOrOfAnotherClock) {
    RecordClock clock;
    EXPECT_FALSE(clock.on_host(1)) << "never compared";
    clock.restart(false);
    clock.add({.host = 1'000'000, .record = 10'000'000'000});
    EXPECT_FALSE(clock.on_host(10'000'000'000)) << "no rate";
    clock.add({.host = 6'000'000, .record = 10'012'500'000});
    EXPECT_TRUE(clock.on_host(10'000'000'000));
    EXPECT_FALSE(clock.on_host(5'000'000)) << "of CUPTI's own clock, before";
    EXPECT_FALSE(clock.on_host(20'000'000'000)) << "4 s ahead";
}

TEST(RecordClock, TakesTheClosestOfItsLooks) {
    std::uint64_t now = 0;
    const auto compared =
        RecordClock::compare([&]() -> std::optional<std::uint64_t> { return ++now; });
    ASSERT_TRUE(compared);
    EXPECT_GE(compared->record, 1U);
    EXPECT_LE(compared->record, 8U);
    EXPECT_FALSE(RecordClock::compare([]() -> std::optional<std::uint64_t> { return {}; }));
}

}  // namespace
}  // namespace attach
