// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace measuring {

/// When a probe ran, and the level it saw at its begin and at its end.
struct Probe {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint32_t request_at_start = 0;
    std::uint32_t request_at_end = 0;
};

__device__ inline std::uint64_t device_nanoseconds() {
    std::uint64_t time = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

/// One thread that is busy for so many nanoseconds. `level` may be null.
template <class = void>
__global__ void probe(Probe* out, const std::uint32_t* level, std::uint64_t nanoseconds) {
    Probe seen;
    seen.start = device_nanoseconds();
    const auto* cell = static_cast<const volatile std::uint32_t*>(level);
    if (cell != nullptr) seen.request_at_start = *cell;
    while (device_nanoseconds() - seen.start < nanoseconds) {
    }
    if (cell != nullptr) seen.request_at_end = *cell;
    seen.end = device_nanoseconds();
    if (out != nullptr) *out = seen;
}

}  // namespace measuring
