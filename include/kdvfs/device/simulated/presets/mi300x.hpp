// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/board.hpp>

#include <chrono>

namespace kdvfs::simulated {

/// AMD Instinct MI300X in SPX mode, a prediction. Calibrated on one published fact: a dense FP16
/// GEMM runs at about 1115 MHz and 654 TFLOP/s because of power. How power splits is an
/// assumption.
inline Board mi300x() {
    using namespace std::chrono_literals;
    Board board;
    board.name = "AMD Instinct MI300X";
    board.architecture = "gfx942";
    // Core range 500 to 2100 MHz through pp_od_clk_voltage. The driver accepts an upper limit for
    // memory; it is left out, since what it does to bandwidth is not published.
    board.clocks.core = {{{500}, {2100}}, true};
    board.core_min = {500};
    board.core_max = {2100};
    board.idle_core = {132};  // assumption: the lowest clock that boards show when idle
    board.reference_core = {2100};
    board.memory_states = {{{1300}, 1, {60}}};  // power: assumption

    // Assumption: flat to 1100 MHz, then linear, 40 % more at the top.
    board.voltage.knots = {{1100, 1}, {2100, 1.4}};
    board.core_overhead = {{35}, 2, 20};  // assumption
    board.static_power = {50};            // assumption
    board.power_cap = {750};              // MI300X data sheet

    // MI300X data sheet and CDNA 3 white paper: 304 CUs; 2048 dense FP16 FLOP per CU and cycle,
    // 256 FP32; 5.3 TB/s; L2 reads of 2048 bytes per cycle on each of 8 dies.
    board.throughput.matrix_flops_per_cycle = 304 * 2048;
    board.throughput.vector_flops_per_cycle = 304 * 256;
    board.throughput.cache_bytes_per_cycle = 8 * 2048;
    board.throughput.memory_bytes_per_second = 5.3e12;
    board.throughput.matrix_picojoules_per_flop = 0.84;  // from the published GEMM
    board.throughput.vector_picojoules_per_flop = 8;     // assumption: as the H100
    board.throughput.cache_picojoules_per_byte = 25;     // assumption
    board.throughput.memory_picojoules_per_byte = 80;    // assumption: as the H100
    board.throughput.launch_overhead = Seconds{3e-6};    // assumption

    // gpu_metrics: about 1 ms between values, steps of 2^-16 J, reads of 0.9 to 2.1 ms on real
    // boards. The noise is an assumption.
    board.energy_counter = {1ms, {0x1p-16}, {1e-3}, 1ms};
    // Nothing is published for AMD: assumptions, except that a determinism call sleeps 0.5-1 ms.
    board.clock_switch = {750us, 10ms, 50us};
    return board;
}

}  // namespace kdvfs::simulated
