// SPDX-License-Identifier: MIT
#include <kdvfs/error.hpp>
#include <kdvfs/measure/self_check.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace kdvfs::measure {
namespace {

TEST(ReferenceSensor, ReadsTheJoulesOfPmCounters) {
    const std::filesystem::path folder = testing::TempDir();
    const ReferenceSensor sensor = pm_counters(2, folder);
    EXPECT_EQ(sensor.name, "pm_counters accel2_energy");
    std::ofstream{folder / "accel2_energy"} << "1234567 J 1700000000000000 us\n";
    EXPECT_EQ(sensor.read().count, 1234567);
    std::ofstream{folder / "accel2_energy"} << "312 W 1700000000000000 us\n";
    EXPECT_THROW(static_cast<void>(sensor.read()), Error) << "watts are no joules";
    std::filesystem::remove(folder / "accel2_energy");
    EXPECT_THROW(static_cast<void>(sensor.read()), Error);
}

TEST(ReferenceSensor, ReadsWhatAProgramPrints) {
    EXPECT_EQ(joules_printed_by("echo 12.5").read().count, 12.5);
    EXPECT_EQ(joules_printed_by("printf '3e2 J\\nmore\\n'").read().count, 300);
    for (const char* command : {"echo watts 3", "echo 12 kJ", "echo -4", "echo nan", "true",
                                "echo 12; exit 3", "/nowhere/at/all 2>/dev/null"}) {
        EXPECT_THROW(static_cast<void>(joules_printed_by(command).read()), Error) << command;
    }
}

}  // namespace
}  // namespace kdvfs::measure
