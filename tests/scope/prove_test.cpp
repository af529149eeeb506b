// SPDX-License-Identifier: MIT
#include <kdvfs/detail/gpu/open.hpp>

#include "board_double.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace kdvfs {
namespace {

/// Proves, and expects an error of this kind that says all this.
void expect_refusal(BoardDouble& board, Errc code, std::initializer_list<const char*> words) {
    try {
        kdvfs::detail::prove_clock_control(board);
        FAIL() << "nothing was thrown";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        for (const char* word : words) {
            EXPECT_NE(std::string{error.what()}.find(word), std::string::npos)
                << "'" << word << "' in: " << error.what();
        }
    }
}

const ClockState somebodys{{.core = 1000_MHz}, {.core = 500_MHz}, "manual"};

TEST(Prove, SetsTheHighestClockAndPutsBackWhatItFound) {
    BoardDouble board;
    board.state = somebodys;
    EXPECT_EQ(kdvfs::detail::prove_clock_control(board), somebodys);
    EXPECT_EQ(board.state, somebodys);
    EXPECT_EQ(board.calls,
              (std::vector<std::string>{"read", "apply core 1500 MHz, memory auto", "read",
                                        "restore core 1000 MHz, memory auto", "read"}));
}

TEST(Prove, RefusesADeviceWithoutClocks) {
    BoardDouble board;
    board.clocks.core.listed.clear();
    expect_refusal(board, Errc::not_supported, {"Test Board (0000:03:00.0)", "measure_only"});
    EXPECT_EQ(board.calls, std::vector<std::string>{"read"}) << "nothing was tried";
}

TEST(Prove, PassesOnWhyItCannotEvenRead) {
    BoardDouble board;
    board.on_read = throws(Errc::vanished);
    expect_refusal(board, Errc::vanished, {"STATUS_NO"});
    EXPECT_EQ(board.calls, std::vector<std::string>{"read"});
}

TEST(Prove, PassesOnTheDriversRefusalAndRestores) {
    BoardDouble board;
    board.state = somebodys;
    board.on_apply = [&] {
        board.state.mode = "half-way";
        throw board_error(Errc::refused);
    };
    expect_refusal(board, Errc::refused, {"STATUS_NO"});
    EXPECT_EQ(board.state, somebodys) << "what it had changed before it refused is put back";
}

TEST(Prove, NoticesADriverThatAcceptsAndDoesNothing) {
    BoardDouble board;
    board.deaf = true;
    expect_refusal(board, Errc::refused,
                   {"set core 1500 MHz", "reads back core auto", "Test Board (0000:03:00.0)"});
    EXPECT_EQ(board.state, ClockState{});
}

TEST(Prove, RestoresWhereTheReadBackFails) {
    BoardDouble board;
    board.after_apply = [&] { board.on_read = throws(Errc::io); };
    expect_refusal(board, Errc::io, {"STATUS_NO"});
    EXPECT_EQ(board.state, ClockState{});
}

TEST(Prove, RestoresWhateverWasThrown) {
    BoardDouble board;
    board.after_apply = [] { throw std::runtime_error{"out of descriptors"}; };
    EXPECT_THROW(kdvfs::detail::prove_clock_control(board), std::runtime_error);
    EXPECT_EQ(board.state, ClockState{});
}

TEST(Prove, SaysTheFirstErrorWhereRestoringFailsToo) {
    BoardDouble board;
    board.after_apply = throws(Errc::busy);
    board.on_restore = throws(Errc::vanished);
    expect_refusal(board, Errc::busy, {});
}

TEST(Prove, PassesOnThatItCannotRestore) {
    BoardDouble board;
    board.on_restore = throws(Errc::refused);
    expect_refusal(board, Errc::refused, {"STATUS_NO"});
}

TEST(Prove, NoticesARestoreThatDoesNothing) {
    BoardDouble board;
    board.deaf_to_restore = true;
    expect_refusal(board, Errc::refused, {"restore the clock settings", "core 1500 MHz"});
}

}  // namespace
}  // namespace kdvfs
