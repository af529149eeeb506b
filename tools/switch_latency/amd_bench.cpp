// SPDX-License-Identifier: MIT
//
// AMD GPUs by HIP's runtime, which is looked for when the program runs; hipRTC compiles the
// kernels.
#include "gpu_bench.hpp"

#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/device/amd/hip_api.hpp>
#include <kdvfs/detail/open/amd.hpp>

#include <memory>
#include <string>

namespace {

using kdvfs::device::HipApi;

/// Dependent multiply-adds in registers, so that an iteration's time is a number of core cycles;
/// little power, so that no cap comes between the clock that is asked for and the one that holds.
constexpr const char* clock_loop_source = R"hip(
extern "C" __global__ void kdvfs_clock_loop(unsigned int steps, float* never) {
    float x = (float)threadIdx.x;
    for (unsigned int i = 0; i < steps; ++i) x = x * 0.999f + 1.0f;
    if (x < 0) *never = x;
}
)hip";

void launch_clock_loop(HipApi::Stream stream, unsigned steps) {
    static constinit HipApi::Kernel kernel{clock_loop_source, "kdvfs_clock_loop"};
    // One wave of any such GPU: an MI300X has 304 compute units.
    constexpr unsigned blocks = 304;
    constexpr unsigned threads = 256;
    void* never = nullptr;
    void* arguments[] = {&steps, &never};
    kdvfs::device::check<HipApi>(kernel.launch(stream, blocks, threads, arguments),
                                 "launch the kernel that is timed", "HIP device");
}

}  // namespace

std::unique_ptr<SwitchBench> open_amd_gpu(int hip_device, IterationSettings settings) {
    static_cast<void>(kdvfs::device::offer_marker_kernel<HipApi>(&HipApi::launch_marker));
    const kdvfs::device::amd::Card card = kdvfs::rocm::detail::card_at(
        kdvfs::device::pci_address<HipApi>(hip_device), "HIP device " + std::to_string(hip_device));
    using Bench = GpuBench<HipApi, kdvfs::device::amd::Clocks>;
    return std::make_unique<Bench>(hip_device, &launch_clock_loop, settings, card);
}
