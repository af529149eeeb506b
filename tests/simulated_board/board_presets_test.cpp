// SPDX-License-Identifier: MIT
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace {

using namespace kdvfs;
using namespace kdvfs::simulated;

std::vector<Board> all_boards() {
    return {rtx_3080_ti(), mi210(), mi250x(),      mi300x(),    mi325x(),
            mi355x(),      h100(),  a100_pcie40(), a100_sxm80()};
}

KernelWork square_gemm(double n) { return {2 * n * n * n, 0, 3 * 2 * n * n}; }

/// Prints a prediction beside what was measured or published.
OperatingPoint compare(const Board& board, const char* what, const KernelWork& work,
                       Utilisation utilisation, double ms, double watts, double mhz) {
    const OperatingPoint run = operate(board, roofline(board, work, utilisation), {});
    std::printf(
        "%-24s %-16s simulated %8.4f ms %4.0f W %4u MHz, measured %8.4f ms %4.0f W %4.0f"
        " MHz\n",
        board.name.c_str(), what, 1e3 * run.time.count(), run.power.count, run.core.count, ms,
        watts, mhz);
    return run;
}

double relative_error(double got, double wanted) { return std::abs(got / wanted - 1); }

TEST(Presets, AreConsistent) {
    for (const Board& board : all_boards()) {
        SCOPED_TRACE(board.name);
        EXPECT_FALSE(board.architecture.empty());
        EXPECT_LT(board.core_min, board.core_max);
        EXPECT_EQ(board.clocks.core.listed.front(), board.core_min);
        EXPECT_GE(board.clocks.core.listed.back(), board.core_max);
        EXPECT_TRUE(
            std::is_sorted(board.clocks.core.listed.begin(), board.clocks.core.listed.end()));
        ASSERT_FALSE(board.memory_states.empty());
        for (const Megahertz clock : board.clocks.memory.listed) {
            EXPECT_EQ(operate(board, {}, {auto_clock, clock}).memory, clock);
        }
        for (std::size_t i = 1; i < board.voltage.knots.size(); ++i) {
            EXPECT_GT(board.voltage.knots[i].core_mhz, board.voltage.knots[i - 1].core_mhz);
            EXPECT_GE(board.voltage.knots[i].relative_volts,
                      board.voltage.knots[i - 1].relative_volts);
        }
        EXPECT_LT(idle_power(board, {}), board.power_cap);
        EXPECT_GT(board.energy_counter.period.count(), 0);
        EXPECT_GT(board.clock_switch.switching_latency, board.clock_switch.transition);
    }
}

/// The table of published peaks: FP16 matrix TFLOP/s, TB/s, W.
TEST(Presets, HaveThePublishedPeaks) {
    const struct {
        Board board;
        double boost_mhz;  // at which the vendor states the peak
        double tflops, terabytes, watts;
    } published[] = {{mi210(), 1700, 181, 1.64, 300},        {mi250x(), 1700, 383, 3.28, 560},
                     {mi300x(), 2100, 1307, 5.3, 750},       {mi325x(), 2100, 1307, 6, 1000},
                     {mi355x(), 2400, 2517, 8, 1400},        {h100(), 1830, 989, 3.35, 700},
                     {a100_pcie40(), 1410, 312, 1.555, 250}, {a100_sxm80(), 1410, 312, 2.039, 400}};
    for (const auto& [board, mhz, tflops, terabytes, watts] : published) {
        SCOPED_TRACE(board.name);
        const double peak = board.throughput.matrix_flops_per_cycle * mhz * 1e6 / 1e12;
        EXPECT_NEAR(peak / tflops, 1, 0.005);
        EXPECT_NEAR(board.throughput.memory_bytes_per_second / 1e12, terabytes, 0.01);
        EXPECT_EQ(board.power_cap.count, watts);
    }
}

TEST(Mi300x, IsHeldByPowerAsPublished) {
    const KernelWork gemm = square_gemm(8192);
    const double ms = 1e3 * gemm.matrix_flops / 654e12;
    const OperatingPoint run =
        compare(mi300x(), "GEMM 8192 FP16", gemm, {0.942, 0.8, 0.9}, ms, 750, 1115);
    EXPECT_TRUE(run.power_limited);
    EXPECT_LT(relative_error(run.core.count, 1115), 0.02);
    EXPECT_LT(relative_error(1e3 * run.time.count(), ms), 0.02);
}

/// Not fitted: volts are from GEMMs of few toggling bits, the energy of work is the MI300X's.
TEST(Mi325x, IsHeldByPowerAsPublished) {
    const KernelWork gemm = square_gemm(8192);
    const double ms = 1e3 * gemm.matrix_flops / 794e12;
    const OperatingPoint run =
        compare(mi325x(), "GEMM 8192 FP16", gemm, {0.942, 0.8, 0.9}, ms, 1000, 1354);
    EXPECT_TRUE(run.power_limited);
    EXPECT_LT(relative_error(run.core.count, 1354), 0.02);
    EXPECT_LT(relative_error(1e3 * run.time.count(), ms), 0.02);
}

/// Published idle watts, asleep and with the clocks up: bench/boards/judge_presets has each point.
TEST(AmdBoards, IdleAsPublished) {
    const struct {
        Board board;
        double asleep_least, asleep_most, awake_least, awake_most;
    } published[] = {{mi210(), 42, 44, 36, 57},
                     {mi250x(), 82, 102, 128, 132},
                     {mi300x(), 120, 152, 186, 194},
                     {mi325x(), 121, 141, 0, 227},
                     {mi355x(), 225, 238, 0, 1400}};
    for (auto [board, asleep_least, asleep_most, awake_least, awake_most] : published) {
        SCOPED_TRACE(board.name);
        const double asleep = idle_power(board, {}).count;
        board.idle_core = auto_clock;
        const double awake = idle_power(board, {}).count;
        EXPECT_GE(asleep, asleep_least);
        EXPECT_LE(asleep, asleep_most);
        EXPECT_GE(awake, awake_least);
        EXPECT_LE(awake, awake_most);
    }
}

/// One CU of 304 busy, memory at its highest clock: 217 to 222 W.
TEST(Mi300x, DrawsMoreWithItsMemoryAwake) {
    const double watts = operate(mi300x(), {}, {}).power.count;
    EXPECT_GE(watts, 217);
    EXPECT_LE(watts, 222);
}

/// Measured idle watts (EnergAIzer, arXiv 2604.20105), some of the clocks that were fitted.
TEST(A100, IdlesAsMeasuredByClock) {
    const struct {
        Board board;
        std::uint32_t mhz;
        double watts;
    } measured[] = {{a100_pcie40(), 210, 44.47},  {a100_pcie40(), 600, 45.47},
                    {a100_pcie40(), 1005, 48.24}, {a100_pcie40(), 1200, 54.28},
                    {a100_pcie40(), 1410, 67.34}, {a100_sxm80(), 210, 60.28},
                    {a100_sxm80(), 600, 61.15},   {a100_sxm80(), 1005, 64.2},
                    {a100_sxm80(), 1200, 68.37},  {a100_sxm80(), 1410, 82.29}};
    for (const auto& [board, mhz, watts] : measured)
        EXPECT_NEAR(idle_power(board, {{mhz}, auto_clock}).count, watts, 1.2)
            << board.name << " at " << mhz;
}

/// What the constants were calibrated on: idle, the large GEMM, the copy, GELU.
TEST(H100, MeetsItsCalibration) {
    const Board board = h100();
    EXPECT_NEAR(idle_power(board, {}).count, 119, 3);
    const OperatingPoint gemm =
        compare(board, "GEMM 8192", square_gemm(8192), {0.92, 0.8, 0.9}, 1.6244, 701, 1365);
    EXPECT_TRUE(gemm.power_limited);
    EXPECT_LT(relative_error(gemm.core.count, 1365), 0.01);
    EXPECT_LT(relative_error(1e3 * gemm.time.count(), 1.6244), 0.01);
    const double elements = 0x1p30;
    const OperatingPoint copy =
        compare(board, "copy 2 GiB", {0, 0, 4 * elements}, {}, 1.4240, 490, 1980);
    EXPECT_LT(relative_error(1e3 * copy.time.count(), 1.4240), 0.05);
    EXPECT_LT(relative_error(copy.power.count, 490), 0.05);
    const OperatingPoint gelu =
        compare(board, "GELU 2 GiB", {0, 20 * elements, 4 * elements}, {}, 1.5224, 701, 1950);
    EXPECT_LT(relative_error(1e3 * gelu.time.count(), 1.5224), 0.10);
    EXPECT_LT(relative_error(gelu.power.count, 701), 0.05);
}

/// Kernels that nothing was calibrated on, with the utilisation of their kind: within a quarter of
/// the measured power and a fifth of the clock. Times are printed, not checked: they depend on how
/// well each kernel was written.
TEST(H100, PredictsOtherKernels) {
    const Board board = h100();
    const double norm_values = 16384.0 * 8192;
    const double attention_pairs = 8 * 16 * 4096.0 * 4096 / 2;
    const struct {
        const char* what;
        KernelWork work;
        Utilisation utilisation;
        double ms, watts, mhz;
    } measured[] = {
        {"GEMM 2048", square_gemm(2048), {0.5, 0.8, 0.9}, 0.0332, 635, 1905},
        {"GEMV 8192", {0, 2 * 8192.0 * 8192, 2 * 8192.0 * 8192}, {}, 0.0500, 478, 1980},
        {"LayerNorm", {0, 10 * norm_values, 4 * norm_values}, {}, 0.2877, 646, 1980},
        {"causal attention",
         {4 * 128 * attention_pairs, 5 * attention_pairs, 4 * 8 * 16 * 4096.0 * 128 * 2},
         {0.6, 0.8, 0.9},
         1.0602,
         685,
         1680},
    };
    for (const auto& m : measured) {
        const OperatingPoint run =
            compare(board, m.what, m.work, m.utilisation, m.ms, m.watts, m.mhz);
        EXPECT_LT(relative_error(run.power.count, m.watts), 0.25) << m.what;
        EXPECT_LT(relative_error(run.core.count, m.mhz), 0.20) << m.what;
    }
}

}  // namespace
