// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/cuda.hpp>
#include <kdvfs/device/nvml.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/gpu/gpu_core.hpp>
#include <kdvfs/kdvfs.hpp>

#include <memory>
#include <string>
#include <utility>

namespace kdvfs::nvidia {

/// Opens a CUDA device to measure it. Its clocks, power limit and modes are never touched: NVML's
/// setting functions are not even looked up, whatever the process may do. For GPUs that others
/// share, and for processes without the right to set clocks.
/// @param cuda_device CUDA's number of the device; NVML's is found by its PCI address.
/// @throws Error if there is no such device, driver or library.
inline Gpu measure(int cuda_device, GpuOptions options = {}) {
    const device::Nvml board{device::cuda::pci_address(cuda_device)};
    GpuCore::Parts parts{.info = board.info(),
                         .clocks = board.supported_clocks(),
                         .runtime = std::make_unique<RuntimeOf<device::Cuda>>(cuda_device)};
    return Gpu{std::make_shared<GpuCore>(std::move(parts), options)};
}

}  // namespace kdvfs::nvidia
