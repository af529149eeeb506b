// SPDX-License-Identifier: MIT
#include "clock_loop.hpp"
#include "gpu_bench.hpp"

#include <kdvfs/detail/device/nvidia/nvml.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/open/site_locks.hpp>

#include <memory>
#include <string>

namespace {

using kdvfs::device::CudaApi;

kdvfs::device::NvmlOptions nvml_options() {
    kdvfs::device::NvmlOptions options{.access = kdvfs::device::ClockAccess::set};
    if (const auto named = kdvfs::io::environment("KDVFS_NVML"); !named.empty())
        options.library = named;
    return options;
}

}  // namespace

std::unique_ptr<SwitchBench> open_nvidia_gpu(int cuda_device, IterationSettings settings) {
    static_cast<void>(kdvfs::device::offer_marker_kernel<CudaApi>(&CudaApi::launch_marker));
    const std::string address =
        kdvfs::device::nvml_address(kdvfs::device::pci_address<CudaApi>(cuda_device));
    using Bench = GpuBench<CudaApi, kdvfs::device::Nvml>;
    constexpr unsigned blocks = 128;  // one wave of any such GPU
    const auto launch = [](CudaApi::Stream stream, unsigned steps) {
        clock_loop::launch<CudaApi>(stream, steps, blocks);
    };
    return std::make_unique<Bench>(cuda_device, launch, settings, address,
                                   kdvfs::extend::with_site_locks(nvml_options(), address));
}
