// SPDX-License-Identifier: MIT
// Host-bound work: one clock for all of it, from the row at the highest clock and two lower ones.
#include <kdvfs/detail/tune/spare_time.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/segments.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

PointCost point(std::uint32_t mhz, double seconds, double joules) {
    return {{{mhz}, auto_clock}, {Seconds{seconds}, Joules{joules}}};
}

TEST(SpareTime, IsThatOfTheHost) {
    // 10 ms of host, 5 ms of GPU at 1400 MHz, the longer of the two: sharp.
    const auto truth = [](double mhz) {
        return std::pow(std::pow(10e-3, 8) + std::pow(5e-3 * 1400 / mhz, 8), 1.0 / 8);
    };
    const std::vector<PointCost> points{point(400, truth(400), 2), point(800, truth(800), 1),
                                        point(1400, truth(1400), 2)};
    const SpareTime time{points};
    for (const std::uint32_t mhz : {400U, 500U, 600U, 700U, 900U, 1100U, 1400U})
        EXPECT_NEAR(time.at({mhz}).count(), truth(mhz), 0.01 * truth(mhz)) << mhz;
}

TEST(SpareTime, LeavesOutAnotherModeOfTheProgram) {
    const std::vector<PointCost> points{point(500, 34.7e-3, 2.4), point(960, 27e-3, 2),
                                        point(1410, 34.4e-3, 3.5)};
    EXPECT_EQ(SpareTime{points}.known().size(), 2U);
    const std::vector<PointCost> alone{point(500, 27e-3, 2.4), point(1410, 34.4e-3, 3.5)};
    EXPECT_THROW(SpareTime{alone}, Error);
}

class Measured : public ::testing::TestWithParam<const char*> {};

/// A100 40 GB PCIe, passes that the host holds up (EnergAIzer, arXiv 2604.20105).
TEST_P(Measured, PassesAreSavedMostOfWhatOneClockIsMeasuredToSave) {
    const std::filesystem::path folder = KDVFS_SOURCE_DIR "/../shared/data/energaizer";
    std::ifstream passes{folder / "a100_pcie40_prefill.csv"};
    std::ifstream idle_rows{folder / "idle_and_voltage.csv"};
    if (!passes || !idle_rows) GTEST_SKIP() << "the measurements are not here";
    const std::string name = GetParam();
    std::vector<PointCost> rows;
    std::string line;
    while (std::getline(passes, line)) {
        if (line.compare(0, name.size() + 1, name + ',') != 0) continue;
        std::istringstream fields{line.substr(name.size() + 1)};
        double mhz = 0, seconds = 0, joules = 0;
        char comma = 0;
        fields >> mhz >> comma >> seconds >> comma >> joules;
        rows.push_back(point(static_cast<std::uint32_t>(mhz), seconds, joules));
    }
    ASSERT_EQ(rows.size(), 11U);
    std::string idle_text = "core_mhz,idle_w\n";
    while (std::getline(idle_rows, line))
        if (line.rfind("a100_pcie40,", 0) == 0) {
            const std::string fields = line.substr(12);
            idle_text += fields.substr(0, fields.find(',', fields.find(',') + 1)) + '\n';
        }
    std::istringstream idle{idle_text};

    const std::vector<PointCost> known{rows.front(), rows[rows.size() / 2], rows.back()};
    std::vector<Megahertz> clocks;
    for (const PointCost& row : rows) clocks.push_back(row.clock.core);
    CostTable table{"A100", rows.back().clock, {}};
    table.kernels.push_back(
        predict_clocks({name, {}}, known, clocks, read_idle_power(idle, "idle")));
    const Plans plans = make_plans(table, relaxed_waste(0.02));
    const ClockPoint chosen = plans.single.kernels.front().clock;

    const Cost found = rows.back().cost;
    double best_pct = 0;
    Cost kept{};
    for (const PointCost& row : rows) {
        if (row.clock == chosen) kept = row.cost;
        // Modes of time are compared within themselves.
        const double time_pct = time_percent(row.cost, found);
        if (time_pct <= 2 && time_pct > -5)
            best_pct = std::min(best_pct, energy_percent(row.cost, found));
    }
    std::printf("%s: %u MHz measured %+.2f %% energy at %+.2f %% time, the best clock %+.2f %%\n",
                name.c_str(), chosen.core.count, energy_percent(kept, found),
                time_percent(kept, found), best_pct);
    EXPECT_LE(energy_percent(kept, found), 0.8 * best_pct);
    EXPECT_LE(time_percent(kept, found), 2);
}

INSTANTIATE_TEST_SUITE_P(Passes, Measured,
                         ::testing::Values("optmodel_opt-1p3b_pbf16_b2_s128",
                                           "qwen2model_qwen2-1p5b_pbf16_b1_s128"));

}  // namespace
}  // namespace kdvfs::tune
