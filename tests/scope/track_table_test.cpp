// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/stream_track.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <future>
#include <mutex>
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
        return table.find(key, [this] { return &cells.emplace_back(); }).track;
    }
    /// A scope that the stream has passed.
    static void pass_a_scope(kdvfs::detail::StreamTrack& track) {
        const auto step = track.enter(RequestIndex{3});
        put(track, step.word);
        put(track, track.leave(step.entry)->word);
    }
    static void put(kdvfs::detail::StreamTrack& track, RequestWord word) {
        track.was_put(word);
        track.cell().store(word);
    }

    static constexpr std::size_t many = kdvfs::detail::TrackTable::most_at_rest;
    int handles[100 * many]{};
    std::deque<RequestCell> cells;
};

TEST_F(TrackTableTest, GivesAStreamOneTrack) {
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

TEST_F(TrackTableTest, ManyCapturesNeedFewCells) {
    kdvfs::detail::TrackTable table;
    for (std::uint64_t capture = 1; capture <= 100 * many; ++capture) {
        const StreamRef handle{&handles[capture % 2 == 0 ? 0 : capture]};
        kdvfs::detail::StreamTrack& track = find(table, {.stream = handle, .capture = capture});
        const auto step = track.enter(RequestIndex{3});
        EXPECT_TRUE(track.leave(step.entry)->changed);
    }
    EXPECT_EQ(cells.size(), many);
}

TEST_F(TrackTableTest, ACaptureSharesWithItsOwnStreamsCapturesFirst) {
    kdvfs::detail::TrackTable table;
    kdvfs::detail::StreamTrack* mine = nullptr;
    for (std::uint64_t capture = 1; capture <= many; ++capture) {
        const TrackKey key{.stream = StreamRef{&handles[capture]}, .capture = capture};
        kdvfs::detail::StreamTrack& track = find(table, key);
        if (capture == 77) mine = &track;
    }
    for (std::uint64_t capture = many + 1; capture < many + 4; ++capture) {
        const TrackKey key{.stream = StreamRef{&handles[77]}, .capture = capture};
        EXPECT_EQ(&find(table, key), mine);
    }
    EXPECT_EQ(cells.size(), many);
}

TEST_F(TrackTableTest, ManyStreamsNeedFewCells) {
    kdvfs::detail::TrackTable table;
    kdvfs::detail::StreamTrack& working = find(table, stream(0));
    const auto open = working.enter(RequestIndex{5});
    put(working, open.word);
    std::set<TrackId> timestamps{working.timestamps()};
    for (std::size_t n = 1; n < 100 * many; ++n) {
        kdvfs::detail::StreamTrack& track = find(table, stream(n));
        EXPECT_TRUE(timestamps.insert(track.timestamps()).second) << "those of two streams mix";
        pass_a_scope(track);
    }
    EXPECT_EQ(cells.size(), many);
    EXPECT_FALSE(table.hides_scopes());
    EXPECT_EQ(working.key(), stream(0)) << "its scope is open";
    EXPECT_EQ(working.observed().request(), RequestIndex{5});
    EXPECT_EQ(find(table, stream(0)).id(), working.id());
    EXPECT_EQ(cells.size(), many);
}

TEST_F(TrackTableTest, AThreadRemembersNoTrackThatWasGivenAway) {
    kdvfs::detail::TrackTable table;
    const TrackId first = find(table, stream(0)).timestamps();
    std::thread{[&] {
        for (std::size_t n = 1; n <= 2 * many; ++n) find(table, stream(n));
    }}.join();
    kdvfs::detail::StreamTrack& again = find(table, stream(0));
    EXPECT_EQ(again.key(), stream(0));
    EXPECT_NE(again.timestamps(), first);
    EXPECT_EQ(cells.size(), many);
}

TEST_F(TrackTableTest, CapturesHaveAVoteEachOrTheHighestOfThoseThatShareIt) {
    kdvfs::detail::TrackTable table;
    const StreamRef handle{&handles[0]};
    kdvfs::detail::StreamTrack& first = find(table, {.stream = handle, .capture = 1});
    first.highest_captured(RequestIndex{7});
    std::set<kdvfs::detail::StreamTrack*> tracks{&first};
    for (std::uint64_t capture = 2; capture <= many; ++capture) {
        tracks.insert(&find(table, {.stream = handle, .capture = capture}));
    }
    EXPECT_EQ(tracks.size(), many);
    EXPECT_EQ(&find(table, {.stream = handle, .capture = 1}), &first);
    first.cell().store(RequestWord{RequestIndex{3}, 1});
    EXPECT_EQ(first.observed().request(), RequestIndex{3});
    EXPECT_EQ(&find(table, {.stream = handle, .capture = 9999}), &first) << "the oldest";
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
    for (std::uint64_t capture = 3; capture < 3 * many; ++capture) {
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

TEST_F(TrackTableTest, KeepsATrackOfWhichSomethingIsLeft) {
    kdvfs::detail::TrackTable table;
    const auto left = [&](std::size_t n, auto leave_behind) {
        leave_behind(find(table, stream(n)));
    };
    left(0, [](auto& track) { put(track, track.enter(RequestIndex{3}).word); });  // a scope
    left(1, [](auto& track) {                                                     // a marker
        const auto step = track.enter(RequestIndex{3});
        put(track, step.word);
        track.was_put(track.leave(step.entry)->word);
    });
    left(2, [](auto& track) { track.is_protected = true; });  // a vote
    left(3, [](auto& track) { put(track, track.set_outer_request(RequestIndex{3}).word); });
    left(4, [](auto& track) { track.has_graphs = true; });
    for (std::size_t n = 5; n < 5 * many; ++n) pass_a_scope(find(table, stream(n)));
    EXPECT_EQ(cells.size(), many);
    std::size_t n = 0;
    table.for_each([&](const kdvfs::detail::StreamTrack& track) {
        if (n < 5) {
            EXPECT_EQ(track.key(), stream(n)) << n;
        }
        ++n;
    });
}

TEST_F(TrackTableTest, KnowsThatAStreamWithoutMarkersMayStillBeAtItsScopes) {
    kdvfs::detail::TrackTable table;
    for (std::size_t n = 0; n < 2 * many; ++n) {
        EXPECT_EQ(table.hides_scopes(), n > many) << n;
        kdvfs::detail::StreamTrack& track = find(table, stream(n));
        EXPECT_FALSE(track.hides_scopes());
        track.leave(track.enter_unmarked(RequestIndex{3}, 0).entry);
    }
    EXPECT_EQ(cells.size(), many);
    table.hides_no_scopes();
    EXPECT_FALSE(table.hides_scopes());
}

TEST_F(TrackTableTest, ThreadsMayTakeTracksFromOneAnother) {
    kdvfs::detail::TrackTable table;
    std::vector<std::thread> threads;
    std::mutex cells_mutex;
    for (std::size_t thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            for (std::size_t i = 0; i < 4 * many; ++i) {
                const TrackKey key = stream((i * 7 + thread * many) % (2 * many));
                const kdvfs::detail::LockedTrack locked = table.find(key, [&] {
                    const std::lock_guard lock{cells_mutex};
                    return &cells.emplace_back();
                });
                EXPECT_EQ(locked.track.key(), key);
                EXPECT_EQ(locked.track.depth(), 0U);
                pass_a_scope(locked.track);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_LT(cells.size(), many + 16);
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
