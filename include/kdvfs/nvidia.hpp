// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>
#include <kdvfs/options.hpp>

#include <string>

namespace kdvfs::inline v0_3::nvidia {

/// Opens a CUDA device: locks its clocks as scopes ask, counts its energy, and frees the clocks
/// when the last handle is gone or the process ends. A second call for the same GPU returns the
/// same GPU, in all modules of the process: stricter options are taken over, contradicting ones
/// refused. CUDA's driver and NVML are looked for at run time.
/// @param cuda_device CUDA's number of the device; NVML's is found by its PCI address
/// @throws Error if there is no such device, if another process drives its clocks, or if they
///         cannot be set, unless `options.on_refused` is `measure_only`. It does try to set them:
///         where clocks must not be touched, call `measure`.
KDVFS_INLINE Gpu open(int cuda_device, const GpuOptions& options = {});

/// Opens a CUDA device to measure it. Its clocks, power limit and modes are never touched: NVML's
/// setting functions are not even looked up. For GPUs that others share, and for processes without
/// the right to set clocks.
/// @throws Error if there is no such device, driver or library
KDVFS_INLINE Gpu measure(int cuda_device, const GpuOptions& options = {});

/// Opens a board by its PCI address, without CUDA in the process: for a process beside the one that
/// works, or inside an engine that hides its streams. `Gpu::request` asks for clocks; scopes, which
/// need streams, throw until the process opens the same GPU by its number, too: it is one GPU,
/// whichever comes first.
/// @param pci_address for example "0000:03:00.0"
/// @throws Error as `nvidia::open(int)`
KDVFS_INLINE Gpu open(const std::string& pci_address, const GpuOptions& options = {});

/// Opens a board by its PCI address to measure it: nothing is ever set.
/// @throws Error as `nvidia::measure(int)`
KDVFS_INLINE Gpu measure(const std::string& pci_address, const GpuOptions& options = {});

}  // namespace kdvfs::inline v0_3::nvidia

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/open/nvidia.hpp>
#endif
#if defined(__CUDACC__)
#include <kdvfs/cuda_markers.hpp>
#endif
