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

class LaneTableTest : public ::testing::Test {
protected:
    /// The key of the n-th stream.
    LaneKey stream(std::size_t n) { return {.stream = StreamRef{&handles[n]}}; }
    kdvfs::detail::Lane& find(kdvfs::detail::LaneTable& table, const LaneKey& key) {
        return table.find(key, [this] { return &cells.emplace_back(); });
    }

    int handles[4]{};
    std::deque<LevelCell> cells;
};

TEST_F(LaneTableTest, GivesAStreamOneLaneForever) {
    kdvfs::detail::LaneTable table;
    kdvfs::detail::Lane& first = find(table, stream(0));
    kdvfs::detail::Lane& second = find(table, stream(1));
    EXPECT_NE(&first, &second);
    EXPECT_EQ(first.id(), LaneId{0});
    EXPECT_EQ(second.id(), LaneId{1});
    EXPECT_NE(&first.cell(), &second.cell());
    EXPECT_EQ(&find(table, stream(1)), &second) << "from the thread's cache";
    EXPECT_EQ(&find(table, stream(0)), &first) << "from the table";
    EXPECT_EQ(cells.size(), 2U) << "a cell per lane, not per look";
}

TEST_F(LaneTableTest, TellsThreadsAndCapturesOfOneStreamApart) {
    kdvfs::detail::LaneTable table;
    const kdvfs::detail::Lane& live = find(table, {.stream = StreamRef{&handles[0]}});
    const kdvfs::detail::Lane& captured = find(table, {.stream = StreamRef{&handles[0]}, .capture = 1});
    const kdvfs::detail::Lane& another = find(table, {.stream = StreamRef{&handles[0]}, .capture = 2});
    const kdvfs::detail::Lane& threads = find(table, {.stream = StreamRef{&handles[0]}, .thread = 1});
    EXPECT_EQ(cells.size(), 4U);
    EXPECT_EQ(live.id(), LaneId{0});
    EXPECT_EQ(captured.id(), LaneId{1});
    EXPECT_EQ(another.id(), LaneId{2});
    EXPECT_EQ(threads.id(), LaneId{3});
}

TEST_F(LaneTableTest, AThreadMayUseTwoTablesInTurn) {
    kdvfs::detail::LaneTable one;
    kdvfs::detail::LaneTable two;
    kdvfs::detail::Lane& in_one = find(one, stream(0));
    kdvfs::detail::Lane& in_two = find(two, stream(0));
    EXPECT_NE(&in_one, &in_two);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(&find(one, stream(0)), &in_one);
        EXPECT_EQ(&find(two, stream(0)), &in_two);
    }
}

TEST_F(LaneTableTest, ANewTableAtTheSameAddressIsNotTheOldOne) {
    std::optional<kdvfs::detail::LaneTable> table;
    table.emplace();
    const LevelCell* cell = &find(*table, stream(0)).cell();
    table.emplace();
    EXPECT_NE(&find(*table, stream(0)).cell(), cell) << "the cache still knew a dead lane";
}

TEST_F(LaneTableTest, ACellThatCannotBeMadeLeavesNothingBehind) {
    kdvfs::detail::LaneTable table;
    EXPECT_THROW(table.find(stream(0), []() -> LevelCell* { throw std::runtime_error{"full"}; }),
                 std::runtime_error);
    int lanes = 0;
    table.for_each([&](kdvfs::detail::Lane&) { ++lanes; });
    EXPECT_EQ(lanes, 0);
    EXPECT_EQ(find(table, stream(0)).id(), LaneId{0});
}

TEST_F(LaneTableTest, VisitsEveryLaneInOrderOfFirstUse) {
    kdvfs::detail::LaneTable table;
    for (const std::size_t n : {2U, 0U, 2U, 1U}) find(table, stream(n));
    std::vector<LaneKey> keys;
    table.for_each([&](kdvfs::detail::Lane& lane) { keys.push_back(lane.key()); });
    EXPECT_EQ(keys, (std::vector{stream(2), stream(0), stream(1)}));
}

TEST_F(LaneTableTest, ThreadsAgreeOnALane) {
    kdvfs::detail::LaneTable table;
    std::vector<kdvfs::detail::Lane*> found(4);
    std::vector<std::thread> threads;
    for (kdvfs::detail::Lane*& lane : found) {
        threads.emplace_back([&] {
            for (std::size_t i = 0; i < 400; ++i) lane = &find(table, stream(i % 4));
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(cells.size(), 4U);
    EXPECT_EQ(std::vector<kdvfs::detail::Lane*>(4, found[0]), found);
}

}  // namespace
}  // namespace kdvfs
