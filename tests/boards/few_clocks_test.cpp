// SPDX-License-Identifier: MIT
#include <bench/boards/few_clock_plans.hpp>

#include <gtest/gtest.h>

#include <filesystem>

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
