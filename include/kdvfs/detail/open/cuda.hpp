// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/nvidia.hpp>

#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/device/nvidia/cuda_api.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/open/nvidia.hpp>

#include <memory>

namespace kdvfs::inline v0_3::nvidia {
namespace detail {

/// The streams of a CUDA device, with a marker kernel unless the program has brought one.
inline std::shared_ptr<device::Cuda> cuda_streams(int cuda_device) {
    static_cast<void>(
        device::offer_marker_kernel<device::CudaApi>(&device::CudaApi::launch_marker));
    return std::make_shared<device::Cuda>(cuda_device);
}

}  // namespace detail

KDVFS_INLINE Gpu open(int cuda_device, const GpuOptions& options) {
    return detail::open_board(
        device::pci_address<device::CudaApi>(cuda_device),
        [=] { return detail::cuda_streams(cuda_device); }, options);
}

KDVFS_INLINE Gpu measure(int cuda_device, const GpuOptions& options) {
    return detail::measure_board(
        device::pci_address<device::CudaApi>(cuda_device),
        [=] { return detail::cuda_streams(cuda_device); }, options);
}

}  // namespace kdvfs::inline v0_3::nvidia
