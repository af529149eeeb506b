// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/board.hpp>

#include <chrono>

namespace kdvfs::simulated {

/// AMD Instinct MI250X as one device, a prediction. A real one shows two devices, of which the
/// second reports no power. How power splits is an assumption, checked against the published idle
/// power of 90 to 99 W (MI250).
inline Board mi250x() {
    using namespace std::chrono_literals;
    Board board;
    board.name = "AMD Instinct MI250X";
    board.architecture = "gfx90a";
    // amdgpu: core settable from 500 to 1700 MHz by range or determinism, memory not settable.
    board.clocks.core = {{{500}, {1700}}, true};
    board.core_min = {500};
    board.core_max = {1700};
    board.idle_core = {800};  // the middle level that boards list in auto
    board.reference_core = {1700};
    board.memory_states = {{{1600}, 1, {24}}};  // clock: data sheet; power: assumption

    // Assumption: flat to 1000 MHz, then linear, 30 % more at the top.
    board.voltage.knots = {{1000, 1}, {1700, 1.3}};
    board.core_overhead = {{20}, 2, 20};  // assumption
    board.static_power = {34};            // assumption
    board.power_cap = {560};              // MI250X data sheet

    // MI250X data sheet and CDNA 2 white paper: 220 CUs; 1024 dense FP16 FLOP per CU and cycle,
    // 128 FP32; 3.28 TB/s; L2 of 32 channels with 128 bytes per cycle on each of 2 dies.
    board.throughput.matrix_flops_per_cycle = 220 * 1024;
    board.throughput.vector_flops_per_cycle = 220 * 128;
    board.throughput.cache_bytes_per_cycle = 2 * 32 * 128;
    board.throughput.memory_bytes_per_second = 3.28e12;
    board.throughput.matrix_picojoules_per_flop = 1.1;  // assumption: older process than MI300X
    board.throughput.vector_picojoules_per_flop = 8;    // assumption: as the H100
    board.throughput.cache_picojoules_per_byte = 30;    // assumption
    board.throughput.memory_picojoules_per_byte = 80;   // assumption: as the H100
    board.throughput.launch_overhead = Seconds{3e-6};   // assumption

    // gpu_metrics: about 1 ms between values, steps of 2^-16 J, reads of 0.9 to 2.1 ms on real
    // boards. The noise is an assumption.
    board.energy_counter = {1ms, {0x1p-16}, {1e-3}, 1ms};
    // Nothing is published for AMD: assumptions, except that a determinism call sleeps 0.5-1 ms.
    board.clock_switch = {750us, 10ms, 50us};
    return board;
}

}  // namespace kdvfs::simulated
