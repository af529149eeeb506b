// SPDX-License-Identifier: MIT
#include <bench/boards/few_clock_plans.hpp>
#include <bench/boards/saving_ranges.hpp>

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace savings;

/// Plans from clocks as found, and from three points more.
void expect_as_wanted(const Sweep& sweep, double part_pct) {
    constexpr int programs = 20;
    for (const double bound : {1.0, 5.0}) {
        const FewClockScore found = judge_few_clocks(sweep, 0, bound, programs);
        EXPECT_GE(found.kept_pct(), 90) << sweep.board;
        EXPECT_GE(found.saved_pct, 0) << sweep.board;
        const FewClockScore few = judge_few_clocks(sweep, 3, bound, programs);
        EXPECT_GE(few.kept_pct(), 90) << sweep.board;
        EXPECT_GE(few.promised_pct(), 90) << sweep.board;
        EXPECT_GE(few.part_pct(), part_pct) << sweep.board << ", " << bound << " %";
    }
}

/// What a group of boards saves is in no range that it is judged by.
TEST(WorthRanges, TheJudgedGroupIsNotRead) {
    const Sweep sweep = simulated_sweep("mi300x", "judged", MemoryClocks::as_found);
    const Sweep other = simulated_sweep("h100", "other", MemoryClocks::as_found);
    std::mt19937_64 random{1};
    std::vector<LowPointProgram> low;
    for (int i = 0; i < 20; ++i)
        low.emplace_back(i % 2 ? sweep : other, Mix{i % 2 ? sweep : other, random});
    const auto ranges = [&](const std::string& without) {
        std::vector<Program> programs;
        for (const LowPointProgram& one : low) programs.push_back(one.program);
        const auto errors = GuessErrors{low, without, 1}.range(0.1);
        return std::array{Ranges{programs, without, 0.9}.high(0.9, 0, 1), errors.first,
                          errors.second};
    };
    const auto judged = ranges("judged"), of_other = ranges("other");
    for (LowPointProgram& one : low)
        if (one.program.group == "judged")
            for (auto& way : one.program.saved_pct) way = {90, 90, 90};
    EXPECT_EQ(ranges("judged"), judged);
    EXPECT_NE(ranges("other"), of_other);
}

TEST(FewClocks, PlansOnSimulatedBoards) {
    expect_as_wanted(simulated_sweep("mi325x", "simulated", MemoryClocks::all), 85);
    expect_as_wanted(simulated_sweep("a100", "simulated", MemoryClocks::all), 85);
}

TEST(FewClocks, PlansOnSweptBoards) {
    const std::filesystem::path data{KDVFS_SHARED_DATA};
    if (!std::filesystem::exists(data / "titanx_real.csv"))
        GTEST_SKIP() << "needs the sweeps at " KDVFS_SHARED_DATA;
    const auto core = MemoryClocks::as_found;
    expect_as_wanted(read_grid(data / "titanx_real.csv", "Titan X", 250, core), 60);
    expect_as_wanted(read_sweep(data / "energaizer/a100_pcie40_prefill.csv", "A100", 250), 60);
    expect_as_wanted(read_sweep(data / "a800_qwen3_layers.csv", "A800", 400), 60);
}

}  // namespace
