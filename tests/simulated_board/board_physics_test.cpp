// SPDX-License-Identifier: MIT
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace {

using namespace kdvfs;
using namespace kdvfs::literals;
using kdvfs::simulated::Board;
using kdvfs::simulated::idle_power;
using kdvfs::simulated::KernelModel;
using kdvfs::simulated::operate;
using kdvfs::simulated::OperatingPoint;
using kdvfs::simulated::VoltageCurve;

Board small_board() {
    Board board;
    board.core_min = 200_MHz;
    board.core_max = 1900_MHz;
    board.reference_core = 1900_MHz;
    board.memory_states = {{400_MHz, 0.8, {0}, 420_MHz},
                           {800_MHz, 0.9, {2}},
                           {5000_MHz, 1, {30}},
                           {9500_MHz, 1, {60}}};
    board.voltage.knots = {{1000, 1}, {1400, 1.1}, {1900, 1.5}};
    board.core_overhead = {{4}, 2.3, 10};
    board.static_power = {20};
    board.power_cap = {1e6};
    return board;
}

Board capped_board() {
    Board board = small_board();
    board.power_cap = {300};
    return board;
}

Board capped_at(Board board, double watts) {
    board.power_cap = {watts};
    return board;
}

KernelModel compute_bound() {
    return {Seconds{10e-3}, Seconds{3e-3}, Seconds{1e-5}, 6, {1.0}, {0.4}};
}
KernelModel memory_bound() {
    return {Seconds{0.3e-3}, Seconds{1e-3}, Seconds{2e-6}, 6, {0.03}, {0.15}};
}

double joules(const OperatingPoint& run) { return (run.power * run.time).count; }

TEST(VoltageCurve, IsFlatThenRisesWithoutJumps) {
    const VoltageCurve curve{{{1000, 1}, {1400, 1.1}, {1900, 1.5}}};
    EXPECT_DOUBLE_EQ(curve.at(200), 1);
    for (const auto& knot : curve.knots) {
        EXPECT_NEAR(curve.at(knot.core_mhz - 1e-6), knot.relative_volts, 1e-8);
        EXPECT_NEAR(curve.at(knot.core_mhz + 1e-6), knot.relative_volts, 1e-8);
    }
    for (double mhz = 900; mhz < 2000; ++mhz) {
        EXPECT_GE(curve.at(mhz + 1), curve.at(mhz)) << mhz;
        EXPECT_LE(curve.at(mhz + 1) - curve.at(mhz), 0.4 / 500 + 1e-12) << mhz;
    }
    EXPECT_NEAR(curve.at(1200), 1.05, 1e-12);
    EXPECT_NEAR(curve.at(2000), 1.58, 1e-12) << "the last slope goes on";
}

TEST(VoltageCurve, IsOneWhereNothingIsKnown) {
    EXPECT_EQ(VoltageCurve{}.at(1500), 1);
    EXPECT_EQ((VoltageCurve{{{1000, 1}}}.at(1500)), 1);
}

TEST(Operate, HigherCoreClockIsNeverSlowerAndDrawsMore) {
    const Board board = small_board();
    for (const KernelModel& kernel : {compute_bound(), memory_bound()}) {
        OperatingPoint before = operate(board, kernel, {200_MHz, auto_clock});
        for (std::uint32_t mhz = 210; mhz <= 1900; mhz += 10) {
            const OperatingPoint run = operate(board, kernel, {{mhz}, auto_clock});
            EXPECT_LE(run.time, before.time) << mhz;
            EXPECT_GT(run.power, before.power) << mhz;
            before = run;
        }
    }
}

TEST(Operate, HigherMemoryClockIsNeverSlower) {
    const Board board = small_board();
    for (const KernelModel& kernel : {compute_bound(), memory_bound()}) {
        Seconds before{1e9};
        for (const auto& state : board.memory_states) {
            const Seconds time = operate(board, kernel, {400_MHz, state.clock}).time;
            EXPECT_LE(time, before);
            before = time;
        }
    }
}

TEST(Operate, CapsAreSoft) {
    const Board board = small_board();
    const KernelModel kernel = compute_bound();
    EXPECT_EQ(operate(board, kernel, {2100_MHz, auto_clock}).core, 1900_MHz);
    EXPECT_EQ(operate(board, kernel, {}).core, 1900_MHz);
    EXPECT_EQ(operate(board, kernel, {100_MHz, auto_clock}).core, 200_MHz);
    EXPECT_EQ(operate(board, kernel, {}).memory, 9500_MHz);
    EXPECT_EQ(operate(board, kernel, {auto_clock, 9000_MHz}).memory, 5000_MHz);
    EXPECT_EQ(operate(board, kernel, {auto_clock, 10000_MHz}).memory, 9500_MHz);
    EXPECT_EQ(operate(board, kernel, {auto_clock, 100_MHz}).memory, 400_MHz);
}

TEST(Operate, LowestMemoryStateHoldsTheCoreDown) {
    const Board board = small_board();
    for (const KernelModel& kernel : {compute_bound(), memory_bound()}) {
        const OperatingPoint limit = operate(board, kernel, {420_MHz, 400_MHz});
        for (const Megahertz core : {630_MHz, 1900_MHz, auto_clock}) {
            const OperatingPoint run = operate(board, kernel, {core, 400_MHz});
            EXPECT_EQ(run.core, 420_MHz);
            EXPECT_EQ(run.memory, 400_MHz);
            EXPECT_EQ(run.time, limit.time);
            EXPECT_EQ(run.power, limit.power);
        }
        EXPECT_EQ(operate(board, kernel, {210_MHz, 400_MHz}).core, 210_MHz);
        EXPECT_EQ(operate(board, kernel, {630_MHz, 800_MHz}).core, 630_MHz);
    }
}

TEST(Operate, PowerCapHoldsAndLowersTheClockNoFurtherThanNeeded) {
    const Board board = capped_board();
    const KernelModel kernel = compute_bound();
    const OperatingPoint run = operate(board, kernel, {});
    EXPECT_TRUE(run.power_limited);
    EXPECT_NEAR(run.power.count, 300, 1e-6);
    EXPECT_LT(run.core, 1900_MHz);

    const Megahertz below{run.core.count - 1};
    const OperatingPoint free = operate(board, kernel, {below, auto_clock});
    EXPECT_FALSE(free.power_limited);
    EXPECT_LT(free.power, run.power);
    EXPECT_NEAR(free.time / run.time, 1, 2e-3) << "no transition where the limit sets in";
    EXPECT_EQ(operate(board, kernel, {2100_MHz, auto_clock}).time, run.time);
}

TEST(Operate, LowerMemoryClockLeavesPowerForTheCore) {
    const Board board = capped_board();
    const OperatingPoint high = operate(board, compute_bound(), {});
    const OperatingPoint low = operate(board, compute_bound(), {auto_clock, 5000_MHz});
    EXPECT_GT(low.core, high.core);
    EXPECT_LT(low.time, high.time);
}

TEST(Operate, ExcessStaysWhereTheFirmwareHasNothingLeftToLower) {
    Board board = small_board();
    board.power_cap = {50};
    const OperatingPoint run = operate(board, compute_bound(), {});
    EXPECT_EQ(run.core, 200_MHz);
    EXPECT_GT(run.power.count, 50);
    EXPECT_TRUE(run.power_limited);
    const OperatingPoint lowest = operate(small_board(), compute_bound(), {200_MHz, auto_clock});
    EXPECT_EQ(run.power, lowest.power);
    EXPECT_EQ(run.time, lowest.time);
}

TEST(Operate, EnergyIsTheBoardsOwnPlusTheWorks) {
    const Board board = small_board();
    for (const KernelModel& kernel : {compute_bound(), memory_bound()}) {
        for (const ClockPoint point :
             {ClockPoint{}, ClockPoint{630_MHz, 5000_MHz}, ClockPoint{1500_MHz, 9500_MHz}}) {
            const OperatingPoint run = operate(board, kernel, point);
            const double volts = board.voltage.at(run.core.count);
            const double expected = (idle_power(board, point) * run.time).count +
                                    kernel.core_energy.count * volts * volts +
                                    kernel.memory_energy.count;
            EXPECT_NEAR(joules(run), expected, 1e-12 * expected);
        }
    }
}

TEST(Operate, MemoryOnAutoCostsVoltageAboveItsOnsetOnly) {
    Board board = small_board();
    board.auto_memory_voltage = {1200, 600, 0.2, 3};
    const KernelModel kernel = compute_bound();
    const auto extra = [&](Megahertz core) {
        return operate(board, kernel, {core, auto_clock}).power.count -
               operate(board, kernel, {core, 9500_MHz}).power.count;
    };
    EXPECT_EQ(extra(1200_MHz), 0);
    EXPECT_GT(extra(1500_MHz), 0);
    EXPECT_GT(extra(1900_MHz), extra(1500_MHz));
}

TEST(Operate, ComputeBoundKernelIsMostEfficientWhereTheVoltageStartsToRise) {
    const Board board = small_board();
    const KernelModel kernel{Seconds{10e-3}, Seconds{0}, Seconds{0}, 6, {2.0}, {0}};
    const double at_threshold = joules(operate(board, kernel, {1000_MHz, auto_clock}));
    EXPECT_LT(at_threshold, joules(operate(board, kernel, {600_MHz, auto_clock})));
    EXPECT_LT(at_threshold, joules(operate(board, kernel, {1700_MHz, auto_clock})));
}

TEST(Operate, WithoutWorkOnlyTheBoardDraws) {
    const Board board = small_board();
    const OperatingPoint nothing = operate(board, KernelModel{}, {});
    EXPECT_EQ(nothing.time.count(), 0);
    EXPECT_EQ(joules(nothing), 0);
    EXPECT_TRUE(std::isfinite(nothing.power.count));

    KernelModel waiting;
    waiting.fixed_time = Seconds{1e-3};
    EXPECT_DOUBLE_EQ(operate(board, waiting, {}).power.count, idle_power(board, {}).count);
}

TEST(IdlePower, FallsWithTheCapsAndWithTheIdleClock) {
    Board board = small_board();
    EXPECT_LT(idle_power(board, {630_MHz, auto_clock}), idle_power(board, {}));
    EXPECT_LT(idle_power(board, {auto_clock, 5000_MHz}), idle_power(board, {}));
    const Watts awake = idle_power(board, {});
    board.idle_core = 300_MHz;
    EXPECT_LT(idle_power(board, {}), awake);
    EXPECT_EQ(idle_power(board, {210_MHz, auto_clock}),
              idle_power(small_board(), {210_MHz, auto_clock}));
}

TEST(IdlePower, FallsWithTheIdleMemoryUnlessTheCapIsLower) {
    Board board = small_board();
    const Watts lower = idle_power(board, {auto_clock, board.memory_states.front().clock});
    board.idle_memory = board.memory_states.front().clock;
    EXPECT_EQ(idle_power(board, {}), lower);
    EXPECT_EQ(idle_power(board, {auto_clock, board.memory_states.back().clock}), lower);
    EXPECT_EQ(operate(board, {}, {}).memory, board.memory_states.back().clock);
}

TEST(Roofline, ScalesWithWorkAndBindsWhereItShould) {
    Board board = small_board();
    board.throughput = {1000, 100, 50, 1e11, 1, 2, 20, 60, Seconds{2e-6}};
    const simulated::KernelWork gemm{1e12, 0, 1e8};
    const simulated::KernelWork copy{0, 0, 1e9};
    const KernelModel big = simulated::roofline(board, gemm, {1, 1, 1});
    EXPECT_NEAR(big.core_time.count(), 1e12 / (1000 * 1.9e9), 1e-12);
    EXPECT_NEAR(big.memory_time.count(), 1e-3, 1e-12);
    EXPECT_NEAR(big.core_energy.count, 1.0 + 2e-3, 1e-12);
    EXPECT_NEAR(big.memory_energy.count, 6e-3, 1e-12);
    const KernelModel moved = simulated::roofline(board, copy, {1, 1, 1});
    EXPECT_NEAR(moved.memory_time.count(), 1e-2, 1e-12);
    EXPECT_GT(moved.core_time.count(), 0) << "traffic passes the cache at the core clock";
    EXPECT_LT(moved.core_time, moved.memory_time * 1.1);
}

TEST(Sharing, KernelsThatNeedOtherUnitsOverlap) {
    const Board board = small_board();
    const auto seconds = [&](std::vector<KernelModel> kernels) {
        std::vector<double> launches(kernels.size());
        const auto all = simulated::sharing_the_board(board, kernels, launches);
        return operate(board, all, {}).time / operate(board, kernels[0], {}).time;
    };
    EXPECT_NEAR(seconds({compute_bound(), compute_bound(), compute_bound()}), 3, 1e-9);
    EXPECT_LT(seconds({compute_bound(), memory_bound()}), 1.6);
    EXPECT_GT(seconds({compute_bound(), memory_bound()}), 1);
}

TEST(Sharing, TheBoardKeepsItsPowerLimit) {
    const Board board = capped_board();
    const std::vector<KernelModel> kernels{compute_bound(), memory_bound()};
    std::vector<double> launches(2);
    const KernelModel all = simulated::sharing_the_board(board, kernels, launches);
    EXPECT_LE(operate(board, all, {}).power.count, 300.001);
    EXPECT_DOUBLE_EQ(launches[0], 1);
    EXPECT_NEAR(all.core_energy.count, 1.0 + 0.03 * launches[1], 1e-12);
}

TEST(LimitDroop, FollowsTheLoad) {
    Board board = small_board();
    board.power_cap = {400};
    board.limit_droop = 0.28;
    const OperatingPoint run = operate(board, compute_bound(), {1500_MHz, auto_clock});
    const double load = run.power.count / 400;
    EXPECT_NEAR(run.core.count, 1500 * (1 - 0.28 * load), 1);
    EXPECT_LT(run.core, 1480_MHz);
    EXPECT_EQ(operate(board, compute_bound(), {}).core,
              operate(capped_at(small_board(), 400), compute_bound(), {}).core)
        << "no limit was requested";
}

TEST(LimitDroop, HoldsBelowTheCeilingOfAnAveragingLimiterToo) {
    Board board = small_board();
    board.power_cap = {400};
    board.limit_droop = 0.28;
    const ClockPoint cap{1500_MHz, auto_clock};
    const OperatingPoint at_once = operate(board, compute_bound(), cap);
    const OperatingPoint free = simulated::operate_below(board, compute_bound(), cap, 1e4);
    EXPECT_EQ(free.core, at_once.core);
    EXPECT_EQ(free.power, at_once.power);
    EXPECT_FALSE(free.power_limited);
    const OperatingPoint held = simulated::operate_below(board, compute_bound(), cap, 1000);
    EXPECT_EQ(held.core, 1000_MHz) << "the lower of the two";
    EXPECT_TRUE(held.power_limited);
}

TEST(PowerLimit, LowersMemoryWhereTheBoardDoes) {
    Board board = capped_at(small_board(), 130);
    const OperatingPoint core_alone = operate(board, compute_bound(), {});
    board.limited_memory = 5000_MHz;
    const OperatingPoint both = operate(board, compute_bound(), {});
    EXPECT_TRUE(core_alone.power_limited && both.power_limited);
    EXPECT_EQ(both.memory, 5000_MHz);
    EXPECT_GT(both.core, core_alone.core) << "30 W of memory are free for the core";
    board.power_cap = {1000};
    EXPECT_EQ(operate(board, compute_bound(), {}).memory, 9500_MHz);
}

TEST(Temperature, ScalesLeakageAlone) {
    Board board = small_board();
    board.thermal = {0.02, 60, 30, 0.05};
    const double volts = 1.5;
    const double leakage = 4 * std::pow(volts, 2.3);
    const double warm = idle_power(board, {}).count;
    const double hot = idle_power(simulated::at_temperature(board, 80), {}).count;
    EXPECT_NEAR(hot - warm, leakage * (std::exp(0.4) - 1), 1e-9);
    EXPECT_DOUBLE_EQ(idle_power(simulated::at_temperature(board, 60), {}).count, warm);
}

TEST(Toggling, ScalesCoreWork) {
    const Board board = simulated::mi300x();
    const simulated::KernelWork random{1e12, 0, 1e8};
    simulated::KernelWork zeros = random;
    zeros.toggling = 0.57;
    const KernelModel less = roofline(board, zeros), all = roofline(board, random);
    EXPECT_DOUBLE_EQ(less.core_energy.count, 0.57 * all.core_energy.count);
    EXPECT_EQ(less.memory_energy.count, all.memory_energy.count);
    EXPECT_GT(operate(board, less, {}).core, operate(board, all, {}).core);
}

}  // namespace
