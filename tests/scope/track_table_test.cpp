// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/stream_track.hpp>

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace kdvfs {
namespace {

class TrackTableTest : public ::testing::Test {
protected:
    /// The key of the n-th stream.
    TrackKey stream(std::size_t n) { return {.stream = StreamRef{&handles[n]}}; }
    kdvfs::detail::StreamTrack& find(kdvfs::detail::TrackTable& table, const TrackKey& key) {
        return table.find(key, [this] { return &cells.emplace_back(); });
    }

    int handles[4]{};
    std::deque<RequestCell> cells;
};

TEST_F(TrackTableTest, GivesAStreamOneTrackForever) {
    kdvfs::detail::TrackTable table;
    kdvfs::detail::StreamTrack& first = find(table, stream(0));
    kdvfs::detail::StreamTrack& second = find(table, stream(1));
    EXPECT_NE(&first, &second);
    EXPECT_EQ(first.id(), TrackId{0});
    EXPECT_EQ(second.id(), TrackId{1});
    EXPECT_NE(&first.cell(), &second.cell());
    EXPECT_EQ(&find(table, stream(1)), &second) << "from the thread's cache";
    EXPECT_EQ(&find(table, stream(0)), &first) << "from the table";
    EXPECT_EQ(cells.size(), 2U) << "a cell per track, not per look";
}

TEST_F(TrackTableTest, TellsThreadsAndCapturesOfOneStreamApart) {
    kdvfs::detail::TrackTable table;
    const StreamRef handle{&handles[0]};
    const kdvfs::detail::StreamTrack& live = find(table, {.stream = handle});
    const kdvfs::detail::StreamTrack& captured = find(table, {.stream = handle, .capture = 1});
    const kdvfs::detail::StreamTrack& another = find(table, {.stream = handle, .thread = 2});
    EXPECT_NE(&live, &captured);
    EXPECT_NE(&live, &another);
    EXPECT_TRUE(captured.captured());
    EXPECT_FALSE(another.captured());
}

TEST_F(TrackTableTest, ManyCapturesOfOneStreamNeedOneCell) {
    kdvfs::detail::TrackTable table;
    const StreamRef handle{&handles[0]};
    for (std::uint64_t capture = 1; capture <= 100'000; ++capture) {
        kdvfs::detail::StreamTrack& track = find(table, {.stream = handle, .capture = capture});
        const auto step = track.enter(RequestIndex{3});
        EXPECT_TRUE(track.leave(step.entry)->changed);
    }
    EXPECT_EQ(cells.size(), 1U);
}

TEST_F(TrackTableTest, ACaptureThatLeftAScopeOpenKeepsItsCellForItself) {
    kdvfs::detail::TrackTable table;
    const StreamRef handle{&handles[0]};
    kdvfs::detail::StreamTrack& first = find(table, {.stream = handle, .capture = 1});
    first.enter(RequestIndex{3});
    kdvfs::detail::StreamTrack& second = find(table, {.stream = handle, .capture = 2});
    EXPECT_NE(&first, &second) << "its graph leaves a request behind at each replay";
    EXPECT_EQ(&find(table, {.stream = handle, .capture = 3}), &second);
}

TEST_F(TrackTableTest, AThreadMayUseTwoTablesInTurn) {
    kdvfs::detail::TrackTable one;
    kdvfs::detail::TrackTable two;
    kdvfs::detail::StreamTrack& in_one = find(one, stream(0));
    kdvfs::detail::StreamTrack& in_two = find(two, stream(0));
    EXPECT_NE(&in_one, &in_two);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(&find(one, stream(0)), &in_one);
        EXPECT_EQ(&find(two, stream(0)), &in_two);
    }
}

TEST_F(TrackTableTest, ANewTableAtTheSameAddressIsNotTheOldOne) {
    std::optional<kdvfs::detail::TrackTable> table;
    table.emplace();
    const RequestCell* cell = &find(*table, stream(0)).cell();
    table.emplace();
    EXPECT_NE(&find(*table, stream(0)).cell(), cell) << "the cache still knew a dead track";
}

TEST_F(TrackTableTest, ACellThatCannotBeMadeLeavesNothingBehind) {
    kdvfs::detail::TrackTable table;
    EXPECT_THROW(table.find(stream(0), []() -> RequestCell* { throw std::runtime_error{"full"}; }),
                 std::runtime_error);
    int tracks = 0;
    table.for_each([&](kdvfs::detail::StreamTrack&) { ++tracks; });
    EXPECT_EQ(tracks, 0);
    EXPECT_EQ(find(table, stream(0)).id(), TrackId{0});
}

TEST_F(TrackTableTest, VisitsEveryTrackInOrderOfFirstUse) {
    kdvfs::detail::TrackTable table;
    for (const std::size_t n : {2U, 0U, 2U, 1U}) find(table, stream(n));
    std::vector<TrackKey> keys;
    table.for_each([&](kdvfs::detail::StreamTrack& track) { keys.push_back(track.key()); });
    EXPECT_EQ(keys, (std::vector{stream(2), stream(0), stream(1)}));
}

TEST_F(TrackTableTest, ThreadsAgreeOnALane) {
    kdvfs::detail::TrackTable table;
    std::vector<kdvfs::detail::StreamTrack*> found(4);
    std::vector<std::thread> threads;
    for (kdvfs::detail::StreamTrack*& track : found) {
        threads.emplace_back([&] {
            for (std::size_t i = 0; i < 400; ++i) track = &find(table, stream(i % 4));
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(cells.size(), 4U);
    EXPECT_EQ(std::vector<kdvfs::detail::StreamTrack*>(4, found[0]), found);
}

}  // namespace
}  // namespace kdvfs
