// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/clock_controller.hpp>

#include "controlled_board.hpp"

#include <gtest/gtest.h>

namespace kdvfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = kdvfs::detail::ClockCommand::Kind;

constexpr ClockPoint low_clock{.core = 500_MHz};
constexpr ClockPoint mid_clock{.core = 1000_MHz};

/// Fails so many times, then works.
std::function<void()> throws_times(Errc code, int times) {
    return [code, left = times]() mutable {
        if (left-- > 0) throw board_error(code);
    };
}

TEST(TransientErrors, AreRetriedEachTimeFourTimesLater) {
    ControlledBoard board;
    board.on_apply = throws_times(Errc::busy, 3);
    board.enter(0, low_clock);
    for (const int pause : {1, 4, 16}) {
        board.settle();
        EXPECT_EQ(board.state, board.found());
        EXPECT_EQ(board.controller.next_deadline(), board.now + milliseconds{pause});
        const auto calls = board.calls.size();
        board.pass(milliseconds{pause} - Duration{1});
        EXPECT_EQ(board.calls.size(), calls) << "not before its time";
        board.pass(Duration{1});
    }
    EXPECT_EQ(board.state.cap, low_clock);
    EXPECT_EQ(board.counts().retries, 3U);
    EXPECT_EQ(board.asked().switched, 1U);
    EXPECT_EQ(board.asked().refused, 0U);
    EXPECT_FALSE(board.controller.take_error()) << "it went well in the end";

    // The next trouble has all its retries again.
    board.on_apply = throws_times(Errc::busy, 3);
    board.enter(1, mid_clock);
    board.pass(seconds{1});
    EXPECT_EQ(board.state.cap, mid_clock);
    EXPECT_TRUE(board.controller.armed());
}

TEST(TransientErrors, ThatDoNotPassDisarm) {
    for (const Errc code : {Errc::busy, Errc::timed_out, Errc::io}) {
        ControlledBoard board;
        board.on_apply = throws(code);
        board.enter(0, low_clock);
        board.pass(seconds{1});
        EXPECT_FALSE(board.controller.armed());
        EXPECT_EQ(board.counts().retries, 3U);
        EXPECT_EQ(board.asked().refused, 1U);
        EXPECT_EQ(board.controller.take_error()->code(), code);
        EXPECT_FALSE(board.controller.changed());
    }
}

TEST(TransientErrors, ManyRetriesWaitLongButStayDefined) {
    ControlledBoard board{{.options = {.retries = 40, .first_retry_after = Duration{1}}}};
    board.on_apply = throws(Errc::busy);
    board.enter(0, low_clock);
    Duration last{0};
    for (int retry = 0; retry < 40; ++retry) {
        board.settle();
        const auto deadline = board.controller.next_deadline();
        ASSERT_TRUE(deadline);
        EXPECT_GE(*deadline - board.now, last) << retry;
        last = *deadline - board.now;
        board.now = *deadline;
    }
    board.settle();
    EXPECT_FALSE(board.controller.armed());
}

TEST(TransientErrors, ARetryAsksForWhatIsWantedThen) {
    ControlledBoard board;
    board.on_apply = throws_times(Errc::busy, 1);
    board.enter(0, low_clock);
    board.settle();
    board.enter(1, mid_clock);
    board.pass(milliseconds{1});
    EXPECT_EQ(board.state.cap, mid_clock);
    EXPECT_EQ(board.asked().switched, 2U) << "the write served both";
}

TEST(TransientErrors, AScopeThatIsOverBeforeItsRetryWasRefused) {
    ControlledBoard board;
    board.on_apply = throws_times(Errc::busy, 1);
    board.enter(0, low_clock);
    board.settle();
    board.leave(0);
    board.pass(milliseconds{1});
    EXPECT_EQ(board.state, board.found());
    EXPECT_EQ(board.asked().refused, 1U);
    EXPECT_EQ(board.asked().switched, 0U);
    EXPECT_TRUE(board.controller.armed());
}

TEST(TransientErrors, OfALookAreRetriedToo) {
    ControlledBoard board;
    board.enter(0, low_clock);
    board.settle();
    board.on_read = throws_times(Errc::busy, 2);
    board.pass(seconds{2});
    EXPECT_EQ(board.counts().retries, 2U);
    EXPECT_TRUE(board.controller.armed());
    EXPECT_EQ(board.state.cap, low_clock);
}

