// SPDX-License-Identifier: MIT
#include "wave_bench.hpp"

#include <kdvfs/error.hpp>

#include <string>

std::unique_ptr<WaveBench> open_amd_waves(int hip_device) {
    throw kdvfs::Error{kdvfs::Errc::not_supported,
                       {"measure sensors", "HIP device " + std::to_string(hip_device),
                        "this program was built without HIP",
                        "install its development packages and build it again; --board needs no "
                        "GPU"}};
}
