// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/clock_controller.hpp>

#include "controlled_board.hpp"

#include <gtest/gtest.h>

namespace kdvfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = kdvfs::detail::ClockCommand::Kind;

constexpr ClockPoint low{.core = 500_MHz};
constexpr ClockPoint mid{.core = 1000_MHz};
constexpr ClockPoint high{.core = 1500_MHz};

TEST(Arbitration, HighestRequestWins) {
    ControlledBoard board;
    board.enter(0, low);
    board.settle();
    EXPECT_EQ(board.state.cap, low);
    board.enter(1, mid);
    board.settle();
    EXPECT_EQ(board.state.cap, mid);
    board.enter(2, low);
    board.settle();
    EXPECT_EQ(board.state.cap, mid);
    board.leave(1);
    board.settle();
    EXPECT_EQ(board.state.cap, low);
}

TEST(Arbitration, DomainsAreArbitratedApart) {
    ControlledBoard board;
    board.enter(0, {500_MHz, 8000_MHz});
    board.enter(1, {1000_MHz, 5000_MHz});
    board.settle();
    EXPECT_EQ(board.state.cap, (ClockPoint{1000_MHz, 8000_MHz}));
    board.enter(2, {.core = 700_MHz});
    board.settle();
    EXPECT_EQ(board.state.cap, mid) << "a cap on one domain leaves the other to the board";
}

TEST(Arbitration, AutoIsHighestOfAll) {
    ControlledBoard board;
    board.enter(0, high);
    board.enter(1, {});
    board.settle();
    EXPECT_EQ(board.writes(), 0U) << "it was found on auto";
    board.leave(1);
    board.settle();
    EXPECT_EQ(board.state.cap, high);
    board.enter(1, {});
    board.settle();
    EXPECT_EQ(board.state.cap, ClockPoint{});
}

TEST(Arbitration, AutoIsAsFoundUnlessItMayLeaveTheLimitsFound) {
    const ClockState capped{{.core = 1000_MHz}, {.core = 400_MHz}, "manual"};
    ControlledBoard board{{.initial = capped}};
    for (const ClockPoint point : {ClockPoint{}, high, mid, ClockPoint{.memory = auto_clock}}) {
        board.enter(0, point);
        board.settle();
        EXPECT_EQ(board.state, capped) << to_string(point);
        board.leave(0);
    }
    board.enter(0, {.core = 300_MHz});
    board.settle();
    EXPECT_EQ(board.state.cap, (ClockPoint{.core = 401_MHz})) << "above the floor that was found";

    ControlledBoard allowed{{.initial = capped, .options = {.may_leave_found_limits = true}}};
    allowed.enter(0, {});
    allowed.settle();
    EXPECT_EQ(allowed.state.cap, ClockPoint{});
    allowed.leave(0);
    allowed.settle();
    EXPECT_EQ(allowed.state, allowed.found()) << "nothing asks: as found, not auto";
}

TEST(Arbitration, PinnedClocksAreLeftAlone) {
    for (const char* level : {"low", "high", "profile_peak", "profile_min_sclk"}) {
        ControlledBoard board{{.initial = {{}, {}, level}}};
        board.enter(0, low);
        board.settle();
        EXPECT_EQ(board.writes(), 0U) << level;
    }
}

TEST(Arbitration, NothingIsAskedForOutsideTheLimits) {
    ControlledBoard board{{.options = {.never_below = mid, .never_above = high}}};
    board.enter(0, {});
    board.settle();
    EXPECT_EQ(board.state.cap, high) << "auto is highest of all, and above the ceiling";
    board.enter(0, low);
    board.settle();
    EXPECT_EQ(board.state.cap, mid);
    board.controller.limit({}, low, board.now);
    board.settle();
    EXPECT_EQ(board.state.cap, low);
    board.leave(0);
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state, board.found());
}

TEST(Arbitration, TracksOutsideScopesHaveNoVoteUnlessProtected) {
    ControlledBoard board;
    board.controller.protect(TrackId{9}, ClockPoint{}, board.now);
    board.enter(0, low);
    board.settle();
    EXPECT_EQ(board.state.cap, ClockPoint{});
    EXPECT_EQ(board.controller.asked(), ClockPoint{});
    board.controller.withdraw(TrackId{9}, board.now);
    board.settle();
    EXPECT_EQ(board.state.cap, low);
}

