// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/stream_track.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <future>
#include <optional>
#include <set>
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

TEST_F(TrackTableTest, ManyCapturesOfOneStreamNeedFewCells) {
    kdvfs::detail::TrackTable table;
    const StreamRef handle{&handles[0]};
    for (std::uint64_t capture = 1; capture <= 100'000; ++capture) {
        kdvfs::detail::StreamTrack& track = find(table, {.stream = handle, .capture = capture});
        const auto step = track.enter(RequestIndex{3});
        EXPECT_TRUE(track.leave(step.entry)->changed);
    }
    EXPECT_EQ(cells.size(), kdvfs::detail::TrackTable::most_captures);
}

TEST_F(TrackTableTest, CapturesHaveAVoteEachOrTheHighestOfThoseThatShareIt) {
    kdvfs::detail::TrackTable table;
    const StreamRef handle{&handles[0]};
    kdvfs::detail::StreamTrack& first = find(table, {.stream = handle, .capture = 1});
    first.highest_captured(RequestIndex{7});
    std::set<kdvfs::detail::StreamTrack*> tracks{&first};
    for (std::uint64_t capture = 2; capture <= table.most_captures; ++capture) {
        tracks.insert(&find(table, {.stream = handle, .capture = capture}));
    }
    EXPECT_EQ(tracks.size(), table.most_captures);
    EXPECT_EQ(&find(table, {.stream = handle, .capture = 1}), &first);
    first.cell().store(RequestWord{RequestIndex{3}, 1});
    EXPECT_EQ(first.observed().request(), RequestIndex{3});
    EXPECT_EQ(&find(table, {.stream = handle, .capture = 1000}), &first) << "the oldest";
    EXPECT_EQ(first.observed().request(), RequestIndex{7});
    first.cell().store(RequestWord{no_request, 1});
    EXPECT_EQ(first.observed().request(), no_request);
}

TEST_F(TrackTableTest, ACaptureThatLeftAScopeOpenKeepsItsCellForItself) {
    kdvfs::detail::TrackTable table;
    const StreamRef handle{&handles[0]};
    kdvfs::detail::StreamTrack& first = find(table, {.stream = handle, .capture = 1});
    first.enter(RequestIndex{3});
    kdvfs::detail::StreamTrack& second = find(table, {.stream = handle, .capture = 2});
    EXPECT_NE(&first, &second) << "its graph leaves a request behind at each replay";
    for (std::uint64_t capture = 3; capture < 200; ++capture) {
        EXPECT_NE(&find(table, {.stream = handle, .capture = capture}), &first);
    }
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

TEST_F(TrackTableTest, AThreadThatHasEndedLeavesItsTrackToTheNext) {
    kdvfs::detail::TrackTable table;
    const StreamRef handle{&handles[0]};
    const auto in_a_thread = [&](auto body) {
        std::thread{[&] {
            body(TrackKey{.stream = handle, .thread = device::ThreadNumbers::mine()});
        }}.join();
    };
    const auto pass = [&](kdvfs::detail::StreamTrack& track, RequestWord word) {
        track.was_put(word);
        track.cell().store(word);
    };
    const std::uint64_t mine = device::ThreadNumbers::mine();
    kdvfs::detail::StreamTrack& living = find(table, {.stream = handle, .thread = mine});
    for (int i = 0; i < 100; ++i) {
        in_a_thread([&](const TrackKey& key) {
            EXPECT_NE(key.thread, mine);
            kdvfs::detail::StreamTrack& track = find(table, key);
            EXPECT_NE(&track, &living);
            const auto step = track.enter(RequestIndex{3});
            pass(track, step.word);
            pass(track, track.leave(step.entry)->word);
            find(table, {.stream = handle, .thread = key.thread, .capture = 7});
        });
    }
    EXPECT_EQ(cells.size(), 3U) << "the living thread's, the ended ones', that of their captures";

    // Not where something of the old one's is left.
    kdvfs::detail::StreamTrack* left = nullptr;
    in_a_thread([&](const TrackKey& key) {
        left = &find(table, key);
        left->was_put(left->enter(RequestIndex{3}).word);
    });
    in_a_thread([&](const TrackKey& key) { EXPECT_NE(&find(table, key), left) << "a scope"; });
    in_a_thread([&](const TrackKey& key) {
        left = &find(table, key);
        const auto step = left->enter(RequestIndex{3});
        left->was_put(step.word);
        left->was_put(left->leave(step.entry)->word);
    });
    in_a_thread([&](const TrackKey& key) { EXPECT_NE(&find(table, key), left) << "a marker"; });
    in_a_thread([&](const TrackKey& key) {
        left = &find(table, key);
        left->is_protected = true;
    });
    in_a_thread([&](const TrackKey& key) { EXPECT_NE(&find(table, key), left) << "a vote"; });
}

TEST_F(TrackTableTest, AThreadThatWaitsForACapturedTrackKeepsNobodyFromTheOthers) {
    kdvfs::detail::TrackTable table;
    const TrackKey captured{.stream = StreamRef{&handles[0]}, .capture = 1};
    kdvfs::detail::StreamTrack& track = find(table, captured);
    track.mutex.lock();  // as whoever enters a scope in the capture
    std::thread second{[&] { find(table, captured); }};
    auto live = std::async(std::launch::async, [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds{50});  // the other waits by then
        find(table, stream(0));
        table.for_each([](const auto&) {});  // as the listener
    });
    EXPECT_EQ(live.wait_for(std::chrono::seconds{2}), std::future_status::ready);
    track.mutex.unlock();
    second.join();
    live.wait();
}

TEST_F(TrackTableTest, ThreadsAgreeOnALane) {
    kdvfs::detail::TrackTable table;
    std::vector<kdvfs::detail::StreamTrack*> tracks(4);
    std::vector<std::thread> threads;
    for (kdvfs::detail::StreamTrack*& track : tracks) {
        threads.emplace_back([&] {
            for (std::size_t i = 0; i < 400; ++i) track = &find(table, stream(i % 4));
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(cells.size(), 4U);
    EXPECT_EQ(std::vector<kdvfs::detail::StreamTrack*>(4, tracks[0]), tracks);
}

}  // namespace
}  // namespace kdvfs
