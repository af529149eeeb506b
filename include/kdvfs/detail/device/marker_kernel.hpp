// SPDX-License-Identifier: MIT
#pragma once

// The marker kernel, one source for HIP and CUDA. The vendors' API headers include it in files that
// are compiled for the device, and those alone.
#include <kdvfs/detail/device/marker_launch.hpp>

#include <cstdint>

#if defined(__HIPCC__)
#include <hip/hip_runtime.h>
#endif

#if defined(__CUDACC__) || defined(__HIPCC__)

namespace kdvfs::inline v0_3::device {

/// A timestamp's 64 bytes, in the widest pieces that one thread can write at once.
struct TimestampPieces {
    struct alignas(16) Piece {
        std::uint64_t low;
        std::uint64_t high;
    };
    Piece piece[4];
};

/// Reads the clocks of the unit that it runs on.
__device__ inline void read_clocks(TimestampEntry& entry) {
    entry.unit = unknown_unit;
#if defined(__CUDACC__)
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(entry.ticks));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(entry.unit));
#elif defined(__HIP_DEVICE_COMPILE__)  // HIP declares it for the device alone
    entry.ticks = static_cast<std::uint64_t>(wall_clock64());
    // Where the wave runs: register | first bit << 6 | (bits - 1) << 11 (LLVM's AMDGPU usage and
    // AMD's ISA guides).
#if defined(__GFX9__)
    entry.unit = __builtin_amdgcn_s_getreg(4 | 8 << 6 | 7 << 11);          // HW_ID: CU, SH, SE
#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)
    entry.unit |= __builtin_amdgcn_s_getreg(20 | 0 << 6 | 3 << 11) << 8U;  // XCC_ID: the die
#endif
#elif defined(__GFX10__) || defined(__GFX11__)
    entry.unit = __builtin_amdgcn_s_getreg(23 | 10 << 6 | 10 << 11);  // HW_ID1: WGP, SA, SE
#endif
#endif
    entry.cycles = static_cast<std::uint64_t>(clock64());
}

/// What a marker does on the device: stores the request, and a timestamp where there is a ring.
__device__ inline void mark(const MarkerArguments& arguments) {
    *static_cast<volatile std::uint32_t*>(arguments.cell) = arguments.level;
    if (arguments.ring == nullptr) return;
    // First, because its answer takes longest.
    const unsigned long long ticket = atomicAdd(arguments.next_ticket, 1ULL) + 1;
    TimestampEntry entry = arguments.timestamp;
    read_clocks(entry);
    entry.check = timestamp_check(entry, ticket);
    // In four pieces: left to itself the compiler takes 64, each a write of its own to the host.
    *reinterpret_cast<TimestampPieces*>(arguments.ring + ((ticket - 1) & arguments.ring_mask)) =
        __builtin_bit_cast(TimestampPieces, entry);
}

/// One thread. A template, so that it may be defined in many files.
template <class = void>
__global__ void marker_kernel(MarkerArguments arguments) {
    mark(arguments);
}

namespace {

#if defined(__CUDACC__)
using MarkerApi = CudaApi;
#else
using MarkerApi = HipApi;
#endif

/// Its status comes back without touching the user's last error, unlike <<<>>>'s.
int launch_marker_kernel(void* stream, const MarkerArguments& arguments) {
    MarkerArguments copy = arguments;
    void* pointers[] = {&copy};
    const void* const kernel = reinterpret_cast<const void*>(&marker_kernel<>);
    const auto in = static_cast<MarkerApi::Stream>(stream);
#if defined(__CUDACC__)
    return static_cast<int>(cudaLaunchKernel(kernel, dim3(1), dim3(1), pointers, 0, in));
#else
    return static_cast<int>(hipLaunchKernel(kernel, dim3(1), dim3(1), pointers, 0, in));
#endif
}

[[maybe_unused]] const bool marker_kernel_is_offered =
    offer_marker_kernel<MarkerApi>(&launch_marker_kernel);

}  // namespace
}  // namespace kdvfs::inline v0_3::device

#endif
