// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>
#include <kdvfs/options.hpp>

#include <string>

namespace kdvfs::inline v0_3::rocm {

/// Opens an AMD GPU: sets its clocks (`info().mechanism` says how), counts its energy, and restores
/// the clocks when the last handle is gone or the process ends. A second call for the same GPU
/// returns the same GPU, in all modules of the process: stricter options are taken over,
/// contradicting ones refused. libamdhip64 is looked for at run time: the one that the process has
/// already, else the newest that is installed (ROCm 5.2 to 7).
/// @param hip_device HIP's number of the device; the driver's is found by its PCI address
/// @throws Error if there is no such device, if another process drives its clocks, or if they
///         cannot be set, unless `options.on_refused` is `measure_only`
KDVFS_INLINE Gpu open(int hip_device, const GpuOptions& options = {});

/// Opens a HIP device to measure it: nothing is ever set. For GPUs that others share, and for
/// processes without the right to set clocks.
/// @throws Error if there is no such device or it has no energy counter that can be read
KDVFS_INLINE Gpu measure(int hip_device, const GpuOptions& options = {});

/// Opens an AMD GPU by its PCI address, without HIP in the process: for a process beside the one
/// that works, or inside an engine that hides its streams. `Gpu::request` asks for clocks; scopes,
/// which need streams, throw until the process opens the same GPU by its number, too: it is one
/// GPU, whichever comes first.
/// @param pci_address for example "0000:c1:00.0"
/// @throws Error as `rocm::open(int)`
KDVFS_INLINE Gpu open(const std::string& pci_address, const GpuOptions& options = {});

/// Opens an AMD GPU by its PCI address to measure it: nothing is ever set.
/// @throws Error if there is no such device or it has no energy counter that can be read
KDVFS_INLINE Gpu measure(const std::string& pci_address, const GpuOptions& options = {});

}  // namespace kdvfs::inline v0_3::rocm

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/open/rocm.hpp>
#endif
#if defined(__HIPCC__)
#include <kdvfs/hip_markers.hpp>
#endif