TEST(PermanentErrors, DisarmRestoreAndCountUntilRearmed) {
    ControlledBoard board;
    board.enter(0, low_clock);
    board.settle();
    board.on_apply = throws(Errc::refused);
    board.enter(1, mid_clock);
    board.enter(2, mid_clock);
    board.settle();
    EXPECT_FALSE(board.controller.armed());
    EXPECT_EQ(board.counts().retries, 0U);
    EXPECT_EQ(board.state, board.found()) << "clocks are back at their saved state";
    EXPECT_EQ(board.asked().switched, 1U);
    EXPECT_EQ(board.asked().refused, 2U);
    EXPECT_EQ(board.controller.take_error()->code(), Errc::refused);

    board.enter(0, mid_clock);
    board.pass(seconds{5});
    EXPECT_EQ(board.asked().refused, 3U) << "scopes go on, refused";
    EXPECT_EQ(board.state, board.found());

    board.on_apply = {};
    board.controller.rearm();
    board.settle();
    EXPECT_EQ(board.state.cap, mid_clock) << "what tracks ask for now";
    EXPECT_EQ(board.asked().switched, 1U) << "a refused scope stays refused";
    board.enter(3, {.core = 1500_MHz});
    board.settle();
    EXPECT_EQ(board.asked().switched, 2U);
    EXPECT_EQ(board.asked().refused, 3U);
}

TEST(PermanentErrors, ScopesThatWaitBehindTheFailingOneAreRefusedWithIt) {
    ControlledBoard board;
    board.enter(0, low_clock);
    const auto command = board.controller.next_command(board.now);
    board.enter(1, mid_clock);
    board.controller.completed({.error = board_error(Errc::refused)}, board.now);
    EXPECT_EQ(board.asked().refused, 2U);
    board.settle();
    EXPECT_EQ(board.asked().refused, 2U);
    EXPECT_TRUE(command);
}

TEST(PermanentErrors, TheFirstErrorIsKept) {
    ControlledBoard board;
    board.on_apply = throws(Errc::refused);
    board.enter(0, low_clock);
    board.settle();
    board.controller.rearm();
    board.on_apply = throws(Errc::not_supported);
    board.enter(1, mid_clock);
    board.settle();
    EXPECT_EQ(board.controller.take_error()->code(), Errc::refused);
    EXPECT_FALSE(board.controller.take_error());
}

TEST(PermanentErrors, AVanishedBoardIsNotTouchedAgain) {
    ControlledBoard board;
    board.enter(0, low_clock);
    board.settle();
    board.on_read = throws(Errc::vanished);
    board.pass(seconds{1});
    EXPECT_FALSE(board.controller.armed());
    const auto calls = board.calls.size();
    board.leave(0);
    board.controller.release();
    board.pass(seconds{5});
    EXPECT_EQ(board.calls.size(), calls);
    EXPECT_EQ(board.controller.next_deadline(), std::nullopt);
    EXPECT_EQ(board.controller.take_error()->code(), Errc::vanished);
}

TEST(PartialFailures, AWriteThatFailedHalfWayIsPutBack) {
    for (const Errc code : {Errc::refused, Errc::busy}) {
        ControlledBoard board{{.initial = {{.core = 1500_MHz}, {}, "manual"}}};
        board.after_apply = throws(code);
        board.enter(0, low_clock);
        board.settle();
        EXPECT_EQ(board.controller.changed(), code == Errc::busy) << "who knows what it holds";
        board.pass(seconds{1});
        EXPECT_EQ(board.state, board.found());
        EXPECT_FALSE(board.controller.changed());
    }
}

TEST(PartialFailures, AnUnreadableAnswerCountsAsHalfDone) {
    ControlledBoard board;
    board.after_apply = [&] { board.on_read = throws_times(Errc::refused, 1); };
    board.enter(0, low_clock);
    board.settle();
    EXPECT_FALSE(board.controller.armed());
    EXPECT_EQ(board.state, board.found());
    EXPECT_EQ(board.asked().refused, 1U);
}

