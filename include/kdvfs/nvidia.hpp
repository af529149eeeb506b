// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/gpu_streams.hpp>
#include <kdvfs/device/nvidia/cuda_api.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>
#include <kdvfs/nvidia_by_address.hpp>

#include <memory>

namespace kdvfs::inline v0_3::nvidia {

/// Opens a CUDA device: locks its clocks as scopes ask, counts its energy, and frees the clocks
/// when the last handle is gone or the process ends. A second call for the same GPU gives the same
/// GPU, in all modules of the process: stricter limits and metering are taken over, options that
/// contradict the first are refused.
/// @param cuda_device CUDA's number of the device; NVML's is found by its PCI address.
/// @throws Error if there is no such device, if another process drives its clocks, or if they
///         cannot be set, unless `options.on_refused` says to go on. It does try: where clocks
///         must not be touched, `measure` is the call.
inline Gpu open(int cuda_device, const GpuOptions& options = {}) {
    return detail::open_board(
        device::pci_address<device::CudaApi>(cuda_device),
        [&] { return std::make_shared<device::Cuda>(cuda_device); }, options);
}

/// Opens a CUDA device to measure it. Its clocks, power limit and modes are never touched: NVML's
/// setting functions are not even looked up, whatever the process may do. For GPUs that others
/// share, and for processes without the right to set clocks.
/// @throws Error if there is no such device, driver or library.
inline Gpu measure(int cuda_device, const GpuOptions& options = {}) {
    return detail::measure_board(
        device::pci_address<device::CudaApi>(cuda_device),
        [&] { return std::make_shared<device::Cuda>(cuda_device); }, options);
}

}  // namespace kdvfs::inline v0_3::nvidia