TEST(Arbitration, ProtectingAloneWritesNothing) {
    ControlledBoard board{{.initial = {{.core = 1600_MHz}, {}, "manual"}}};
    board.controller.protect(TrackId{9}, ClockPoint{.core = 500_MHz}, board.now);
    board.settle();
    EXPECT_EQ(board.state, board.found());
    EXPECT_EQ(board.controller.counts().writes, 0U);
    board.enter(0, low);
    board.settle();
    EXPECT_EQ(board.state.cap, low) << "which is above the bound";
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state, board.found());
}

TEST(Arbitration, AProtectedTracksOwnScopesCannotLowerIt) {
    ControlledBoard board;
    board.enter(0, low);
    board.settle();
    board.controller.protect(TrackId{0}, ClockPoint{}, board.now);
    board.settle();
    EXPECT_EQ(board.state.cap, ClockPoint{}) << "the vote stands at once";
    board.enter(0, mid);
    board.settle();
    EXPECT_EQ(board.state.cap, ClockPoint{});
}

TEST(Arbitration, AWithdrawnTrackLosesItsVote) {
    ControlledBoard board;
    board.enter(0, high);
    board.enter(1, low);
    board.settle();
    board.controller.withdraw(TrackId{0}, board.now);
    board.settle();
    EXPECT_EQ(board.state.cap, low);
}

TEST(Restoring, WhenNothingIsLeftTheFoundStateIsBack) {
    const ClockState found{{.core = 1500_MHz}, {.core = 500_MHz}, "manual"};
    ControlledBoard board{{.initial = found}};
    board.enter(0, low);
    board.enter(0, mid);
    board.settle();
    board.leave(0);
    board.settle();
    EXPECT_TRUE(board.controller.changed());
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state, found);
    EXPECT_FALSE(board.controller.changed());
    EXPECT_EQ(board.controller.counts().restores, 1U);
    EXPECT_EQ(board.controller.next_deadline(), std::nullopt) << "a board at rest is not watched";
}

TEST(Restoring, FoundOnAutoThereIsNothingToPutBackAfterAuto) {
    ControlledBoard board;
    board.enter(0, {});
    board.enter(0, low);
    board.settle();
    board.leave(0);
    board.settle();
    const auto writes = board.writes();
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.writes(), writes);
    EXPECT_EQ(board.state, board.found());
    EXPECT_FALSE(board.controller.changed());
    EXPECT_EQ(board.controller.next_deadline(), std::nullopt) << "a board at rest is not watched";
}

TEST(Restoring, AModeThatAutoLeavesBehindIsPutBack) {
    ControlledBoard board;
    board.after_apply = [&] { board.state.mode = "manual"; };
    board.enter(0, low);
    board.settle();
    board.enter(0, {});
    board.settle();
    board.leave(0);
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state, board.found());
    EXPECT_FALSE(board.controller.changed());
}

TEST(Counts, EachScopeIsSwitchedForOrElided) {
    ControlledBoard board;
    board.enter(0, low);
    board.settle();
    EXPECT_EQ(board.asked().switched, 1U);
    board.enter(1, low);
    board.settle();
    EXPECT_EQ(board.asked().switched, 1U) << "the state already held: redundant";
    board.enter(2, mid);
    board.enter(3, mid);
    board.settle();
    EXPECT_EQ(board.asked().switched, 3U) << "one write served two scopes";
    EXPECT_EQ(board.counts().writes, 2U);
    EXPECT_EQ(board.asked().refused, 0U);
}

TEST(Counts, AnOuterScopeThatIsBackInForceIsNoNewScope) {
    ControlledBoard board;
    board.enter(0, low);
    board.settle();
    board.enter(0, mid);
    board.settle();
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state.cap, low);
    EXPECT_EQ(board.counts().writes, 3U);
    EXPECT_EQ(board.asked().switched, 2U);
}

TEST(Counts, ReplaysOfACapturedTrackAreNotScopes) {
    ControlledBoard board;
    const RequestIndex index = board.requests.index_of(low);
    for (int replay = 0; replay < 3; ++replay) {
        board.controller.replayed(TrackId{0}, RequestWord{index, 1}, board.now);
        board.settle();
        EXPECT_EQ(board.state.cap, low);
        board.controller.replayed(TrackId{0}, RequestWord{no_request, 1}, board.now);
        board.settle();
        EXPECT_EQ(board.state, board.found());
    }
    EXPECT_EQ(board.asked().switched, 0U);
    EXPECT_EQ(board.counts().writes, 3U);
}

