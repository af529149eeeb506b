// SPDX-License-Identifier: MIT
#include <kdvfs/units.hpp>

#include <gtest/gtest.h>

#include <type_traits>

namespace kdvfs {
namespace {

template <class Clock>
concept TellsTheTime = requires {
    Clock::now();
};
static_assert(!TellsTheTime<Timeline>, "whoever needs the time is handed it");
static_assert(!std::is_convertible_v<std::chrono::steady_clock::time_point, TimePoint>,
              "virtual time and a wall clock do not mix by accident");

TEST(Timeline, CountsNanoseconds) {
    using namespace std::chrono_literals;
    EXPECT_EQ((TimePoint{1ms} - TimePoint{}).count(), 1'000'000);
    EXPECT_LT(TimePoint{}, TimePoint{} + 1ns);
}

}  // namespace
}  // namespace kdvfs
