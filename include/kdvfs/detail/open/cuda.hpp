// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/nvidia.hpp>

#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/device/nvidia/cuda_api.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/open/nvidia.hpp>

#include <memory>

namespace kdvfs::inline v0_3::nvidia {

KDVFS_INLINE Gpu open(int cuda_device, const GpuOptions& options) {
    return detail::open_board(
        device::pci_address<device::CudaApi>(cuda_device),
        [&] { return std::make_shared<device::Cuda>(cuda_device); }, options);
}

KDVFS_INLINE Gpu measure(int cuda_device, const GpuOptions& options) {
    return detail::measure_board(
        device::pci_address<device::CudaApi>(cuda_device),
        [&] { return std::make_shared<device::Cuda>(cuda_device); }, options);
}

}  // namespace kdvfs::inline v0_3::nvidia