TEST(Counts, TicketsMayWrap) {
    ControlledBoard board;
    const RequestIndex index = board.requests.index_of(low);
    const std::uint32_t last = (1U << 20) - 1;
    for (const std::uint32_t ticket : {last - 1, last, 0U, 1U}) {
        board.controller.request_changed(TrackId{0}, RequestWord{index, ticket}, board.now,
                                         ControlledBoard::one_kind);
        board.settle();
        board.controller.request_changed(TrackId{0}, RequestWord{no_request, ticket}, board.now,
                                         ControlledBoard::one_kind);
        board.settle();
    }
    EXPECT_EQ(board.asked().switched, 4U);
    // The track of before the wrap, seen again, is old.
    board.controller.request_changed(TrackId{0}, RequestWord{index, last}, board.now,
                                     ControlledBoard::one_kind);
    board.settle();
    EXPECT_EQ(board.asked().switched, 4U);
}

TEST(Counts, AScopeThatIsOverBeforeItsTurnIsElided) {
    ControlledBoard board;
    board.enter(0, low);
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.writes(), 0U);
    board.enter(0, low);
    board.settle();
    EXPECT_EQ(board.asked().switched, 1U) << "and is not counted with the next";
}

TEST(Timing, OneCommandAtATime) {
    ControlledBoard board;
    board.enter(0, low);
    const auto command = board.controller.next_command(board.now);
    ASSERT_TRUE(command);
    EXPECT_EQ(board.controller.next_command(board.now), std::nullopt);
    EXPECT_EQ(board.controller.next_deadline(), std::nullopt) << "the answer wakes it";
    board.enter(0, mid);
    EXPECT_EQ(board.controller.next_command(board.now + seconds{9}), std::nullopt);
    board.answer(*command);
    board.settle();
    EXPECT_EQ(board.state.cap, mid) << "what came meanwhile is not lost";
    EXPECT_EQ(board.asked().switched, 2U);
}

TEST(Timing, LoweringMayBeHeldBackRaisingNever) {
    ControlledBoard board{{.options = {.lower_after = milliseconds{10}}}};
    board.enter(0, mid);
    board.settle();
    EXPECT_EQ(board.writes(), 0U);
    EXPECT_EQ(board.controller.next_deadline(), board.now + milliseconds{10});
    board.pass(milliseconds{9});
    EXPECT_EQ(board.writes(), 0U);
    board.pass(milliseconds{1});
    EXPECT_EQ(board.state.cap, mid);
    board.enter(1, high);
    board.settle();
    EXPECT_EQ(board.state.cap, high) << "at once";
    board.leave(1);
    board.settle();
    EXPECT_EQ(board.state.cap, high);
    board.pass(milliseconds{10});
    EXPECT_EQ(board.state.cap, mid);
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state, board.found()) << "back to auto is a raise";
}

TEST(Timing, GoingBackToALowerFoundStateIsHeldBackToo) {
    ControlledBoard board{
        {.initial = {{.core = 500_MHz}, {}, "manual"},
         .options = {.may_leave_found_limits = true, .lower_after = milliseconds{10}}}};
    board.enter(0, high);
    board.settle();
    EXPECT_EQ(board.state.cap, high);
    board.leave(0);
    board.pass(milliseconds{9});
    EXPECT_EQ(board.state.cap, high);
    board.pass(milliseconds{1});
    EXPECT_EQ(board.state, board.found());
}

TEST(Timing, OneDomainRisesWhileTheOtherWaits) {
    ControlledBoard board{{.options = {.lower_after = milliseconds{10}}}};
    board.enter(0, {500_MHz, 8000_MHz});
    board.pass(milliseconds{10});
    board.leave(0);
    board.enter(0, {1000_MHz, 5000_MHz});
    board.settle();
    EXPECT_EQ(board.state.cap, (ClockPoint{1000_MHz, 8000_MHz}));
    board.pass(milliseconds{10});
    EXPECT_EQ(board.state.cap, (ClockPoint{1000_MHz, 5000_MHz}));
}

