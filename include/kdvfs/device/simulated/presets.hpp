// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/device/simulated/rtx_3080_ti_fit.hpp>
#include <kdvfs/units.hpp>

#include <chrono>
#include <cstdint>
#include <vector>

namespace kdvfs::simulated {

/// The clocks from `first` to `last` in equal steps; `last` is in even if a step misses it.
inline std::vector<Megahertz> clock_range(Megahertz first, Megahertz last, std::uint32_t step) {
    std::vector<Megahertz> clocks;
    for (std::uint32_t mhz = first.count; mhz < last.count; mhz += step) clocks.push_back({mhz});
    clocks.push_back(last);
    return clocks;
}

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

/// AMD Instinct MI210, a prediction: one die of the MI250X's two, with its own limits.
inline Board mi210() {
    Board board = mi250x();
    board.name = "AMD Instinct MI210";
    // Assumption: one die draws half.
    board.memory_states = {{{1600}, 1, {12}}};
    board.core_overhead = {{10}, 2, 10};
    board.static_power = {20};
    board.power_cap = {300};  // MI210 data sheet

    // MI210 data sheet: 104 CUs, 1.64 TB/s; per CU and channel as the MI250X.
    board.throughput.matrix_flops_per_cycle = 104 * 1024;
    board.throughput.vector_flops_per_cycle = 104 * 128;
    board.throughput.cache_bytes_per_cycle = 32 * 128;
    board.throughput.memory_bytes_per_second = 1.64e12;
    return board;
}

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

/// GeForce RTX 3080 Ti, fitted to the kernels published in arXiv 2601.08539 by bench/fit_gpt3_xl.
/// The table leaves leakage, the voltages between 1260 and 1680 MHz and memory power at 810 MHz
/// mostly to the priors: the fit prints how much.
inline Board rtx_3080_ti() {
    namespace fit = rtx_3080_ti_fit;
    using namespace std::chrono_literals;
    Board board;
    board.name = "NVIDIA GeForce RTX 3080 Ti";
    board.architecture = "sm_86";
    // Memory clocks of arXiv 2601.08539; core clocks 210 to 2100 MHz in NVIDIA's steps of 15.
    board.clocks.core.listed = clock_range({210}, {2100}, 15);
    board.clocks.memory.listed = {{405}, {810}, {5001}, {9251}, {9501}};
    board.core_min = {210};
    board.core_max = {static_cast<std::uint32_t>(fit::core_max_mhz)};
    board.reference_core = {1890};
    // The published passes at memory 405 MHz do not change with core clocks above 420 MHz: the
    // core is held there. (Memory rising to 810 MHz instead, as has also been said, would have
    // shown as 282 % more time at core 630 MHz rather than the 583 % published.)
    board.memory_states = {
        {{405}, fit::memory_efficiency_405, {fit::memory_watts_405}, {420}},
        {{810}, fit::memory_efficiency_810, {fit::memory_watts_810}},
        {{5001}, fit::memory_efficiency_5001, {fit::memory_watts_5001}},
        {{9251}, fit::memory_efficiency_9251, {fit::memory_watts_9251}},
        {{9501}, fit::memory_efficiency_9501, {fit::memory_watts_9501}},
    };
    board.voltage.knots = {{1050, fit::volts_1050},
                           {1260, fit::volts_1260},
                           {1470, fit::volts_1470},
                           {1680, fit::volts_1680},
                           {1890, fit::volts_1890}};
    // Empirical: with memory on auto the board draws more at high core clocks than with memory
    // locked at the clock that auto picks.
    board.auto_memory_voltage = {fit::auto_memory_onset_mhz, fit::auto_memory_span_mhz,
                                 fit::auto_memory_rise, fit::auto_memory_exponent};
    board.core_overhead = {
        {fit::leakage_watts}, fit::leakage_exponent, fit::clock_tree_watts_per_ghz};
    board.static_power = {fit::static_watts};
    board.power_cap = {fit::power_cap_watts};

    // NVIDIA Ampere GA102 whitepaper: 80 SMs; 512 dense FP16 FLOP per SM and cycle with FP32
    // accumulation, 256 FP32 FLOP; 912 GB/s.
    board.throughput.matrix_flops_per_cycle = 80 * 512;
    board.throughput.vector_flops_per_cycle = 80 * 256;
    board.throughput.memory_bytes_per_second = 912e9;
    // Assumption: 64 bytes per cycle from each of 48 L2 slices.
    board.throughput.cache_bytes_per_cycle = 48 * 64;
    // About the medians of the fitted kernels: GEMMs 1.2 pJ per FLOP, memory-bound ones the rest.
    board.throughput.matrix_picojoules_per_flop = 1.0;
    board.throughput.vector_picojoules_per_flop = 2.0;
    board.throughput.cache_picojoules_per_byte = 25;
    board.throughput.memory_picojoules_per_byte = 125;
    board.throughput.launch_overhead = Seconds{2e-6};  // assumption

    // Assumptions: NVML as measured on an H100; latency as published for a Quadro RTX 6000.
    board.energy_counter = {100ms, {1e-3}, {1e-2}, 3ms};
    board.clock_switch = {1ms, 150ms, 1ms};
    return board;
}

}  // namespace kdvfs::simulated
