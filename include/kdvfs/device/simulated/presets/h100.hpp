// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/device/simulated/presets/clock_range.hpp>

#include <chrono>

namespace kdvfs::simulated {

/// H100 SXM5 80 GB HBM3, a prediction. Calibrated on four measurements of one board: idle (119 W at
/// 1980 MHz), a bf16 GEMM of 8192^3 (1.62 ms, 701 W, throttled to 1365 MHz), a copy of 2 GiB
/// (1.42 ms, 490 W) and GELU over 2 GiB (1.52 ms, 701 W); four other measured kernels are left to
/// check it. How power splits is an assumption.
inline Board h100() {
    using namespace std::chrono_literals;
    Board board;
    board.name = "NVIDIA H100 80GB HBM3";
    board.architecture = "sm_90";
    // Seen on a board: 1980 MHz core when idle or lightly loaded, memory 2619 MHz. Assumption:
    // lowest core clock 345 MHz, steps of 15; only one memory clock worth training at.
    board.clocks.core.listed = clock_range({345}, {1980}, 15);
    board.clocks.memory.listed = {{2619}};
    board.core_min = {345};
    board.core_max = {1980};
    board.reference_core = {1980};
    board.memory_states = {{{2619}, 1, {30}}};  // assumption

    // Assumption: flat to 1200 MHz, then linear, a third more at the top.
    board.voltage.knots = {{1200, 1}, {1980, 1.3}};
    // Assumed split of the measured 119 W: 40 board, 30 memory, 22 leakage, 27 clock tree.
    board.core_overhead = {{13}, 2, 8};
    board.static_power = {40};
    board.power_cap = {700};  // NVIDIA H100 data sheet, SXM

    // NVIDIA H100 data sheet and Hopper whitepaper: 132 SMs; 4096 dense FP16 FLOP per SM and
    // cycle, 256 FP32; 3.35 TB/s. L2 reads of 5120 bytes per cycle are those of the A100.
    board.throughput.matrix_flops_per_cycle = 132 * 4096;
    board.throughput.vector_flops_per_cycle = 132 * 256;
    board.throughput.cache_bytes_per_cycle = 5120;
    board.throughput.memory_bytes_per_second = 3.35e12;
    board.throughput.matrix_picojoules_per_flop = 0.755;  // from the GEMM
    board.throughput.vector_picojoules_per_flop = 8;      // from GELU at 20 FLOP each
    board.throughput.cache_picojoules_per_byte = 25;      // assumption
    board.throughput.memory_picojoules_per_byte = 80;     // from the copy
    board.throughput.launch_overhead = Seconds{2e-6};     // 1.9 us measured between two kernels

    // Measured: a new value each 100 ms, a read 2.9-3.9 ms. NVML counts millijoules. The noise is
    // an assumption.
    board.energy_counter = {100ms, {1e-3}, {1e-2}, 3ms};
    // Published: Hopper switches in about 6 ms. The call and the pause are assumptions.
    board.clock_switch = {1ms, 6ms, 100us};
    return board;
}

}  // namespace kdvfs::simulated