TEST(Verifying, LooksOnceASecondWhileSomethingIsChanged) {
    ControlledBoard board;
    board.pass(seconds{5});
    EXPECT_EQ(board.calls.size(), 0U) << "an idle controller leaves the board alone";
    board.enter(0, low);
    board.settle();
    board.calls.clear();
    for (std::size_t second = 1; second <= 3; ++second) {
        EXPECT_EQ(board.controller.next_deadline(), board.now + seconds{1});
        board.pass(milliseconds{999});
        EXPECT_EQ(board.calls.size(), second - 1);
        board.pass(milliseconds{1});
        EXPECT_EQ(board.calls.size(), second);
    }
    EXPECT_EQ(board.writes(), 0U);
}

TEST(Verifying, AsksAgainAfterAReset) {
    ControlledBoard board;
    board.enter(0, low);
    board.settle();
    board.state = {};
    board.pass(seconds{1});
    EXPECT_EQ(board.state.cap, low);
    EXPECT_EQ(board.counts().resets, 1U);
    EXPECT_EQ(board.counts().external_changes, 0U);
    EXPECT_TRUE(board.controller.armed());
    EXPECT_EQ(board.asked().switched, 1U) << "the second write is for no new scope";
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state, board.found());
}

TEST(Verifying, AsksAgainWhereTheFoundStateWasPutBackUnderAStoppedProcess) {
    ControlledBoard board{{.initial = {{.core = 1500_MHz}, {}, "manual"}}};
    board.enter(0, low);
    board.settle();
    board.state = board.found();
    board.pass(seconds{1});
    EXPECT_EQ(board.state.cap, low);
    EXPECT_EQ(board.counts().resets, 1U);
    EXPECT_EQ(board.counts().external_changes, 0U);
    EXPECT_TRUE(board.controller.armed());
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state, board.found());
}

TEST(Verifying, WhatAResetUndidIsNotPutBack) {
    ControlledBoard board{{.initial = {{.core = 1500_MHz}, {}, "manual"}}};
    board.enter(0, low);
    board.settle();
    board.state = {};
    board.pass(seconds{1});
    EXPECT_EQ(board.state.cap, low);
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state, ClockState{}) << "the settings found at first died with the reset";
}

TEST(Verifying, AResetSeenOnlyWhenRestoringIsAReset) {
    ControlledBoard board{{.initial = {{.core = 1500_MHz}, {}, "manual"}}};
    board.enter(0, low);
    board.settle();
    board.state = {};
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state, ClockState{});
    EXPECT_EQ(board.counts().resets, 1U);
    EXPECT_TRUE(board.controller.armed());
    EXPECT_FALSE(board.controller.take_error());
}

TEST(Verifying, AForeignChangeStaysAndIsReported) {
    ControlledBoard board;
    board.enter(0, low);
    board.settle();
    const ClockState theirs{{.core = 900_MHz}, {}, "manual"};
    board.state = theirs;
    board.pass(seconds{1});
    EXPECT_FALSE(board.controller.armed());
    EXPECT_EQ(board.counts().external_changes, 1U);
    const auto error = board.controller.take_error();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::external_change);
    EXPECT_NE(std::string{error->what()}.find("core 900 MHz"), std::string::npos);
    EXPECT_FALSE(board.controller.take_error()) << "taken once";
    board.leave(0);
    board.pass(seconds{5});
    EXPECT_EQ(board.state, theirs);

    board.controller.rearm();
    board.enter(0, low);
    board.settle();
    EXPECT_EQ(board.state.cap, low) << "taken over again, at the user's word";
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state, theirs) << "theirs is what was found";
}

TEST(Verifying, AForeignChangeSeenWhenRestoringStaysToo) {
    ControlledBoard board;
    board.enter(0, low);
    board.settle();
    board.state = {{.core = 900_MHz}, {}, "manual"};
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state.cap, (ClockPoint{.core = 900_MHz}));
    EXPECT_EQ(board.counts().restores, 0U);
    EXPECT_EQ(board.controller.take_error()->code(), Errc::external_change);
}

TEST(Verifying, ALongRestEndsWithALook) {
    ControlledBoard board;
    board.enter(0, low);
    board.settle();
    board.leave(0);
    board.settle();
    board.pass(seconds{2});
    const ClockState theirs{{.core = 900_MHz}, {}, "manual"};
    board.state = theirs;
    board.enter(0, low);
    board.settle();
    EXPECT_EQ(board.state.cap, low);
    EXPECT_TRUE(board.controller.armed()) << "nothing of kdvfs's own was changed";
    board.leave(0);
    board.settle();
    EXPECT_EQ(board.state, theirs);
}

}  // namespace
}  // namespace kdvfs
