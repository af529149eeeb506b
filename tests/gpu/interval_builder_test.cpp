// SPDX-License-Identifier: MIT
#include <kdvfs/detail/gpu/meter_inputs.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace kdvfs::measure {
namespace {

class Intervals : public testing::Test {
protected:
    void take(std::int64_t time, std::uint32_t kind, bool leaving, std::uint32_t track = 0) {
        builder.take(
            {.tag = {.track = track, .scope_kind = kind, .leaving = leaving, .window = window},
             .time = TimePoint{Duration{time}},
             .core_cycles = static_cast<std::uint64_t>(time)},
            [this](const auto& stretch) { stretches.push_back(stretch); });
    }
    void enter(std::int64_t time, std::uint32_t kind, std::uint32_t track = 0) {
        take(time, kind, false, track);
    }
    void leave(std::int64_t time, std::uint32_t kind, std::uint32_t track = 0) {
        take(time, kind, true, track);
    }
    void expect(std::size_t place, std::uint32_t kind, std::int64_t start, std::int64_t end,
                std::optional<std::int64_t> dwell) const {
        ASSERT_LT(place, stretches.size());
        const auto& stretch = stretches[place];
        EXPECT_EQ(stretch.tag.scope_kind, kind);
        EXPECT_EQ(stretch.start.time_since_epoch().count(), start);
        EXPECT_EQ(stretch.end.time_since_epoch().count(), end);
        EXPECT_EQ(stretch.dwell.has_value(), dwell.has_value());
        EXPECT_EQ(stretch.dwell.value_or(Duration{0}).count(), dwell.value_or(0));
    }

    IntervalBuilder builder;
    std::uint32_t window = 1;
    std::vector<IntervalBuilder::Stretch> stretches;
};

TEST_F(Intervals, BelongToTheInnermostScope) {
    enter(1, 1);
    enter(3, 2);
    leave(6, 2);
    leave(10, 1);
    ASSERT_EQ(stretches.size(), 3u);
    expect(0, 1, 1, 3, std::nullopt);
    expect(1, 2, 3, 6, 3);
    expect(2, 1, 6, 10, 9);
    EXPECT_EQ(stretches[1].core_cycles, 3u);
    EXPECT_FALSE(builder.oldest_open());
}

TEST_F(Intervals, OfTracksAreTheirOwn) {
    enter(1, 1, 0);
    enter(2, 1, 1);
    EXPECT_EQ(builder.oldest_open(), TimePoint{Duration{1}});
    leave(3, 1, 0);
    EXPECT_EQ(builder.oldest_open(), TimePoint{Duration{2}});
    leave(7, 1, 1);
    expect(0, 1, 1, 3, 2);
    expect(1, 1, 2, 7, 5);
}

TEST_F(Intervals, LeftOutOfOrderEndTheRightScope) {
    enter(1, 1);
    enter(3, 2);
    leave(6, 1);
    leave(10, 2);
    ASSERT_EQ(stretches.size(), 4u);
    expect(1, 2, 3, 6, std::nullopt);
    expect(2, 1, 6, 6, 5);
    expect(3, 2, 6, 10, 7);
}

TEST_F(Intervals, WithoutTheirBeginAreCountedAndNoNumbers) {
    leave(5, 1);
    enter(6, 1);
    builder.forget_open();
    leave(8, 1);
    EXPECT_TRUE(stretches.empty());
    EXPECT_EQ(builder.unpaired(), 2u);
}

TEST_F(Intervals, ReachFromNoWindowIntoAnother) {
    enter(1, 1);
    enter(3, 2);
    leave(6, 2);
    window = 3;
    enter(100, 2);
    window = 0;  // a graph's, in any window
    enter(101, 3);
    leave(102, 3);
    window = 3;
    leave(104, 2);
    window = 4;
    leave(200, 1);
    ASSERT_EQ(stretches.size(), 7U);
    expect(0, 1, 1, 3, std::nullopt);
    expect(1, 2, 3, 6, 3);
    expect(2, 1, 100, 100, std::nullopt);
    expect(3, 2, 100, 101, std::nullopt);
    expect(4, 3, 101, 102, 1);
    expect(5, 2, 102, 104, 4);
    expect(6, 1, 200, 200, 199);
    EXPECT_EQ(stretches[2].core_cycles, 0U);
    for (std::size_t i : {0U, 1U, 3U, 4U, 5U}) EXPECT_TRUE(stretches[i].whole) << i;
    EXPECT_FALSE(stretches[6].whole);
}

TEST(Windows, AreOfOneStretchUntilAnIterationIsNotMetered) {
    kdvfs::detail::MeteringWindows windows{1};
    EXPECT_EQ(windows.stretch_of(windows.window()), 1U);
    windows.begin(true, true);
    const std::uint32_t second = windows.window();
    windows.begin(true);
    EXPECT_EQ(windows.window(), second);
    EXPECT_NE(second, 1U);
    EXPECT_EQ(windows.stretch_of(second), 1U);
    windows.begin(false);
    const std::uint32_t unmetered = windows.window();
    windows.begin(true, true);
    const std::uint32_t behind = windows.window();
    windows.begin(true, true);
    EXPECT_EQ(windows.stretch_of(unmetered), unmetered);
    EXPECT_EQ(windows.stretch_of(behind), behind);
    EXPECT_EQ(windows.stretch_of(windows.window()), behind);
    EXPECT_EQ(windows.stretch_of(second), 1U) << "timestamps of before may come late";
    for (int i = 0; i < 5000; ++i) windows.begin(i % 2 == 1);
    EXPECT_EQ(windows.stretch_of(second), second) << "of long ago";
    EXPECT_EQ(windows.stretch_of(windows.window()), windows.window());
}

TEST_F(Intervals, WithoutACycleCountSayNothingOfTheClock) {
    builder.take({.tag = {}, .time = TimePoint{Duration{1}}, .core_cycles = 9}, [](const auto&) {});
    builder.take({.tag = {.leaving = true}, .time = TimePoint{Duration{2}}, .core_cycles = 3},
                 [](const auto& stretch) { EXPECT_EQ(stretch.core_cycles, 0u); });
}

}  // namespace
}  // namespace kdvfs::measure
