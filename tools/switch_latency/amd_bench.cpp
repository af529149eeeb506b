// SPDX-License-Identifier: MIT
#include "clock_loop.hpp"
#include "gpu_bench.hpp"

#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/open/rocm.hpp>

#include <memory>

std::unique_ptr<SwitchBench> open_amd_gpu(int hip_device, IterationSettings settings) {
    using kdvfs::device::HipApi;
    static_cast<void>(kdvfs::device::offer_marker_kernel<HipApi>(&HipApi::launch_marker));
    const kdvfs::device::amd::Card card = kdvfs::extend::amd_card(hip_device);
    using Bench = GpuBench<HipApi, kdvfs::device::amd::Clocks>;
    constexpr unsigned blocks = 304;  // one wave: an MI300X has as many compute units
    const auto launch = [](HipApi::Stream stream, unsigned steps) {
        clock_loop::launch<HipApi>(stream, steps, blocks);
    };
    return std::make_unique<Bench>(hip_device, launch, settings, card);
}
