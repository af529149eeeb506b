// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/stream_track.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace kdvfs {
namespace {

constexpr RequestIndex low_request{1};
constexpr RequestIndex high_request{2};
constexpr std::uint32_t tickets = 1U << (32 - RequestWord::request_bits);

/// A track whose stream runs whatever is put into it at once.
class StreamTrackTest : public ::testing::Test {
protected:
    std::uint64_t enter(RequestIndex request) {
        const kdvfs::detail::TrackStep step = track.enter(request);
        if (step.changed) cell.store(step.word);
        return step.entry;
    }
    void leave(std::uint64_t entry) {
        const auto step = track.leave(entry);
        ASSERT_TRUE(step);
        if (step->changed) cell.store(step->word);
    }

    RequestCell cell;
    kdvfs::detail::StreamTrack track{TrackId{3}, TrackKey{}, &cell, TrackId{3}};
};

TEST_F(StreamTrackTest, StartsWithoutARequest) {
    EXPECT_EQ(track.word().request(), no_request);
    EXPECT_EQ(track.word(), cell.load()) << "a new cell says the same";
    EXPECT_EQ(track.depth(), 0U);
    EXPECT_TRUE(track.at_rest());
    EXPECT_FALSE(track.captured());
    EXPECT_TRUE((kdvfs::detail::StreamTrack{
        TrackId{0}, TrackKey{.capture = 7}, &cell,
        TrackId{0}}.captured()));
}

TEST_F(StreamTrackTest, NestedScopesGiveBackTheOuterRequest) {
    const auto outer = enter(low_request);
    const RequestWord outer_request = track.word();
    const auto inner = enter(high_request);
    EXPECT_EQ(track.word().request(), high_request);
    EXPECT_NE(track.word().ticket(), outer_request.ticket());
    leave(inner);
    EXPECT_EQ(track.word(), outer_request) << "with the outer scope's ticket: it is no new scope";
    leave(outer);
    EXPECT_EQ(track.word().request(), no_request);
}

TEST_F(StreamTrackTest, AScopeWithoutOpinionInherits) {
    const auto alone = enter(no_request);
    EXPECT_EQ(track.word().request(), no_request);
    leave(alone);
    enter(low_request);
    const kdvfs::detail::TrackStep kept = track.enter(no_request);
    EXPECT_FALSE(kept.changed);
    EXPECT_EQ(kept.word.request(), low_request);
    EXPECT_FALSE(track.leave(kept.entry)->changed);
}

TEST_F(StreamTrackTest, ElidesTheEnclosingRequestAndOnlyThat) {
    EXPECT_TRUE(track.enter(low_request).changed) << "nothing encloses it";
    const kdvfs::detail::TrackStep same = track.enter(low_request);
    EXPECT_FALSE(same.changed) << "no stream operation";
    EXPECT_FALSE(track.leave(same.entry)->changed);

    const kdvfs::detail::TrackStep other = track.enter(high_request);
    EXPECT_TRUE(other.changed);
    EXPECT_TRUE(track.enter(low_request).changed)
        << "the innermost request counts, not any outer one";
}

TEST_F(StreamTrackTest, ElidesThroughAScopeWithoutOpinion) {
    track.enter(low_request);
    track.enter(no_request);
    EXPECT_FALSE(track.enter(low_request).changed);
}

TEST_F(StreamTrackTest, NothingIsElidedBetweenNeighbours) {
    leave(enter(low_request));
    const kdvfs::detail::TrackStep next = track.enter(low_request);
    EXPECT_TRUE(next.changed);
}

TEST_F(StreamTrackTest, AnElidedScopeOutlivesTheOneThatEnclosedIt) {
    const auto outer = enter(low_request);
    const auto inner = enter(low_request);
    const auto step = track.leave(outer);
    EXPECT_FALSE(step->changed);
    EXPECT_EQ(step->word.request(), low_request) << "the inner scope still asks";
    EXPECT_EQ(track.leave(inner)->word.request(), no_request);
}

TEST_F(StreamTrackTest, LeavingTwiceIsNothing) {
    const auto entry = enter(low_request);
    leave(entry);
    EXPECT_EQ(track.leave(entry), std::nullopt);
    EXPECT_EQ(track.leave(entry + 1), std::nullopt);
    EXPECT_TRUE(track.at_rest());
}

// Of four scopes, left in each of the 24 orders, the level is always that of the innermost that is
// still open and has an opinion.
TEST_F(StreamTrackTest, ScopesLeaveInAnyOrder) {
    const std::array<RequestIndex, 4> requests{low_request, no_request, high_request, low_request};
    std::array<std::size_t, 4> order{0, 1, 2, 3};
    do {
        std::array<std::uint64_t, 4> entries{};
        for (std::size_t i = 0; i < 4; ++i) entries[i] = enter(requests[i]);
        std::array<bool, 4> open{true, true, true, true};
        for (const std::size_t left : order) {
            const RequestWord before = track.word();
            const auto step = track.leave(entries[left]);
            ASSERT_TRUE(step);
            open[left] = false;
            RequestIndex expected = no_request;
            for (std::size_t i = 0; i < 4; ++i) {
                if (open[i] && requests[i] != no_request) expected = requests[i];
            }
            EXPECT_EQ(step->word.request(), expected);
            EXPECT_EQ(step->word, track.word());
            EXPECT_EQ(step->changed, step->word != before) << "no marker for nothing";
            if (step->changed) cell.store(step->word);
        }
        EXPECT_TRUE(track.at_rest());
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(StreamTrackTest, EachScopeThatAsksHasATicketOfItsOwn) {
    std::vector<std::uint32_t> seen;
    for (int i = 0; i < 100; ++i) {
        const auto outer = enter(low_request);
        seen.push_back(track.word().ticket());
        const auto inner = enter(high_request);
        seen.push_back(track.word().ticket());
        leave(inner);
        leave(outer);
    }
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST_F(StreamTrackTest, TicketsWrapAroundWithoutTouchingTheRequest) {
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < tickets + 2; ++i) {
        const kdvfs::detail::TrackStep in = track.enter(high_request);
        ASSERT_EQ(in.word.request(), high_request) << i;
        ASSERT_TRUE(in.changed) << i;
        ASSERT_EQ((in.word.ticket() - last) % tickets, 1U) << i;
        last = in.word.ticket();
        const auto out = track.leave(in.entry);
        ASSERT_EQ(out->word.request(), no_request) << i;
        ASSERT_TRUE(out->changed) << i;
        cell.store(out->word);
        ASSERT_TRUE(track.at_rest()) << i;
    }
    EXPECT_EQ(last, 2U) << "it did wrap";
}

TEST_F(StreamTrackTest, RestsOnceTheStreamHasPassedTheLastMarker) {
    const kdvfs::detail::TrackStep in = track.enter(low_request);
    EXPECT_FALSE(track.at_rest()) << "a scope is open";
    const auto out = track.leave(in.entry);
    EXPECT_FALSE(track.at_rest()) << "the stream has yet to get to either marker";
    cell.store(in.word);
    EXPECT_FALSE(track.at_rest());
    cell.store(out->word);
    EXPECT_TRUE(track.at_rest());
}

// Without the ticket in the empty level, the end of the first scope would pass for the second's.
TEST_F(StreamTrackTest, TellsOneEndFromAnother) {
    const kdvfs::detail::TrackStep first_in = track.enter(low_request);
    const auto first_out = track.leave(first_in.entry);
    const kdvfs::detail::TrackStep second_in = track.enter(low_request);
    const auto second_out = track.leave(second_in.entry);
    cell.store(first_out->word);
    EXPECT_FALSE(track.at_rest()) << "the second scope is still in the stream";
    cell.store(second_out->word);
    EXPECT_TRUE(track.at_rest());
}

}  // namespace
}  // namespace kdvfs