TEST(PartialFailures, HalfDoneLoweringIsUndoneWhileLoweringIsHeldBack) {
    ControlledBoard board{{.options = {.lower_after = milliseconds{100}}}};
    board.after_apply = throws_times(Errc::busy, 1);
    board.enter(0, low_clock);
    board.pass(milliseconds{100});
    ASSERT_EQ(board.state.cap, low_clock) << "half-way";
    board.leave(0);
    board.enter(0, mid_clock);  // still lower than auto, and held back anew
    board.pass(milliseconds{1});
    EXPECT_EQ(board.state, board.found()) << "the doubt is cleared when the retry is due";
    board.pass(milliseconds{100});
    EXPECT_EQ(board.state.cap, mid_clock);
}

TEST(PartialFailures, ARestoreThatFailedHalfWayIsFinished) {
    ControlledBoard board;
    board.enter(0, low_clock);
    board.settle();
    int left = 1;
    board.on_restore = [&] {
        if (left-- <= 0) return;
        board.state = {{.core = 700_MHz}, {}, "half-way"};
        throw board_error(Errc::busy);
    };
    board.leave(0);
    board.pass(milliseconds{1});
    EXPECT_EQ(board.state, board.found()) << "kdvfs's own half-done work is nobody else's";
    EXPECT_EQ(board.counts().external_changes, 0U);
    EXPECT_TRUE(board.controller.armed());
}

TEST(SilentRefusal, OfACapDisarmsAndSaysWhatIsHeld) {
    ControlledBoard board;
    board.deaf = true;
    board.enter(0, low_clock);
    board.pass(seconds{1});
    EXPECT_FALSE(board.controller.armed());
    EXPECT_EQ(board.writes(), 4U) << "a write and three retries";
    EXPECT_EQ(board.asked().refused, 1U);
    EXPECT_EQ(board.asked().switched, 0U);
    const auto error = board.controller.take_error();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::refused);
    EXPECT_NE(std::string{error->what()}.find("reads back core auto"), std::string::npos);
    EXPECT_FALSE(board.controller.changed());
}

/// As the watchdog does where the process is stopped between its write and the look at it.
TEST(PutBackBeforeItsReadBack, IsWrittenAgain) {
    ControlledBoard board{{.initial = {{.core = 1500_MHz}, {}, "manual"}}};
    board.enter(0, mid_clock);
    board.settle();
    int stops = 3;
    board.after_apply = [&] {
        if (stops-- > 0) board.state = board.found();
    };
    board.enter(1, low_clock);
    board.leave(0);
    board.pass(seconds{1});
    EXPECT_EQ(board.state.cap, low_clock);
    EXPECT_EQ(board.counts().resets, 3U);
    EXPECT_TRUE(board.controller.armed());
    EXPECT_FALSE(board.controller.take_error());
    EXPECT_EQ(board.asked().switched, 2U);
    EXPECT_EQ(board.asked().refused, 0U);
    stops = 1;
    board.enter(1, mid_clock);
    board.settle();
    board.leave(1);
    board.leave(1);
    board.pass(seconds{1});
    board.settle();
    EXPECT_EQ(board.state, board.found());
    EXPECT_EQ(board.asked().observed, 3U);
    EXPECT_EQ(board.asked().switched + board.asked().redundant, 3U) << "each counts once";
}

TEST(SilentRefusal, OfARestoreIsTriedOnceMoreAtTheEnd) {
    ControlledBoard board;
    board.enter(0, low_clock);
    board.settle();
    board.deaf_to_restore = true;
    board.leave(0);
    board.settle();
    EXPECT_FALSE(board.controller.armed());
    EXPECT_EQ(board.controller.take_error()->code(), Errc::refused);
    EXPECT_TRUE(board.controller.changed()) << "it still owes";
    const auto calls = board.calls.size();
    board.pass(seconds{5});
    EXPECT_EQ(board.calls.size(), calls) << "and does not hammer";
    board.deaf_to_restore = false;
    board.controller.release();
    board.settle();
    EXPECT_EQ(board.state, board.found());
}

