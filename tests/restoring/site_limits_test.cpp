// SPDX-License-Identifier: MIT
#include "temporary_folder.hpp"

#include <kdvfs/detail/gpu/merged_options.hpp>
#include <kdvfs/detail/restore/site_limits.hpp>

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace kdvfs::detail {
namespace {

using namespace kdvfs::literals;

const std::string gpu = "0000:c1:00.0";

SiteLimits parsed(const std::string& text) { return parse_site_limits(text, "limits", gpu); }

TEST(SiteLimits, AreTheStricterOfTheLinesForADevice) {
    const SiteLimits limits = parsed(
        "# of this cluster\n\nall core 500 1700  # the maker's\n0000:c1:00.0 core 800 -\n"
        "all core - 1600\n0000:c4:00.0 core 1000 1000\nall memory - 1200\n");
    EXPECT_EQ(limits.floor, (ClockPoint{800_MHz, auto_clock}));
    EXPECT_EQ(limits.ceiling, (ClockPoint{1600_MHz, 1200_MHz}));
    EXPECT_EQ(limits.words(), "core from 800 MHz up to 1600 MHz, memory up to 1200 MHz (limits)");
    EXPECT_EQ(parsed("0000:c4:00.0 core 1000 1000\n").path, "") << "of another device";
}

TEST(SiteLimits, HoldHoweverTheAddressIsSpelled) {
    for (const char* spelled : {"0000:C1:00.0", "00000000:C1:00.0", "00000000:c1:00.0"}) {
        const std::string line = std::string{spelled} + " core - 1200\n";
        EXPECT_EQ(parsed(line).ceiling.core, 1200_MHz) << spelled;
        EXPECT_EQ(parse_site_limits(line, "limits", spelled).ceiling.core, 1200_MHz) << spelled;
    }
    for (const char* other : {"0001:c1:00.0", "0000:c1:00.1", "0000:c1:01.0"})
        EXPECT_EQ(parsed(std::string{other} + " core - 1200\n").path, "") << other;
    EXPECT_EQ(parse_site_limits("all core - 1200\n", "limits", "a name").ceiling.core, 1200_MHz);
    EXPECT_EQ(parse_site_limits("0000:c1:00.0 core - 1200\n", "limits", "a name").path, "");
}

TEST(SiteLimits, ALineThatIsNoneIsAnErrorThatNamesIt) {
    for (const char* line :
         {"all", "all core", "all core 500", "all core 500 x", "all core -5 900", "all core 0 900",
          "all sclk 500 900", "all core 500 900 1", "all core 500 999999", "c1:00.0 core - 900",
          "0000:c1:00 core - 900", "0000:c1:00.00 core - 900", "ALL core - 900", "0 core - 900",
          "GPU-0ab1 core - 900"}) {
        try {
            static_cast<void>(parsed("\n" + std::string{line} + "\n"));
            FAIL() << line;
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::invalid_input);
            EXPECT_NE(std::string{error.what()}.find("limits:2"), std::string::npos);
        }
    }
}

TEST(SiteLimits, BindTheProgramsOwnAndContradictionsAreRefused) {
    const SiteLimits site = parsed("all core 800 1600\n");
    const ControllerOptions loose = within({.never_below = {600_MHz}, .never_above = {}}, site);
    EXPECT_EQ(loose.never_below.core, 800_MHz);
    EXPECT_EQ(loose.never_above.core, 1600_MHz);
    const ControllerOptions strict =
        within({.never_below = {900_MHz}, .never_above = {1000_MHz}}, site);
    EXPECT_EQ(strict.never_below.core, 900_MHz);
    EXPECT_EQ(strict.never_above.core, 1000_MHz);
    EXPECT_NO_THROW(check_limits(strict, gpu));
    EXPECT_THROW(check_limits(within({.never_below = {}, .never_above = {700_MHz}}, site), gpu),
                 Error);
}

TEST(SiteLimits, AreRootsFileAlone) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    const TemporaryFolder folder;
    EXPECT_EQ(read_site_limits(gpu, folder.at("")).path, "") << "no file, no limits";
    folder.write("limits", "all core - 1600\n");
    ::chmod(folder.at("limits").c_str(), 0644);
    EXPECT_EQ(read_site_limits(gpu, folder.at("")).ceiling.core, 1600_MHz);
    ::chmod(folder.at("limits").c_str(), 0664);
    EXPECT_THROW(static_cast<void>(read_site_limits(gpu, folder.at(""))), Error);
    ::chmod(folder.at("limits").c_str(), 0644);
    ::chmod(folder.path().c_str(), 01777);
    EXPECT_THROW(static_cast<void>(read_site_limits(gpu, folder.path())), Error)
        << "where anybody may put a file there";
    ::chmod(folder.path().c_str(), 0755);
    EXPECT_EQ(::chown(folder.at("limits").c_str(), 4242, 0), 0);
    EXPECT_THROW(static_cast<void>(read_site_limits(gpu, folder.at(""))), Error);
}

}  // namespace
}  // namespace kdvfs::detail
