// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/amd/hip_api.hpp>
#include <kdvfs/device/gpu_streams.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>
#include <kdvfs/rocm_by_address.hpp>

#include <memory>
#include <string>

namespace kdvfs::inline v0_3::rocm {

/// Opens an AMD GPU: sets its clocks (see `info().mechanism` for how), counts its energy, and puts
/// the clocks back when the last handle is gone or the process ends. A second call for the same GPU
/// gives the same GPU, in all modules of the process:
/// stricter limits and metering are taken over, options that contradict the first are refused.
/// @param hip_device HIP's number of the device; the driver's is found by its PCI address.
/// @throws Error if there is no such device, if another process drives its clocks, or if they
///         cannot be set, unless `options.on_refused` says to go on
inline Gpu open(int hip_device, const GpuOptions& options = {}) {
    return detail::open_device(
        device::pci_address<device::HipApi>(hip_device), "HIP device " + std::to_string(hip_device),
        [&] { return std::make_shared<device::Hip>(hip_device); }, options);
}

}  // namespace kdvfs::inline v0_3::rocm
