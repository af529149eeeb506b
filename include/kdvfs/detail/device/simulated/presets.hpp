// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/presets.hpp>

#include <kdvfs/detail/device/simulated/rtx_3080_ti_fit.hpp>
#include <kdvfs/units.hpp>

#include <chrono>

namespace kdvfs::inline v0_3::simulated {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::vector<Megahertz> clock_range(Megahertz first, Megahertz last,
                                                std::uint32_t step) {
    std::vector<Megahertz> clocks;
    for (std::uint32_t mhz = first.count; mhz < last.count; mhz += step) clocks.push_back({mhz});
    clocks.push_back(last);
    return clocks;
}

KDVFS_INLINE Board mi250x() {
    using namespace std::chrono_literals;
    Board board;
    board.name = "AMD Instinct MI250X";
    board.accuracy = "assumption, not held out: only idle power is measured, 1.5 %";
    board.architecture = "gfx90a";
    // amdgpu: core settable from 500 to 1700 MHz by range or determinism, memory not settable.
    board.clocks.core = {{{500}, {1700}}, true};
    board.core_min = {500};
    board.core_max = {1700};
    board.idle_core = {800};  // the middle level that boards list in auto
    board.reference_core = {1700};
    board.memory_states = {{{1600}, 1, {24}}};  // clock: data sheet; W of the measured idle power

    // Assumption: flat to 1000 MHz (850 to 1100), then linear, 30 % more at the top (20 to 40).
    board.voltage.knots = {{1000, 1}, {1700, 1.3}};
    // From idle watts at two clocks; how they divide is an assumption.
    board.core_overhead = {{20}, 2, 11.7};
    board.static_power = {38.6};
    board.power_cap = {560};  // MI250X data sheet

    // MI250X data sheet and CDNA 2 white paper: 220 CUs; 1024 dense FP16 FLOP per CU and cycle,
    // 128 FP32; 3.28 TB/s; L2 of 32 channels with 128 bytes per cycle on each of 2 dies.
    board.throughput.matrix_flops_per_cycle = 220 * 1024;
    board.throughput.vector_flops_per_cycle = 220 * 128;
    board.throughput.cache_bytes_per_cycle = 2 * 32 * 128;
    board.throughput.memory_bytes_per_second = 3.28e12;
    board.throughput.matrix_picojoules_per_flop = 1.1;  // assumption (0.8 to 1.4)
    board.throughput.vector_picojoules_per_flop = 8;    // assumption (4 to 10)
    board.throughput.cache_picojoules_per_byte = 43;    // assumption (25 to 60): as the MI300X
    board.throughput.memory_picojoules_per_byte = 68;   // assumption (45 to 90): as the MI300X
    board.throughput.launch_overhead = Seconds{3e-6};   // assumption

    // gpu_metrics: about 1 ms between values, steps of 2^-16 J, reads of 0.9 to 2.1 ms on real
    // boards. The noise is an assumption.
    board.energy_counter = {1ms, {0x1p-16}, {1e-3}, 1ms};
    // Nothing is published for AMD: assumptions, except that a determinism call sleeps 0.5-1 ms.
    board.clock_switch = {750us, 10ms, 50us};
    return board;
}

KDVFS_INLINE Board mi210() {
    Board board = mi250x();
    board.name = "AMD Instinct MI210";
    board.accuracy =
        "assumption, not held out: idle power is 0.7 to 1.2 of the preset's on four hosts";
    board.memory_states = {{{1600}, 1, {12}}};
    // Assumption: hosts measure 0.7 to 1.2 of these idle watts. So is how they divide.
    board.core_overhead = {{4}, 2, 2};
    board.static_power = {25.4};
    board.power_cap = {300};  // MI210 data sheet

    // MI210 data sheet: 104 CUs, 1.64 TB/s; per CU and channel as the MI250X.
    board.throughput.matrix_flops_per_cycle = 104 * 1024;
    board.throughput.vector_flops_per_cycle = 104 * 128;
    board.throughput.cache_bytes_per_cycle = 32 * 128;
    board.throughput.memory_bytes_per_second = 1.64e12;
    return board;
}

KDVFS_INLINE Board mi300x() {
    using namespace std::chrono_literals;
    Board board;
    board.name = "AMD Instinct MI300X";
    board.accuracy = "assumption, not held out, but for watts by busy CUs: 0.8 %";
    board.architecture = "gfx942";
    // Core range 500 to 2100 MHz through pp_od_clk_voltage. The driver accepts an upper limit for
    // memory; it is left out, since what it does to bandwidth is not published.
    board.clocks.core = {{{500}, {2100}}, true};
    board.core_min = {500};
    board.core_max = {2100};
    board.idle_core = {132};    // measured: 131 to 134 MHz asleep
    board.idle_memory = {900};  // measured
    board.reference_core = {2100};
    // W: the difference between idle and one busy CU is measured, the rest is an assumption.
    board.memory_states = {{{900}, 1, {40}}, {{1300}, 1, {68}}};

    // Knee: assumption (1000 to 1250); top: fitted to the MI325X (1.2 to 1.4).
    board.voltage.knots = {{1100, 1}, {2100, 1.29}};
    board.core_overhead = {{21}, 2, 11};  // from idle watts at two clocks; the split: assumption
    board.static_power = {77.5};          // the rest of the measured idle watts
    board.power_cap = {750};              // MI300X data sheet

    // MI300X data sheet and CDNA 3 white paper: 304 CUs; 2048 dense FP16 FLOP per CU and cycle,
    // 256 FP32; 5.3 TB/s; L2 reads of 2048 bytes per cycle on each of 8 dies.
    board.throughput.matrix_flops_per_cycle = 304 * 2048;
    board.throughput.vector_flops_per_cycle = 304 * 256;
    board.throughput.cache_bytes_per_cycle = 8 * 2048;
    board.throughput.memory_bytes_per_second = 5.3e12;
    // From AMD's GEMM of random data. Buffers that were never written draw 0.57 of it (0.5 to
    // 0.65), registers alone 0.3.
    board.throughput.matrix_picojoules_per_flop = 0.84;
    // From FP32 FMA in registers (3.1), with that factor for random data (3.1 to 8).
    board.throughput.vector_picojoules_per_flop = 5.4;
    // Their sum from the memory-bound kernels; the split: assumption (35 to 50 % in the cache).
    board.throughput.cache_picojoules_per_byte = 43;
    board.throughput.memory_picojoules_per_byte = 68;
    board.throughput.launch_overhead = Seconds{3e-6};  // assumption

    // gpu_metrics: about 1 ms between values, steps of 2^-16 J, reads of 0.9 to 2.1 ms on real
    // boards. The noise is an assumption.
    board.energy_counter = {1ms, {0x1p-16}, {1e-3}, 1ms};
    // Nothing is published for AMD: assumptions, except that a determinism call sleeps 0.5-1 ms.
    board.clock_switch = {750us, 10ms, 50us};
    return board;
}

KDVFS_INLINE Board mi325x() {
    Board board = mi300x();
    board.name = "AMD Instinct MI325X";
    board.accuracy =
        "GEMMs held out: watts 3.2 %, time 3.2 %, energy 4.8 %; other work is an assumption";
    board.idle_core = {134};                                      // measured
    board.memory_states = {{{900}, 1, {40}}, {{1500}, 1, {86}}};  // W as on the MI300X
    board.static_power = {67.5};                                  // the rest of the idle watts
    board.power_cap = {1000};                                     // MI325X data sheet
    board.throughput.memory_bytes_per_second = 6e12;              // MI325X data sheet
    return board;
}

KDVFS_INLINE Board mi355x() {
    Board board = mi300x();
    board.name = "AMD Instinct MI355X";
    board.accuracy =
        "GEMMs held out by board: watts 2.7 %, time 1.5 %, energy 3.1 %, clocks under a limit 2.9 "
        "%; other work is an assumption";
    board.architecture = "gfx950";
    board.clocks.core = {{{500}, {2400}}, true};
    board.core_max = {2400};
    board.idle_memory = auto_clock;  // memory stays at 2000 MHz (measured on the MI350X)
    board.reference_core = {2400};
    board.memory_states = {{{2000}, 1, {80}}};  // assumption
    board.voltage.knots = {{1293, 1}, {2400, 1.221}};
    board.limit_droop = 0.26;  // of GEMMs on seven boards (0.22 to 0.31); 0.005 on an eighth
    board.core_overhead = {{30}, 2, 15};  // assumption
    board.static_power = {120};           // the rest of the measured idle watts
    board.power_cap = {1400};             // MI355X data sheet

    // MI355X data sheet: 256 CUs, 2.5 PFLOP/s dense BF16 and 157 TFLOP/s FP32 at 2400 MHz, 8 TB/s.
    board.throughput.matrix_flops_per_cycle = 256 * 4096;
    board.throughput.vector_flops_per_cycle = 256 * 256;
    board.throughput.memory_bytes_per_second = 8e12;
    board.throughput.matrix_picojoules_per_flop = 0.585;
    return board;
}

KDVFS_INLINE Board h100() {
    using namespace std::chrono_literals;
    Board board;
    board.name = "NVIDIA H100 80GB HBM3";
    board.accuracy =
        "held out: DGEMM energy 1.8 %, training by power limit 5.4 % (LLM) and 1.8 % (ViT); energy "
        "of other work is an assumption";
    board.architecture = "sm_90";
    // Seen on a board: 1980 MHz core when idle or lightly loaded, memory 2619 MHz. Assumption:
    // lowest core clock 345 MHz, steps of 15; only one memory clock worth training at.
    board.clocks.core.listed = clock_range({345}, {1980}, 15);
    board.clocks.memory.listed = {{2619}};
    board.core_min = {345};
    board.core_max = {1980};
    board.reference_core = {1980};
    board.memory_states = {{{2619}, 1, {30}}};  // of the measured idle watts: assumption

    // Fitted; the measured idle watts rise no more from 1800 to 1875 MHz on: where is an
    // assumption.
    board.voltage.knots = {{965, 1}, {1830, 1.443}, {1980, 1.443}};
    // Fitted to idle watts, of which 1 W per GHz of clock tree is an assumption (0 to 1.5).
    board.core_overhead = {{9.43}, 4.79, 1};
    board.static_power = {32.25};
    board.power_cap = {700};  // NVIDIA H100 data sheet, SXM

    // NVIDIA H100 data sheet and Hopper whitepaper: 132 SMs; 4096 dense FP16 FLOP per SM and
    // cycle, 256 FP32; 3.35 TB/s. L2 reads of 5120 bytes per cycle are those of the A100.
    board.throughput.matrix_flops_per_cycle = 132 * 4096;
    board.throughput.vector_flops_per_cycle = 132 * 256;
    board.throughput.cache_bytes_per_cycle = 5120;
    board.throughput.memory_bytes_per_second = 3.35e12;
    board.throughput.matrix_picojoules_per_flop = 0.6;  // from the GEMM
    board.throughput.vector_picojoules_per_flop = 6.7;  // from GELU at 20 FLOP each
    // Their sum at the top clock from the copy; the split: assumption (25 to 45 in the cache).
    board.throughput.cache_picojoules_per_byte = 37;
    board.throughput.memory_picojoules_per_byte = 45;
    board.throughput.launch_overhead = Seconds{2e-6};  // 1.9 us measured between two kernels

    // Measured: a new value each 100 ms, a read 2.9-3.9 ms. NVML counts millijoules. The noise is
    // an assumption.
    board.energy_counter = {100ms, {1e-3}, {1e-2}, 3ms};
    // Published: Hopper switches in about 6 ms. The call and the pause are assumptions.
    board.clock_switch = {1ms, 6ms, 100us};
    return board;
}

KDVFS_INLINE Board a100_pcie40() {
    using namespace std::chrono_literals;
    Board board;
    board.name = "NVIDIA A100 PCIe 40GB";
    board.accuracy = "idle power fitted, 0.8 %; energy of work is an assumption, not held out";
    board.architecture = "sm_80";
    board.clocks.core.listed = clock_range({210}, {1410}, 15);
    board.clocks.memory.listed = {{1215}};
    board.core_min = {210};
    board.core_max = {1410};
    board.reference_core = {1410};
    board.memory_states = {{{1215}, 1, {10}}};  // idle memory of the 31 W fitted: assumption

    // Measured: 693.75 mV to 1020 MHz, 893.75 mV at 1410 MHz.
    board.voltage.knots = {{1020, 1},     {1080, 1.027}, {1140, 1.054},
                           {1230, 1.117}, {1320, 1.198}, {1410, 1.288}};
    board.core_overhead = {{12.03}, 2.75, 5.02};  // fitted to idle watts
    board.static_power = {20.91};                 // fitted to idle watts, less memory
    board.power_cap = {250};                      // NVIDIA A100 data sheet, PCIe 40 GB

    // NVIDIA A100 whitepaper: 108 SMs; 2048 dense FP16 FLOP per SM and cycle, 128 FP32; 1.555 TB/s;
    // L2 reads of 5120 bytes per cycle.
    board.throughput.matrix_flops_per_cycle = 108 * 2048;
    board.throughput.vector_flops_per_cycle = 108 * 128;
    board.throughput.cache_bytes_per_cycle = 5120;
    board.throughput.memory_bytes_per_second = 1.555e12;
    board.throughput.matrix_picojoules_per_flop = 0.55;  // assumption: held clock of LLM passes
    board.throughput.vector_picojoules_per_flop = 8;     // assumption: as the H100
    board.throughput.cache_picojoules_per_byte = 25;     // assumption: as the H100
    board.throughput.memory_picojoules_per_byte = 60;    // assumption
    board.throughput.launch_overhead = Seconds{2e-6};    // assumption: as the H100

    // Assumptions: NVML as measured on an H100; the latency is of the order published for Ampere.
    board.energy_counter = {100ms, {1e-3}, {1e-2}, 3ms};
    board.clock_switch = {1ms, 10ms, 100us};
    return board;
}

KDVFS_INLINE Board a100_sxm80() {
    Board board = a100_pcie40();
    board.name = "NVIDIA A100 SXM4 80GB";
    board.accuracy = "idle power fitted, 0.6 %; energy of work is an assumption, not held out";
    board.clocks.memory.listed = {{1593}};
    board.memory_states = {{{1593}, 1, {15}}};  // idle memory of the 44 W fitted: assumption
    // Measured: 743.75 mV to 1110 MHz, 918.75 mV at 1410 MHz.
    board.voltage.knots = {{1110, 1},     {1170, 1.034}, {1230, 1.076},
                           {1290, 1.126}, {1350, 1.168}, {1410, 1.235}};
    board.core_overhead = {{14.82}, 2.75, 5.56};
    board.static_power = {28.66};
    board.power_cap = {400};                              // NVIDIA A100 data sheet, SXM
    board.throughput.memory_bytes_per_second = 2.039e12;  // data sheet
    return board;
}

KDVFS_INLINE Board rtx_3080_ti() {
    namespace fit = rtx_3080_ti_fit;
    using namespace std::chrono_literals;
    Board board;
    board.name = "NVIDIA GeForce RTX 3080 Ti";
    board.accuracy =
        "kernels held out: time 0.9 %, energy 2.4 % in the median; passes 4.8 % and 5.1 % rms";
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

#endif

}  // namespace kdvfs::inline v0_3::simulated