TEST(SilentRefusal, OfTheLastRestoreIsTriedAgainAndReported) {
    for (const int deaf_times : {2, 1000}) {
        ControlledBoard board;
        board.enter(0, low_clock);
        board.settle();
        int left = deaf_times;
        board.deaf_to_restore = true;
        board.on_restore = [&] { board.deaf_to_restore = left-- > 0; };
        board.controller.release();
        for (int turn = 0; turn < 100; ++turn) {  // as a control loop's end does: it never waits
            const auto command = board.controller.next_command(TimePoint::max());
            if (!command) break;
            board.answer(*command);
        }
        EXPECT_FALSE(board.controller.next_command(TimePoint::max())) << "it hammers";
        if (deaf_times == 2) {
            EXPECT_EQ(board.state, board.found());
            EXPECT_FALSE(board.controller.take_error());
        } else {
            EXPECT_EQ(board.controller.take_error()->code(), Errc::refused);
        }
    }
}

TEST(SilentRefusal, OfARestoreThatEndedElsewhereIsFinishedAtTheEnd) {
    ControlledBoard board;
    board.enter(0, low_clock);
    board.settle();
    board.after_restore = [&] { board.state.cap = {.core = 700_MHz}; };
    board.leave(0);
    board.settle();
    board.after_restore = {};
    board.controller.release();
    board.settle();
    EXPECT_EQ(board.state, board.found());
    EXPECT_EQ(board.counts().external_changes, 0U);
}

TEST(LettingGo, RestoresWhateverTracksSay) {
    ControlledBoard board{{.options = {.lower_after = seconds{9}}}};
    board.enter(0, low_clock);
    board.enter(1, mid_clock);
    board.pass(seconds{9});
    ASSERT_EQ(board.state.cap, mid_clock);
    board.controller.release();
    board.settle();
    EXPECT_EQ(board.state, board.found());
    EXPECT_EQ(board.controller.next_command(TimePoint::max()), std::nullopt);
}

TEST(LettingGo, IsDeafToTracksFromThenOn) {
    ControlledBoard board;
    board.enter(0, low_clock);
    board.settle();
    board.controller.release();
    board.enter(0, mid_clock);
    board.enter(1, low_clock);
    board.controller.protect(TrackId{2}, ClockPoint{}, board.now);
    board.settle();
    EXPECT_EQ(board.state, board.found()) << "a stream that is still running asks in vain";
    EXPECT_EQ(board.controller.asked(), std::nullopt);
    EXPECT_EQ(board.asked().switched, 1U);
}

TEST(LettingGo, WaitsForTheCommandThatIsUnderWay) {
    ControlledBoard board;
    board.enter(0, low_clock);
    const auto command = board.controller.next_command(board.now);
    board.controller.release();
    EXPECT_EQ(board.controller.next_command(board.now), std::nullopt);
    board.answer(*command);
    EXPECT_EQ(board.state.cap, low_clock);
    board.settle();
    EXPECT_EQ(board.state, board.found());
}

TEST(LettingGo, DoesNotHoldBackAFoundStateThatIsLower) {
    ControlledBoard board{{.initial = {{.core = 500_MHz}, {}, "manual"},
                           .options = {.may_leave_found_limits = true, .lower_after = seconds{9}}}};
    board.enter(0, {.core = 1500_MHz});
    const auto command = board.controller.next_command(board.now);
    board.controller.release();
    board.answer(*command);
    board.settle();
    EXPECT_EQ(board.state, board.found());
}

TEST(LettingGo, CutsABackOffShort) {
    ControlledBoard board;
    board.after_apply = throws_times(Errc::busy, 1);
    board.enter(0, low_clock);
    board.settle();
    board.controller.release();
    board.settle();
    EXPECT_EQ(board.state, board.found());
}

TEST(LettingGo, DuringARestoreIsContent) {
    ControlledBoard board;
    board.enter(0, low_clock);
    board.settle();
    board.leave(0);
    const auto command = board.controller.next_command(board.now);
    ASSERT_EQ(command->kind, Kind::restore);
    board.controller.release();
    board.answer(*command);
    board.settle();
    EXPECT_EQ(board.state, board.found());
    EXPECT_EQ(board.counts().restores, 1U);
}

TEST(LettingGo, LeavesAnUntouchedBoardAlone) {
    ControlledBoard board;
    board.controller.release();
    board.pass(seconds{5});
    EXPECT_TRUE(board.calls.empty());
}

}  // namespace
}  // namespace kdvfs
