// SPDX-License-Identifier: MIT
#include "switch_bench.hpp"

#include <kdvfs/error.hpp>

#include <string>

std::unique_ptr<SwitchBench> open_amd_gpu(int hip_device, IterationSettings) {
    throw kdvfs::Error{kdvfs::Errc::not_supported,
                       {"measure switching latencies", "HIP device " + std::to_string(hip_device),
                        "this program was built without HIP and ROCm SMI",
                        "install their development packages and build it again; --simulated "
                        "needs no GPU"}};
}
