// SPDX-License-Identifier: MIT
//
// The guard on plain files that stand for a board's.
#include <kdvfs/detail/restore/guard.hpp>
#include <kdvfs/device/amd/guard_script.hpp>

#include "temporary_folder.hpp"

#include <gtest/gtest.h>

#include <csignal>

namespace kdvfs {
namespace {

using namespace kdvfs::literals;
namespace amd = device::amd;

constexpr amd::ClockBounds mi300{132_MHz, 2100_MHz, 1300_MHz};
constexpr amd::ClockBounds mi210{500_MHz, 1700_MHz};

const std::string level_file = "power_dpm_force_performance_level";

/// Runs a guard on files with these contents, tells it the notes, and returns the level it leaves.
std::string guarded(const std::string& level, const std::string& table, const ClockState& found,
                    const amd::ClockBounds& bounds, const std::vector<std::string>& notes) {
    const TemporaryFolder folder;
    folder.write(level_file, level + "\n");
    folder.write("pp_od_clk_voltage", table);
    {
        kdvfs::detail::Guard guard{amd::guard_order(folder.path(), bounds, found), -1};
        for (const std::string& note : notes) guard.note(note);
    }
    return folder.read(level_file);
}

const std::string mi300_table =
    "OD_SCLK:\n0: 132Mhz\n1: 1100Mhz\nOD_MCLK:\n0: 900Mhz\n1: 1200Mhz\n"
    "OD_RANGE:\nSCLK:     132Mhz       2100Mhz\n";
const std::string mi210_table =
    "GFXCLK:\nS: 19Mhz *\n0: 500Mhz \n1: 800Mhz *\n2: 1100Mhz \nMCLK:\n0: 400Mhz \n1: 1600Mhz *\n";

TEST(Guard, RestoresWhatItWasToldIsHeld) {
    const ClockState held{{1100_MHz, 1200_MHz}, {132_MHz, auto_clock}, "manual"};
    EXPECT_EQ(guarded("manual", mi300_table, {}, mi300,
                      {"uncertain", "held " + amd::guard_words(mi300, held)}),
              "auto");
    const ClockState on_mi210{{1100_MHz, auto_clock}, {500_MHz, auto_clock}, "manual"};
    EXPECT_EQ(
        guarded("manual", mi210_table, {}, mi210, {"held " + amd::guard_words(mi210, on_mi210)}),
        "auto");
    const ClockState deterministic{{1100_MHz, auto_clock}, {}, "perf_determinism"};
    EXPECT_EQ(guarded("perf_determinism", mi210_table, {}, mi210,
                      {"held " + amd::guard_words(mi210, deterministic)}),
              "auto");
}

TEST(Guard, LeavesWhatSomebodyElseHasSetSince) {
    const ClockState held{{900_MHz, 1200_MHz}, {132_MHz, auto_clock}, "manual"};
    EXPECT_EQ(guarded("manual", mi300_table, {}, mi300, {"held " + amd::guard_words(mi300, held)}),
              "manual\n");
    EXPECT_EQ(guarded("high", mi300_table, {}, mi300, {"held " + amd::guard_words(mi300, held)}),
              "high\n");
}

TEST(Guard, PutsAnUncertainDeviceBackAndLeavesAnIdleOne) {
    EXPECT_EQ(guarded("manual", mi300_table, {}, mi300, {"uncertain"}), "auto");
    EXPECT_EQ(guarded("manual", mi300_table, {}, mi300, {"uncertain", "idle"}), "manual\n");
    EXPECT_EQ(guarded("manual", mi300_table, {}, mi300, {}), "manual\n");
}

TEST(Guard, WritesLimitsBackInTheOrderTheDriverTakes) {
    const ClockState found{{1300_MHz, auto_clock}, {800_MHz, auto_clock}, "manual"};
    const auto order = amd::guard_order("/f", mi300, found);
    const std::vector<std::string> expected{"/f",
                                            "memory",
                                            level_file,
                                            "auto",
                                            level_file,
                                            "manual",
                                            "pp_od_clk_voltage",
                                            "s 0 800\n",
                                            "pp_od_clk_voltage",
                                            "s 1 1300\n",
                                            "pp_od_clk_voltage",
                                            "m 1 1300\n",
                                            "pp_od_clk_voltage",
                                            "c\n"};
    EXPECT_EQ(order.arguments, expected);
}

TEST(Guard, OutlivesTheSignalsOfATerminal) {
    const TemporaryFolder folder;
    folder.write(level_file, "manual\n");
    {
        kdvfs::detail::Guard guard{amd::guard_order(folder.path(), mi210, {}), -1};
        guard.note("uncertain");
        ::usleep(20'000);  // the shell has set its traps
        for (const int signal : {SIGHUP, SIGINT, SIGTERM}) ::kill(guard.process(), signal);
    }
    EXPECT_EQ(folder.read(level_file), "auto");
}

TEST(Guard, ThatWasKilledIsAnError) {
    const TemporaryFolder folder;
    kdvfs::detail::Guard guard{amd::guard_order(folder.path(), mi210, {}), -1};
    ::kill(guard.process(), SIGKILL);
    EXPECT_THROW(
        {
            for (int i = 0; i < 1000; ++i) {
                guard.note("uncertain");
                ::usleep(1000);
            }
        },
        Error);
}

TEST(Guard, IsOfASessionOfItsOwnWithNothingElseOpen) {
    const TemporaryFolder folder;
    const GuardOrder order{"read -r line; ls /proc/$$/fd | tr '\\n' ' ' > \"$1\"; read -r line",
                           {folder.at("open")}};
    kdvfs::detail::Guard guard{order, -1};
    EXPECT_EQ(::getsid(guard.process()), guard.process());
    guard.note("go");
    std::string open;
    for (int i = 0; i < 1000 && open.empty(); ++i) {
        ::usleep(1000);
        open = folder.read("open");
    }
    EXPECT_EQ(open.substr(0, 5), "0 1 2");
    EXPECT_LE(open.size(), 8u);  // the listing itself may be seen
}

}  // namespace
}  // namespace kdvfs
