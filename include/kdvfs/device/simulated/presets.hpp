// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/device/simulated/board.hpp>

#include <cstdint>
#include <vector>

namespace kdvfs::inline v0_3::simulated {

/// The clocks from `first` to `last` in equal steps; `last` is in even if a step misses it.
KDVFS_INLINE std::vector<Megahertz> clock_range(Megahertz first, Megahertz last,
                                                std::uint32_t step);

/// AMD Instinct MI250X as one device, a prediction. A real one shows two devices, of which the
/// second reports no power. Idle power is measured (public logs of LUMI: 82 to 102 W at 800 MHz,
/// 128 to 132 W with clocks up, both dies waiting); no sweep of its clocks is published, so
/// voltages and what work costs are assumptions.
KDVFS_INLINE Board mi250x();

/// AMD Instinct MI210, a prediction: one die of the MI250X's two, with its own limits. Idle power
/// is measured: 42 to 44 W at 800 MHz; at 1700 MHz 36 to 38 W on one host, 57 W on another.
KDVFS_INLINE Board mi210();

/// AMD Instinct MI300X in SPX mode. Measured (SC'25, doi 10.1145/3712285.3759768, and public logs):
/// asleep 120 to 152 W at 132 MHz, awake 186 to 194 W with memory at 900 MHz, 217 to 222 W with one
/// CU busy and memory at 1300 MHz; a dense FP16 GEMM of random data at 1115 MHz and 654 TFLOP/s
/// (AMD), reading memory 748 W at 1442 MHz and 4.6 TB/s. Its clocks were never swept in public:
/// voltages are those fitted to the MI325X, the same silicon.
KDVFS_INLINE Board mi300x();

/// AMD Instinct MI325X: the MI300X with faster memory and a higher limit. Idle power is measured
/// (121 to 141 W asleep, 227 W with one CU busy); voltages are fitted to GEMMs by power limit and
/// clock limit (SC'25, doi 10.1145/3712285.3759768), judged with each GEMM left out.
KDVFS_INLINE Board mi325x();

/// AMD Instinct MI355X. Idle power is measured (225 to 238 W); voltages and the energy of matrix
/// work are fitted to BF16 GEMMs at 942 to 1822 MHz on eight boards (sol-execbench-rocm), judged
/// with each board left out. Vector, cache and memory are assumptions.
KDVFS_INLINE Board mi355x();

/// H100 SXM5 80 GB HBM3. Idle power is fitted to measured clocks (EnergAIzer, arXiv 2604.20105; 1.6
/// % rms without the row at 345 MHz, an outlier of 117 W); voltages to that and to a DGEMM at 795,
/// 1095 and 1305 MHz of an H100 94 GB (arXiv 2607.00819). Energies of work are from three kernels
/// measured on one board: a bf16 GEMM of 8192^3 (1.62 ms, 701 W, throttled to 1365 MHz), a copy of
/// 2 GiB (1.42 ms, 490 W) and GELU over 2 GiB (1.52 ms, 701 W).
KDVFS_INLINE Board h100();

/// NVIDIA A100 PCIe 40 GB. Idle power is fitted to 81 measured clocks (0.4 W rms) with the measured
/// voltages of the board (EnergAIzer, arXiv 2604.20105); what work costs is an assumption.
KDVFS_INLINE Board a100_pcie40();

/// NVIDIA A100 SXM 80 GB (and A800): as the PCIe board, with idle power and voltages measured on
/// the SXM board (same source; 0.35 W rms).
KDVFS_INLINE Board a100_sxm80();

/// GeForce RTX 3080 Ti, fitted to the kernels published in arXiv 2601.08539 by bench/fit_gpt3_xl.
/// The table leaves leakage, the voltages between 1260 and 1680 MHz and memory power at 810 MHz
/// mostly to the priors: the fit prints how much.
KDVFS_INLINE Board rtx_3080_ti();

}  // namespace kdvfs::inline v0_3::simulated

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/device/simulated/presets.hpp>
#endif
