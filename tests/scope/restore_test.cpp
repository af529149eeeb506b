// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/clock_command.hpp>

#include "board_double.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace kdvfs {
namespace {

const ClockState found{{.core = 1500_MHz}, {}, "manual"};
const ClockState ours{{.core = 1000_MHz}, {}, "capped"};
const ClockState theirs{{.core = 500_MHz}, {}, "manual"};

TEST(DecideRestore, TouchesNothingThatKdvfsDidNotChange) {
    EXPECT_EQ(kdvfs::detail::decide_restore({.initial = found}, found),
              kdvfs::detail::RestoreDecision::nothing);
    EXPECT_EQ(kdvfs::detail::decide_restore({.initial = found}, theirs),
              kdvfs::detail::RestoreDecision::nothing);
}

TEST(DecideRestore, PutsBackItsOwnValueAndOnlyThat) {
    const kdvfs::detail::ClockHistory history{.initial = found, .written = ours};
    EXPECT_EQ(kdvfs::detail::decide_restore(history, ours),
              kdvfs::detail::RestoreDecision::write_back);
    EXPECT_EQ(kdvfs::detail::decide_restore(history, theirs),
              kdvfs::detail::RestoreDecision::leave_external);
    EXPECT_EQ(kdvfs::detail::decide_restore(history, ClockState{}),
              kdvfs::detail::RestoreDecision::leave_external);
    EXPECT_EQ(kdvfs::detail::decide_restore(history, found),
              kdvfs::detail::RestoreDecision::nothing)
        << "already there";
}

TEST(DecideRestore, ComparesTheWholeState) {
    const kdvfs::detail::ClockHistory history{.initial = found, .written = ours};
    ClockState mode = ours;
    mode.mode = "manual";
    ClockState floor = ours;
    floor.floor = {.core = 500_MHz};
    EXPECT_EQ(kdvfs::detail::decide_restore(history, mode),
              kdvfs::detail::RestoreDecision::leave_external);
    EXPECT_EQ(kdvfs::detail::decide_restore(history, floor),
              kdvfs::detail::RestoreDecision::leave_external);
}

TEST(DecideRestore, PutsBackWhateverAHalfDoneWriteLeft) {
    for (const std::optional<ClockState>& written : {std::optional<ClockState>{}, {ours}}) {
        const kdvfs::detail::ClockHistory history{found, written, true};
        EXPECT_EQ(kdvfs::detail::decide_restore(history, theirs),
                  kdvfs::detail::RestoreDecision::write_back);
        EXPECT_EQ(kdvfs::detail::decide_restore(history, found),
                  kdvfs::detail::RestoreDecision::nothing);
    }
}

using Kind = kdvfs::detail::ClockCommand::Kind;

TEST(Execute, AppliesAndReadsBack) {
    BoardDouble board;
    const auto outcome =
        kdvfs::detail::execute(board, {.kind = Kind::apply, .point = {.core = 1000_MHz}});
    EXPECT_EQ(outcome.state, board.state);
    EXPECT_EQ(board.state.cap, (ClockPoint{.core = 1000_MHz}));
    EXPECT_FALSE(outcome.error);
}

TEST(Execute, VerifiesWithoutWriting) {
    BoardDouble board;
    board.state = theirs;
    EXPECT_EQ(kdvfs::detail::execute(board, {.kind = Kind::verify}).state, theirs);
    EXPECT_EQ(board.calls, std::vector<std::string>{"read"});
}

TEST(Execute, RestoresOnlyAfterALook) {
    BoardDouble board;
    board.state = ours;
    const kdvfs::detail::ClockCommand command{.kind = Kind::restore,
                                              .history = {.initial = found, .written = ours}};
    EXPECT_EQ(kdvfs::detail::execute(board, command).restore,
              kdvfs::detail::RestoreDecision::write_back);
    EXPECT_EQ(board.state, found);
    EXPECT_EQ(kdvfs::detail::execute(board, command).restore,
              kdvfs::detail::RestoreDecision::nothing);

    board.state = theirs;
    const auto left = kdvfs::detail::execute(board, command);
    EXPECT_EQ(left.restore, kdvfs::detail::RestoreDecision::leave_external);
    EXPECT_EQ(left.state, theirs);
    EXPECT_EQ(board.state, theirs);
}

TEST(Execute, TellsOfEveryFailure) {
    BoardDouble board;
    board.on_apply = throws(Errc::busy);
    EXPECT_EQ(kdvfs::detail::execute(board, {.kind = Kind::apply}).error->code(), Errc::busy);
    board.on_read = throws(Errc::vanished);
    EXPECT_EQ(kdvfs::detail::execute(board, {.kind = Kind::verify}).error->code(), Errc::vanished);
    board.on_apply = [] { throw std::runtime_error{"out of descriptors"}; };
    const auto outcome = kdvfs::detail::execute(board, {.kind = Kind::apply});
    EXPECT_EQ(outcome.error->code(), Errc::io);
    EXPECT_EQ(outcome.error->text().vendor_words, "out of descriptors");
    EXPECT_EQ(outcome.error->text().object, "Test Board (0000:03:00.0)");
}

TEST(Execute, TellsThatARestoreFailedAfterItHadBegunToWrite) {
    BoardDouble board;
    board.state = ours;
    board.on_restore = throws(Errc::refused);
    const auto outcome = kdvfs::detail::execute(
        board, {.kind = Kind::restore, .history = {.initial = found, .written = ours}});
    EXPECT_TRUE(outcome.error);
    EXPECT_EQ(outcome.restore, kdvfs::detail::RestoreDecision::write_back);
}

}  // namespace
}  // namespace kdvfs
