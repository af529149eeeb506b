// SPDX-License-Identifier: MIT
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>
#include <tools/attach/cuda_driver.hpp>
#include <tools/attach/record_streams.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <tuple>
#include <vector>

namespace attach {
namespace {

using namespace std::chrono_literals;

kdvfs::TimePoint at(kdvfs::Duration time) { return kdvfs::TimePoint{time}; }

class Records : public testing::Test {
protected:
    void put(std::uint32_t correlation, std::uint32_t kind, bool leaving, std::uint32_t track = 0) {
        const AtLaunch launch{correlation};
        streams_.put_marker(
            nullptr, {.cell = streams_.make_cell(),
                      .tag = {.track = track, .scope_kind = kind, .leaving = leaving, .window = 1},
                      .timestamped = true});
    }
    std::vector<kdvfs::MarkerTimestamp> drained() {
        std::array<kdvfs::MarkerTimestamp, 64> room;
        const std::size_t count = streams_.drain_timestamps(room);
        return {room.begin(), room.begin() + static_cast<std::ptrdiff_t>(count)};
    }

    RecordStreams streams_{"a double", CudaDriver{}};
};

TEST_F(Records, TellWhenLaunchesBeganAndEnded) {
    put(7, 1, false);
    put(7, 1, true);
    EXPECT_TRUE(drained().empty());  // no record yet
    streams_.arrived(7, at(100ns), at(300ns));
    const auto times = drained();
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].time, at(100ns));
    EXPECT_FALSE(times[0].tag.leaving);
    EXPECT_EQ(times[1].time, at(300ns));
    EXPECT_TRUE(times[1].tag.leaving);
}

TEST_F(Records, StayInStreamOrderWhateverTheOrderOfTheRecords) {
    put(1, 5, false);  // a range, from the first launch to the second
    put(2, 5, true);
    put(3, 6, false);
    put(3, 6, true);
    streams_.arrived(3, at(500ns), at(600ns));
    streams_.arrived(2, at(300ns), at(450ns));
    EXPECT_TRUE(drained().empty());
    streams_.arrived(1, at(100ns), at(200ns));
    const auto times = drained();
    ASSERT_EQ(times.size(), 4U);
    EXPECT_EQ(times[0].time, at(100ns));
    EXPECT_EQ(times[1].time, at(450ns));
    EXPECT_EQ(times[2].time, at(500ns));
}

TEST_F(Records, OfOtherStreamsAreNotWaitedFor) {
    put(1, 5, false, 0);
    put(2, 6, false, 1);
    streams_.arrived(2, at(300ns), at(450ns));
    ASSERT_EQ(drained().size(), 1U);
}

TEST_F(Records, AreFoundHoweverManyCallsTheDriverNumbersMeanwhile) {
    constexpr std::uint32_t calls = 1U << 17U;
    for (std::uint32_t launch = 0; launch < 4; ++launch) {
        put(7 + launch * calls, 1, false);
        put(7 + launch * calls, 1, true);
        streams_.arrived(7 + launch * calls, at(launch * 200ns + 100ns),
                         at(launch * 200ns + 200ns));
    }
    const auto times = drained();
    ASSERT_EQ(times.size(), 8U);
    for (std::size_t i = 0; i < times.size(); ++i) {
        EXPECT_EQ(times[i].time, at((i + 1) * 100ns));
    }
}

TEST_F(Records, OfRepeatedLaunchesAreKeptApartHoweverManyCallsThereAre) {
    constexpr std::uint32_t calls = 1U << 17U;
    streams_.may_repeat(7, 1);
    streams_.may_repeat(7 + calls, 2);
    put(7, 1, false);
    put(7, 1, true);
    streams_.arrived(7, at(100ns), at(200ns));
    streams_.arrived(7, at(300ns), at(400ns));
    const auto times = drained();
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].time, at(300ns));  // itself comes last
    EXPECT_EQ(times[1].time, at(400ns));
}

TEST_F(Records, OfOneStreamMayBeEarlierThanThoseOfAnother) {
    for (const std::uint32_t track : {0U, 1U}) {
        put(1 + track, 5, false, track);
        put(1 + track, 5, true, track);
        streams_.arrived(1 + track, at(11s + 100ns), at(11s + 200ns));
    }
    put(3, 5, false, 0);
    put(4, 5, false, 1);
    streams_.arrived(4, at(12s), at(12s + 100ns));
    EXPECT_EQ(drained().size(), 5U);
    EXPECT_EQ(streams_.earliest_to_come(), at(11s + 200ns));
    streams_.arrived(3, at(11s + 300ns), at(11s + 400ns));
    EXPECT_EQ(drained().size(), 1U);
    EXPECT_EQ(streams_.earliest_to_come(), kdvfs::TimePoint::max());
    // One that is far behind is not waited for.
    put(5, 5, true, 0);
    put(6, 5, true, 1);
    streams_.arrived(6, at(40s), at(40s + 100ns));
    EXPECT_EQ(drained().size(), 1U);
    EXPECT_EQ(streams_.earliest_to_come(), at(30s + 100ns));
}

TEST_F(Records, AreCountedWhereTheyNeverCome) {
    put(1, 5, false);
    put(1, 5, true);
    put(2, 5, false);
    streams_.arrived(2, at(300ns), at(450ns));
    EXPECT_TRUE(drained().empty());
    EXPECT_EQ(streams_.lost_timestamps(), 0U);
    streams_.finish();
    EXPECT_EQ(drained().size(), 1U);
    EXPECT_EQ(streams_.lost_timestamps(), 2U);
}

