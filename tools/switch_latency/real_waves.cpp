// SPDX-License-Identifier: MIT
//
// GPUs by the vendors' runtimes, which are looked for when the program runs.
#include "clock_loop.hpp"
#include "gpu_waves.hpp"

#include <kdvfs/nvidia.hpp>
#include <kdvfs/rocm.hpp>

#include <memory>

namespace {

template <class Api, class Open>
std::unique_ptr<WaveBench> open_waves(int device, Open open) {
    // Enough threads to fill any GPU, for the power that they draw.
    constexpr unsigned blocks = 2048;
    const auto launch = [](typename Api::Stream stream, unsigned steps) {
        clock_loop::launch<Api>(stream, steps, blocks);
    };
    return std::make_unique<GpuWaves<Api>>(device, launch, open);
}

}  // namespace

std::unique_ptr<WaveBench> open_amd_waves(int hip_device) {
    return open_waves<kdvfs::device::HipApi>(
        hip_device, [=] { return kdvfs::rocm::measure(hip_device, wave_options()); });
}

std::unique_ptr<WaveBench> open_nvidia_waves(int cuda_device) {
    return open_waves<kdvfs::device::CudaApi>(
        cuda_device, [=] { return kdvfs::nvidia::measure(cuda_device, wave_options()); });
}
