// SPDX-License-Identifier: MIT
//
// NVIDIA GPUs by the driver alone, which is looked for when the program runs.
#include "gpu_bench.hpp"
#include "nvidia_loop.hpp"

#include <kdvfs/detail/device/nvidia/cuda_driver_api.hpp>
#include <kdvfs/detail/device/nvidia/nvml.hpp>
#include <kdvfs/detail/io/files.hpp>

#include <memory>

namespace {

using kdvfs::device::CudaDriverApi;

kdvfs::device::NvmlOptions nvml_options() {
    kdvfs::device::NvmlOptions options{.access = kdvfs::device::ClockAccess::set};
    if (const auto named = kdvfs::io::environment("KDVFS_NVML"); !named.empty())
        options.library = named;
    return options;
}

}  // namespace

std::unique_ptr<SwitchBench> open_nvidia_gpu(int cuda_device, IterationSettings settings) {
    static_cast<void>(
        kdvfs::device::offer_marker_kernel<CudaDriverApi>(&CudaDriverApi::launch_marker));
    const std::string address =
        kdvfs::device::nvml_address(kdvfs::device::pci_address<CudaDriverApi>(cuda_device));
    using Bench = GpuBench<CudaDriverApi, kdvfs::device::Nvml>;
    constexpr unsigned blocks = 128;  // one wave of any such GPU
    const auto launch = [](CudaDriverApi::Stream stream, unsigned steps) {
        clock_loop::launch(stream, steps, blocks);
    };
    return std::make_unique<Bench>(cuda_device, launch, settings, address, nvml_options());
}