TEST_F(Records, OfRefusedLaunchesTakeNoTime) {
    put(1, 5, false);
    put(1, 5, true);
    streams_.arrived(9, at(100ns), at(200ns));
    streams_.failed(1);
    const auto times = drained();
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].time, times[1].time);
}

TEST_F(Records, OfNoLaunchAreNotWaitedFor) {
    const auto now = [] {
        return kdvfs::TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    };
    const kdvfs::TimePoint before = now();
    put(0, 6, false);
    put(0, 6, true);
    const auto times = drained();
    ASSERT_EQ(times.size(), 2U);
    EXPECT_GE(times[0].time, before);
    EXPECT_LE(times[1].time, now());
    EXPECT_EQ(streams_.lost_timestamps(), 0U);
}

TEST_F(Records, SplitTheLaunchesScopeAndNotTheRangeAroundIt) {
    streams_.split_by([](std::uint32_t kind, kdvfs::Duration time, std::optional<std::uint32_t>) {
        return kind == 6 && time > 100ns ? 60U : kind;
    });
    put(1, 5, false);  // the range
    put(1, 6, false);
    put(1, 6, true);
    put(2, 6, false);
    put(2, 6, true);
    put(2, 5, true);
    streams_.arrived(1, at(100ns), at(150ns));
    streams_.arrived(2, at(200ns), at(400ns));
    std::vector<std::uint32_t> kinds;
    for (const auto& each : drained()) kinds.push_back(each.tag.scope_kind);
    EXPECT_EQ(kinds, (std::vector<std::uint32_t>{5, 6, 6, 60, 60, 5}));
}

TEST_F(Records, AreTakenWhileLaunchesGoOn) {
    std::promise<void> taking;
    std::promise<void> launched;
    streams_.split_by([&](std::uint32_t kind, kdvfs::Duration, std::optional<std::uint32_t>) {
        taking.set_value();
        EXPECT_EQ(launched.get_future().wait_for(10s), std::future_status::ready)
            << "a launch waits for who takes records";
        return kind;
    });
    put(1, 6, false);
    streams_.arrived(1, at(100ns), at(150ns));
    auto collector = std::async(std::launch::async, [this] { return drained().size(); });
    taking.get_future().wait();
    put(1, 6, true);
    launched.set_value();
    EXPECT_EQ(collector.get(), 1U);
    EXPECT_EQ(drained().size(), 1U);
}

/// As graphs have: the records of its kernels come in any order, and while one is missing nothing
/// is told, not even when it began.
TEST_F(Records, OfALaunchOfManyKernelsAreScopesInsideIt) {
    streams_.launches_many(4);
    put(4, 20, false);
    put(4, 20, true);
    streams_.launched_many(4, 3);
    put(5, 21, false);
    put(5, 21, true);
    streams_.arrived(5, at(900ns), at(950ns));
    streams_.arrived(4, at(500ns), at(700ns), 32U);
    streams_.arrived(4, at(100ns), at(300ns), 30U);
    EXPECT_TRUE(drained().empty());
    streams_.arrived(4, at(280ns), at(400ns), 31U);  // in a branch of its own
    const auto times = drained();
    const std::vector<std::tuple<std::uint32_t, bool, kdvfs::Duration>> expected{
        {20, false, 100ns}, {30, false, 100ns}, {30, true, 300ns}, {31, false, 300ns},
        {31, true, 400ns},  {32, false, 500ns}, {32, true, 700ns}, {20, true, 700ns},
        {21, false, 900ns}, {21, true, 950ns}};
    ASSERT_EQ(times.size(), expected.size());
    for (std::size_t i = 0; i < times.size(); ++i) {
        EXPECT_EQ(std::tuple(times[i].tag.scope_kind, times[i].tag.leaving,
                             times[i].time.time_since_epoch()),
                  expected[i])
            << i;
        // The meter waits for the timestamps of markers that it has put, and of no other.
        const bool counted = times[i].tag.scope_kind < 30;
        EXPECT_EQ(times[i].tag.window != 0, counted) << i;
    }
    EXPECT_EQ(streams_.lost_timestamps(), 0U);
}

TEST_F(Records, OfKernelsThatNeverRanAreNotWaitedForAtTheEnd) {
    streams_.launches_many(4);
    put(4, 20, false);
    put(4, 20, true);
    streams_.launched_many(4, 3);
    streams_.arrived(4, at(100ns), at(300ns), 30U);
    EXPECT_TRUE(drained().empty());
    streams_.finish();
    EXPECT_EQ(drained().size(), 4U);
    EXPECT_EQ(streams_.lost_timestamps(), 0U);
}

TEST_F(Records, OfManyKernelsThatAreNotMeteredAreForgotten) {
    streams_.launches_many(4);
    streams_.launched_many(4, 3);
    EXPECT_FALSE(streams_.is_of_many(4));
    streams_.launches_many(6);
    put(6, 20, false);
    put(6, 20, true);
    streams_.failed(6);
    streams_.launched_many(6, 3);
    EXPECT_EQ(drained().size(), 2U);
    EXPECT_FALSE(streams_.is_of_many(6));
}

TEST_F(Records, NameTheLaunchesThatNobodySaw) {
    streams_.name_by_record(9);
    put(1, 9, false);
    put(1, 9, true);
    put(2, 8, false);
    put(2, 8, true);
    streams_.arrived(1, at(100ns), at(150ns), 40U);
    streams_.arrived(2, at(200ns), at(400ns), 41U);
    std::vector<std::uint32_t> kinds;
    for (const auto& each : drained()) kinds.push_back(each.tag.scope_kind);
    EXPECT_EQ(kinds, (std::vector<std::uint32_t>{40, 40, 8, 8}));
}

}  // namespace
}  // namespace attach
