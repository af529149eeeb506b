// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/rocm.hpp>

#include <kdvfs/detail/device/amd/hip_api.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/open/amd.hpp>

#include <memory>
#include <string>

namespace kdvfs::inline v0_3::rocm {

KDVFS_INLINE Gpu open(int hip_device, const GpuOptions& options) {
    return detail::open_device(
        device::pci_address<device::HipApi>(hip_device), "HIP device " + std::to_string(hip_device),
        [&] { return std::make_shared<device::Hip>(hip_device); }, options);
}

}  // namespace kdvfs::inline v0_3::rocm
