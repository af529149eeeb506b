// SPDX-License-Identifier: MIT
#include <kdvfs/detail/tune/ledger.hpp>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

class LedgerFile : public ::testing::Test {
protected:
    void TearDown() override { std::filesystem::remove(file); }

    static LedgerSegment segment(const std::string& id, double saved, double half = 3) {
        return {.id = id,
                .job = "job 7",
                .user = "ada",
                .board = "MI210 0000:03:00.0",
                .began = 1800000000,
                .passed = Seconds{100},
                .saved = {saved},
                .saved_low = {saved - half},
                .saved_high = {saved + half},
                .lost = Seconds{0.5}};
    }
    [[nodiscard]] std::string text() const {
        std::ifstream input{file};
        return {std::istreambuf_iterator<char>{input}, {}};
    }
    [[nodiscard]] Ledger read() const { return parse_ledger(text()); }

    std::filesystem::path file =
        std::filesystem::temp_directory_path() / ("kdvfs_ledger_" + std::to_string(::getpid()));
};

TEST_F(LedgerFile, CountsTheLastLineOfEachSegmentAndAddsIntervalsAsIndependent) {
    append_to_ledger(file, segment("a", 10));
    append_to_ledger(file, segment("b", 50, 4));
    append_to_ledger(file, segment("a", 20));
    const Ledger ledger = read();
    ASSERT_EQ(ledger.segments.size(), 2U);
    const LedgerTotal total = ledger.total();
    EXPECT_DOUBLE_EQ(total.saved.count, 70);
    EXPECT_DOUBLE_EQ(total.low().count, 65);  // 3, 4, 5
    EXPECT_DOUBLE_EQ(total.high().count, 75);
    EXPECT_DOUBLE_EQ(total.lost.count(), 1);
    EXPECT_EQ(total.compared.count, 0);
    LedgerSegment compared = segment("b", 60);
    compared.by_one_clock = Joules{45};
    append_to_ledger(file, compared);
    const LedgerTotal with = read().total();
    EXPECT_DOUBLE_EQ(with.compared.count, 60);
    EXPECT_DOUBLE_EQ(with.by_one_clock.count, 45);
    EXPECT_EQ(ledger.totals_by([](const auto& each) { return each.job; }).at("job 7").segments, 2U);
}

TEST_F(LedgerFile, ALineThatWasCutShortCostsThatLineAlone) {
    append_to_ledger(file, segment("a", 10));
    const std::string whole = text();
    for (std::size_t kept = 0; kept <= whole.size(); ++kept) {
        std::ofstream{file, std::ios::trunc} << whole << whole.substr(0, kept);
        append_to_ledger(file, segment("b", 20));
        const Ledger ledger = read();
        ASSERT_EQ(ledger.segments.size(), 2U) << kept;
        EXPECT_DOUBLE_EQ(ledger.total().saved.count, 30) << kept;
        // The line is whole with or without its line break.
        const bool cut = kept > 0 && kept + 1 < whole.size();
        EXPECT_EQ(ledger.unreadable, cut ? 1U : 0U) << kept;
    }
}

TEST_F(LedgerFile, LinesOfOtherVersionsAndGarbageAreCounted) {
    append_to_ledger(file, segment("a", 10));
    std::ofstream{file, std::ios::app} << "{\"kdvfs_ledger\":2,\"id\":\"x\"}\n[1]\n\n{}\nnull\n";
    EXPECT_EQ(read().segments.size(), 1U);
    EXPECT_EQ(read().unreadable, 4U);
}

TEST_F(LedgerFile, LinesOfNegativeTimesAndOfMoreThanAnyMachineDoesAreCountedAsUnreadable) {
    LedgerSegment backwards = segment("a", 10);
    backwards.passed = Seconds{-10};
    LedgerSegment lost = segment("b", 10);
    lost.lost = Seconds{-1e300};
    for (const LedgerSegment& bad : {backwards, lost, segment("c", 1e308), segment("d", -1e308)})
        append_to_ledger(file, bad);
    append_to_ledger(file, segment("e", 10));
    EXPECT_EQ(read().unreadable, 4U);
    EXPECT_DOUBLE_EQ(read().total().saved.count, 10);
}

TEST_F(LedgerFile, IsWholeAfterWritersAreKilledAtRandomMoments) {
    std::mt19937_64 random{3};
    const int kills = std::getenv("KDVFS_SOAK") != nullptr ? 1000 : 15;
    for (int kill = 0; kill < kills; ++kill) {
        std::vector<pid_t> writers;
        for (int w = 0; w < 2; ++w) {
            const pid_t writer = ::fork();
            if (writer == 0) {
                for (int i = 1;; ++i)
                    append_to_ledger(file,
                                     segment(std::to_string(kill) + '.' + std::to_string(w), i, 1));
            }
            writers.push_back(writer);
        }
        ::usleep(static_cast<useconds_t>(2000 + random() % 4000));
        for (const pid_t writer : writers) {
            ::kill(writer, SIGKILL);
            ::waitpid(writer, nullptr, 0);
        }
        append_to_ledger(file, segment("last", kill));
        // Each kill can cut one line short, and no more.
        ASSERT_LE(read().unreadable, 2U * static_cast<unsigned>(kill + 1)) << kill;
        const Ledger ledger = read();
        ASSERT_TRUE(std::any_of(
            ledger.segments.begin(), ledger.segments.end(),
            [&](const auto& each) { return each.id == "last" && each.saved.count == kill; }))
            << kill;
    }
    EXPECT_GT(read().segments.size(), static_cast<std::size_t>(kills) / 2);
}

TEST_F(LedgerFile, AFileThatCannotBeWrittenIsAnError) {
    EXPECT_THROW(append_to_ledger("/dev/full", segment("a", 1)), Error);
    EXPECT_THROW(append_to_ledger("/nowhere/ledger", segment("a", 1)), Error);
}

}  // namespace
}  // namespace kdvfs::tune
