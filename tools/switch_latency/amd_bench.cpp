// SPDX-License-Identifier: MIT
#include "amd_bench.hpp"

#include "clock_loop.hpp"

#include <chrono>
#include <memory>

std::unique_ptr<SwitchBench> open_amd_gpu(int hip_device, IterationSettings settings) {
    if (!clock_loop::has_kernel()) {
        throw kdvfs::Error{kdvfs::Errc::not_supported,
                           {"time iterations", "HIP device " + std::to_string(hip_device),
                            "this program was built without device code",
                            "install hipcc and build it again; --simulated needs no GPU"}};
    }
    const auto launch = [](hipStream_t stream, unsigned steps) {
        clock_loop::launch(stream, steps);
    };
    auto bench = std::make_unique<AmdBench>(hip_device, launch, settings);
    bench->calibrate(std::chrono::microseconds{150});
    return bench;
}
