// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/nvidia.hpp>

#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/device/nvidia/cuda_api.hpp>
#include <kdvfs/detail/device/nvidia/nvml.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/detail/open/site_locks.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>

#include <memory>
#include <string>

namespace kdvfs::inline v0_3::nvidia {

namespace detail {

using OwnedBoard = kdvfs::detail::OwnedDevice<device::Nvml>;

/// Opens a board to set its clocks; `open_streams` as `kdvfs::detail::open_device` takes it.
template <class OpenStreams>
Gpu open_board(const std::string& spelled, OpenStreams open_streams, const GpuOptions& options) {
    const std::string address = device::nvml_address(spelled);
    const auto open_clocks = [&] {
        return std::make_shared<OwnedBoard>(
            address, kdvfs::detail::with_site_locks({.access = device::ClockAccess::set}, address));
    };
    return Gpu{kdvfs::detail::open_device(
        address, open_streams, open_clocks,
        [&] { return std::make_shared<device::NvmlReadings>(address); }, options)};
}

/// The same to measure it.
template <class OpenStreams>
Gpu measure_board(const std::string& spelled, OpenStreams open_streams, GpuOptions options) {
    options.on_refused = OnRefused::measure_only;
    const std::string address = device::nvml_address(spelled);
    return Gpu{kdvfs::detail::open_device(
        address + " measured", open_streams, [] { return std::shared_ptr<OwnedBoard>{}; },
        [&] { return std::make_shared<device::NvmlReadings>(address); }, options)};
}

}  // namespace detail

KDVFS_INLINE Gpu open(const std::string& pci_address, const GpuOptions& options) {
    return detail::open_board(
        pci_address, [&] { return std::make_shared<kdvfs::detail::LateStreams>(pci_address); },
        options);
}

KDVFS_INLINE Gpu measure(const std::string& pci_address, const GpuOptions& options) {
    return detail::measure_board(
        pci_address, [&] { return std::make_shared<kdvfs::detail::LateStreams>(pci_address); },
        options);
}

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
