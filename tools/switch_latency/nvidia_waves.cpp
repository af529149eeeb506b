// SPDX-License-Identifier: MIT
//
// NVIDIA GPUs by the driver alone, which is looked for when the program runs.
#include "gpu_waves.hpp"
#include "nvidia_loop.hpp"

#include <kdvfs/detail/open/cuda_driver.hpp>

#include <memory>

std::unique_ptr<WaveBench> open_nvidia_waves(int cuda_device) {
    using kdvfs::device::CudaDriverApi;
    // Enough threads to fill any such GPU, for the power that they draw.
    constexpr unsigned blocks = 2048;
    const auto launch = [](CudaDriverApi::Stream stream, unsigned steps) {
        clock_loop::launch(stream, steps, blocks);
    };
    return std::make_unique<GpuWaves<CudaDriverApi>>(cuda_device, launch, [=] {
        return kdvfs::nvidia::measure_by_driver(cuda_device, wave_options());
    });
}
