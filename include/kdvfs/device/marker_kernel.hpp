// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/timestamp_ring.hpp>

#include <cstdint>

namespace kdvfs::device {

/// What a marker kernel is launched with.
struct MarkerArguments {
    std::uint32_t* cell = nullptr;  ///< where the level goes; the device's address
    std::uint32_t level = 0;
    TimestampEntry* ring = nullptr;  ///< null: no timestamp
    unsigned long long* next_ticket = nullptr;
    std::uint64_t ring_mask = 0;  ///< entries of the ring - 1
    TimestampEntry timestamp;     ///< all but what only the device knows
};

/// Launches a marker kernel on the vendor's stream; returns the vendor's status.
using LaunchMarker = int (*)(void* stream, const MarkerArguments& arguments);

/// The program's marker kernel: null unless a file compiled for the device includes kdvfs, which
/// then serves the files compiled by a host compiler, too.
inline LaunchMarker& marker_kernel_of_program() {
    static LaunchMarker launch = nullptr;
    return launch;
}

}  // namespace kdvfs::device

// The kernel itself, one source for HIP and CUDA; the vendor's header comes before this one.
#if defined(__CUDACC__) || defined(__HIPCC__)

namespace kdvfs::device {

/// A timestamp's 64 bytes, in the widest pieces that one thread can write at once.
struct TimestampPieces {
    struct alignas(16) Piece {
        std::uint64_t low;
        std::uint64_t high;
    };
    Piece piece[4];
};

/// One thread. A template, so that it may be defined in many files.
template <class = void>
__global__ void marker_kernel(MarkerArguments arguments) {
    *static_cast<volatile std::uint32_t*>(arguments.cell) = arguments.level;
    if (arguments.ring == nullptr) return;
    // First, because its answer takes longest.
    const unsigned long long ticket = atomicAdd(arguments.next_ticket, 1ULL) + 1;
    TimestampEntry entry = arguments.timestamp;
#if defined(__CUDACC__)
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(entry.ticks));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(entry.unit));
#elif defined(__HIP_DEVICE_COMPILE__)  // HIP declares it for the device alone
    entry.ticks = static_cast<std::uint64_t>(wall_clock64());
#endif
    entry.cycles = static_cast<std::uint64_t>(clock64());
    entry.check = timestamp_check(entry, ticket);
    // In four pieces: left to itself the compiler takes 64, each a write of its own to the host.
    *reinterpret_cast<TimestampPieces*>(arguments.ring + ((ticket - 1) & arguments.ring_mask)) =
        __builtin_bit_cast(TimestampPieces, entry);
}

namespace {

// cudaLaunchKernel rather than <<<>>>: its status comes back without touching the user's last
// error.
int launch_marker_kernel(void* stream, const MarkerArguments& arguments) {
    MarkerArguments copy = arguments;
    void* pointers[] = {&copy};
    const auto* kernel = reinterpret_cast<const void*>(&marker_kernel<>);
#if defined(__CUDACC__)
    return static_cast<int>(
        cudaLaunchKernel(kernel, dim3(1), dim3(1), pointers, 0, static_cast<cudaStream_t>(stream)));
#else
    return static_cast<int>(
        hipLaunchKernel(kernel, dim3(1), dim3(1), pointers, 0, static_cast<hipStream_t>(stream)));
#endif
}

[[maybe_unused]] const bool marker_kernel_is_there =
    (marker_kernel_of_program() = &launch_marker_kernel, true);

}  // namespace
}  // namespace kdvfs::device

#endif
