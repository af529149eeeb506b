// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/device/nvidia/cuda_driver_api.hpp>
#include <kdvfs/detail/open/nvidia.hpp>

#include <memory>

namespace kdvfs::inline v0_3::nvidia::detail {

/// The streams of a CUDA device by the driver alone, with a marker kernel unless the program has
/// brought one.
inline std::shared_ptr<device::CudaDriver> driver_streams(int cuda_device) {
    static_cast<void>(
        device::offer_marker_kernel<device::CudaDriverApi>(&device::CudaDriverApi::launch_marker));
    return std::make_shared<device::CudaDriver>(cuda_device);
}

/// As `nvidia::open(int)`, in a program that was built without CUDA.
inline Gpu open_by_driver(int cuda_device, const GpuOptions& options) {
    return open_board(
        device::pci_address<device::CudaDriverApi>(cuda_device),
        [=] { return driver_streams(cuda_device); }, options);
}

/// As `nvidia::measure(int)`, in a program that was built without CUDA.
inline Gpu measure_by_driver(int cuda_device, const GpuOptions& options) {
    return measure_board(
        device::pci_address<device::CudaDriverApi>(cuda_device),
        [=] { return driver_streams(cuda_device); }, options);
}

}  // namespace kdvfs::inline v0_3::nvidia::detail

namespace kdvfs::inline v0_3::nvidia {
using detail::measure_by_driver;
using detail::open_by_driver;
}  // namespace kdvfs::inline v0_3::nvidia
