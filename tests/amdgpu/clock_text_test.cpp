// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/amd/system_files.hpp>

#include <gtest/gtest.h>

namespace kdvfs::device::amd {
namespace {

using Clocks = std::vector<Megahertz>;

TEST(ClockList, ReadsNumberedLines) {
    const auto list = parse_clock_list("0: 500Mhz \n1: 800Mhz *\n2: 1700Mhz \n");
    ASSERT_TRUE(list);
    EXPECT_EQ(list->clocks, (Clocks{{500}, {800}, {1700}}));
    EXPECT_TRUE(list->one_current);
    EXPECT_TRUE(list->plain);
}

TEST(ClockList, SkipsTheSleepingLineOfMi300) {
    const auto list = parse_clock_list("S: 19Mhz *\n0: 132Mhz \n1: 2100Mhz \n");
    ASSERT_TRUE(list);
    EXPECT_EQ(list->clocks, (Clocks{{132}, {2100}}));
    EXPECT_FALSE(list->plain);
    EXPECT_FALSE(list->one_current);
}

TEST(ClockList, TwoStarsAreNotPlain) {
    EXPECT_FALSE(parse_clock_list("0: 500Mhz *\n1: 1700Mhz *\n")->plain);
}

TEST(ClockList, RefusesWhatItDoesNotKnow) {
    for (const char* text :
         {"", "\n", "unavailable\n", "0: 500\n", "1: 500Mhz\n", "0 500Mhz\n", "0: Mhz\n",
          "0: 500Mhz x\n", "0: 99999999999Mhz\n", "0: -5Mhz\n", "0: 500Mhz\n2: 800Mhz\n"}) {
        EXPECT_FALSE(parse_clock_list(text)) << text;
    }
}

TEST(OverdriveTable, ReadsTheWordsOfMi200) {
    const auto table = parse_overdrive_table(
        "GFXCLK:\n0: 500Mhz *\n1: 1700Mhz \nMCLK:\n0: 400Mhz \n1: 1600Mhz *\n");
    ASSERT_TRUE(table);
    EXPECT_EQ(table->core.clocks, (Clocks{{500}, {1700}}));
    EXPECT_EQ(table->memory.clocks, (Clocks{{400}, {1600}}));
    EXPECT_FALSE(table->memory_is_settable);
    EXPECT_FALSE(table->core_min);
}

TEST(OverdriveTable, ReadsTheWordsOfMi300AndOfConsumerBoards) {
    const auto table = parse_overdrive_table(
        "OD_SCLK:\n0: 800Mhz\n1: 1300Mhz\nOD_MCLK:\n0: 900Mhz\n1: 1300Mhz\n"
        "OD_VDDGFX_OFFSET:\n0mV\nOD_RANGE:\nSCLK:     132Mhz       2100Mhz\n");
    ASSERT_TRUE(table);
    EXPECT_EQ(table->core.clocks, (Clocks{{800}, {1300}}));
    EXPECT_TRUE(table->memory_is_settable);
    EXPECT_EQ(table->core_min, Megahertz{132});
}

TEST(OverdriveTable, ReadsTheWordsOfVega20) {  // vega20_hwmgr.c, vega20_print_clock_levels
    const auto table = parse_overdrive_table(
        "OD_SCLK:\n0:        808Mhz\n1:       1801Mhz\nOD_MCLK:\n1:       1000Mhz\n"
        "OD_VDDC_CURVE:\n0:        808Mhz        723mV\n1:       1304Mhz        794mV\n"
        "OD_RANGE:\nSCLK:     808Mhz       2200Mhz\nMCLK:     800Mhz       1200Mhz\n"
        "VDDC_CURVE_SCLK[0]:     808Mhz       2200Mhz\n");
    ASSERT_TRUE(table);
    EXPECT_EQ(table->core.clocks, (Clocks{{808}, {1801}}));
    EXPECT_EQ(table->memory.clocks, (Clocks{{1000}}));
    EXPECT_EQ(table->core_min, Megahertz{808});
    EXPECT_FALSE(parse_overdrive_table("OD_SCLK:\n1: 1801Mhz\n")) << "of the core both are shown";
    EXPECT_FALSE(parse_overdrive_table("OD_SCLK:\n0: 8Mhz\nOD_MCLK:\n0: 9Mhz\n2: 9Mhz\n"));
}

TEST(OverdriveTable, RefusesATextWithoutCoreClocks) {
    for (const char* text :
         {"", "unavailable\n", "OD_SCLK:\n", "OD_MCLK:\n0: 900Mhz\n", "GFXCLK:\nunavailable\n"}) {
        EXPECT_FALSE(parse_overdrive_table(text)) << text;
    }
}

}  // namespace
}  // namespace kdvfs::device::amd
