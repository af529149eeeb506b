// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/stream_track.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace kdvfs {
namespace {

constexpr RequestIndex low{1};
constexpr RequestIndex high{2};
constexpr std::uint32_t tickets = 1U << (32 - LevelWord::request_bits);

/// A lane whose stream runs whatever is put into it at once.
class LaneTest : public ::testing::Test {
protected:
    std::uint64_t enter(RequestIndex request) {
        const kdvfs::detail::LaneStep step = lane.enter(request);
        if (step.changed) cell.store(step.level);
        return step.entry;
    }
    void leave(std::uint64_t entry) {
        const auto step = lane.leave(entry);
        ASSERT_TRUE(step);
        if (step->changed) cell.store(step->level);
    }

    LevelCell cell;
    kdvfs::detail::Lane lane{LaneId{3}, LaneKey{}, &cell};
};

TEST_F(LaneTest, StartsWithoutARequest) {
    EXPECT_EQ(lane.level().request(), no_request);
    EXPECT_EQ(lane.level(), cell.load()) << "a new cell says the same";
    EXPECT_EQ(lane.depth(), 0U);
    EXPECT_TRUE(lane.at_rest());
    EXPECT_FALSE(lane.captured());
    EXPECT_TRUE((kdvfs::detail::Lane{LaneId{0}, LaneKey{.capture = 7}, &cell}.captured()));
}

TEST_F(LaneTest, NestedScopesGiveBackTheOuterRequest) {
    const auto outer = enter(low);
    const LevelWord outer_level = lane.level();
    const auto inner = enter(high);
    EXPECT_EQ(lane.level().request(), high);
    EXPECT_NE(lane.level().ticket(), outer_level.ticket());
    leave(inner);
    EXPECT_EQ(lane.level(), outer_level) << "with the outer scope's ticket: it is no new scope";
    leave(outer);
    EXPECT_EQ(lane.level().request(), no_request);
}

TEST_F(LaneTest, AScopeWithoutOpinionInherits) {
    const auto alone = enter(no_request);
    EXPECT_EQ(lane.level().request(), no_request);
    leave(alone);
    enter(low);
    const kdvfs::detail::LaneStep kept = lane.enter(no_request);
    EXPECT_FALSE(kept.changed);
    EXPECT_FALSE(kept.elided) << "it asked for nothing that could be elided";
    EXPECT_EQ(kept.level.request(), low);
    EXPECT_FALSE(lane.leave(kept.entry)->changed);
}

TEST_F(LaneTest, ElidesTheEnclosingRequestAndOnlyThat) {
    EXPECT_FALSE(lane.enter(low).elided) << "nothing encloses it";
    const kdvfs::detail::LaneStep same = lane.enter(low);
    EXPECT_TRUE(same.elided);
    EXPECT_FALSE(same.changed) << "no stream operation";
    EXPECT_FALSE(lane.leave(same.entry)->changed);

    const kdvfs::detail::LaneStep other = lane.enter(high);
    EXPECT_FALSE(other.elided);
    EXPECT_TRUE(other.changed);
    EXPECT_FALSE(lane.enter(low).elided) << "the innermost request counts, not any outer one";
}

TEST_F(LaneTest, ElidesThroughAScopeWithoutOpinion) {
    lane.enter(low);
    lane.enter(no_request);
    EXPECT_TRUE(lane.enter(low).elided);
}

TEST_F(LaneTest, NothingIsElidedBetweenNeighbours) {
    leave(enter(low));
    const kdvfs::detail::LaneStep next = lane.enter(low);
    EXPECT_FALSE(next.elided);
    EXPECT_TRUE(next.changed);
}

TEST_F(LaneTest, AnElidedScopeOutlivesTheOneThatEnclosedIt) {
    const auto outer = enter(low);
    const auto inner = enter(low);
    const auto step = lane.leave(outer);
    EXPECT_FALSE(step->changed);
    EXPECT_EQ(step->level.request(), low) << "the inner scope still asks";
    EXPECT_EQ(lane.leave(inner)->level.request(), no_request);
}

TEST_F(LaneTest, LeavingTwiceIsNothing) {
    const auto entry = enter(low);
    leave(entry);
    EXPECT_EQ(lane.leave(entry), std::nullopt);
    EXPECT_EQ(lane.leave(entry + 1), std::nullopt);
    EXPECT_TRUE(lane.at_rest());
}

// Of four scopes, left in each of the 24 orders, the level is always that of the innermost that is
// still open and has an opinion.
TEST_F(LaneTest, ScopesLeaveInAnyOrder) {
    const std::array<RequestIndex, 4> requests{low, no_request, high, low};
    std::array<std::size_t, 4> order{0, 1, 2, 3};
    do {
        std::array<std::uint64_t, 4> entries{};
        for (std::size_t i = 0; i < 4; ++i) entries[i] = enter(requests[i]);
        std::array<bool, 4> open{true, true, true, true};
        for (const std::size_t left : order) {
            const LevelWord before = lane.level();
            const auto step = lane.leave(entries[left]);
            ASSERT_TRUE(step);
            open[left] = false;
            RequestIndex expected = no_request;
            for (std::size_t i = 0; i < 4; ++i) {
                if (open[i] && requests[i] != no_request) expected = requests[i];
            }
            EXPECT_EQ(step->level.request(), expected);
            EXPECT_EQ(step->level, lane.level());
            EXPECT_EQ(step->changed, step->level != before) << "no marker for nothing";
            if (step->changed) cell.store(step->level);
        }
        EXPECT_TRUE(lane.at_rest());
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(LaneTest, EachScopeThatAsksHasATicketOfItsOwn) {
    std::vector<std::uint32_t> seen;
    for (int i = 0; i < 100; ++i) {
        const auto outer = enter(low);
        seen.push_back(lane.level().ticket());
        const auto inner = enter(high);
        seen.push_back(lane.level().ticket());
        leave(inner);
        leave(outer);
    }
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST_F(LaneTest, TicketsWrapAroundWithoutTouchingTheRequest) {
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < tickets + 2; ++i) {
        const kdvfs::detail::LaneStep in = lane.enter(high);
        ASSERT_EQ(in.level.request(), high) << i;
        ASSERT_TRUE(in.changed) << i;
        ASSERT_EQ((in.level.ticket() - last) % tickets, 1U) << i;
        last = in.level.ticket();
        const auto out = lane.leave(in.entry);
        ASSERT_EQ(out->level.request(), no_request) << i;
        ASSERT_TRUE(out->changed) << i;
        cell.store(out->level);
        ASSERT_TRUE(lane.at_rest()) << i;
    }
    EXPECT_EQ(last, 2U) << "it did wrap";
}

TEST_F(LaneTest, RestsOnceTheStreamHasPassedTheLastMarker) {
    const kdvfs::detail::LaneStep in = lane.enter(low);
    EXPECT_FALSE(lane.at_rest()) << "a scope is open";
    const auto out = lane.leave(in.entry);
    EXPECT_FALSE(lane.at_rest()) << "the stream has yet to get to either marker";
    cell.store(in.level);
    EXPECT_FALSE(lane.at_rest());
    cell.store(out->level);
    EXPECT_TRUE(lane.at_rest());
}

// Without the ticket in the empty level, the end of the first scope would pass for the second's.
TEST_F(LaneTest, TellsOneEndFromAnother) {
    const kdvfs::detail::LaneStep first_in = lane.enter(low);
    const auto first_out = lane.leave(first_in.entry);
    const kdvfs::detail::LaneStep second_in = lane.enter(low);
    const auto second_out = lane.leave(second_in.entry);
    cell.store(first_out->level);
    EXPECT_FALSE(lane.at_rest()) << "the second scope is still in the stream";
    cell.store(second_out->level);
    EXPECT_TRUE(lane.at_rest());
}

}  // namespace
}  // namespace kdvfs
