// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/device/simulated/device.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>
#include <kdvfs/options.hpp>

namespace kdvfs::inline v0_3::simulated {

/// Opens a simulated GPU: does everything that a `Gpu` does, in virtual time. Its energy is
/// simulated. A second call for the same device returns the same `Gpu`, with the options of the
/// first.
/// @param device must outlive the last handle
/// @throws Error if its clocks cannot be set, unless `options.on_refused` is `measure_only`
KDVFS_INLINE Gpu open(Device& device, const GpuOptions& options = {});

}  // namespace kdvfs::inline v0_3::simulated

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/open/simulated.hpp>
#endif
