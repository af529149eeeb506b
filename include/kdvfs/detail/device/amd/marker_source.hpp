// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/marker_launch.hpp>

#include <cstddef>

namespace kdvfs::inline v0_3::device {

/// The marker kernel `kdvfs_marker` as HIP source, which hipRTC compiles for the device at hand:
/// for programs whose files no device compiler has seen, such as the Python package. It does what
/// `mark` of <kdvfs/detail/device/marker_kernel.hpp> does, in hipRTC's own words; a test runs both.
inline constexpr const char* marker_source = R"hip(
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) Timestamp {
    u64 ticks, cycles, enqueued;
    u32 track, scope_kind, window, leaving, unit, spare;
    u64 check, unused;
};
struct Arguments {
    u32* cell;
    u32 level;
    Timestamp* ring;
    u64* next_ticket;
    u64 ring_mask;
    Timestamp timestamp;
};
struct Pieces { struct alignas(16) Piece { u64 low, high; } piece[4]; };
static_assert(sizeof(Timestamp) == 64 && sizeof(Arguments) == 128, "the host's layout");

__device__ u32 unit_of_wave() {
    u32 unit = ~0u;
#if defined(__GFX9__)
    unit = __builtin_amdgcn_s_getreg(4 | 8 << 6 | 7 << 11);
#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)
    unit |= __builtin_amdgcn_s_getreg(20 | 0 << 6 | 3 << 11) << 8;
#endif
#elif defined(__GFX10__) || defined(__GFX11__)
    unit = __builtin_amdgcn_s_getreg(23 | 10 << 6 | 10 << 11);
#endif
    return unit;
}

extern "C" __global__ void kdvfs_marker(Arguments arguments) {
    *(volatile u32*)arguments.cell = arguments.level;
    if (arguments.ring == nullptr) return;
    const u64 ticket = atomicAdd(arguments.next_ticket, 1ull) + 1;
    Timestamp entry = arguments.timestamp;
    entry.ticks = (u64)wall_clock64();
    entry.unit = unit_of_wave();
    entry.cycles = (u64)clock64();
    const u64 a = 0x9e3779b97f4a7c15ull, b = 0xbf58476d1ce4e5b9ull, c = 0x94d049bb133111ebull;
    u64 sum = ticket * a;
    sum = (sum ^ entry.ticks) * b;
    sum = (sum ^ entry.cycles) * c;
    sum = (sum ^ entry.enqueued) * a;
    sum = (sum ^ ((u64)entry.track << 32 ^ entry.scope_kind)) * b;
    sum = (sum ^ ((u64)entry.window << 32 ^ entry.unit)) * c;
    entry.check = (sum ^ entry.leaving) * a | 1;
    *(Pieces*)(arguments.ring + ((ticket - 1) & arguments.ring_mask)) = __builtin_bit_cast(Pieces, entry);
}
)hip";

// What the source restates.
static_assert(sizeof(MarkerArguments) == 128 && offsetof(MarkerArguments, ring) == 16 &&
              offsetof(MarkerArguments, next_ticket) == 24 &&
              offsetof(MarkerArguments, ring_mask) == 32 &&
              offsetof(MarkerArguments, timestamp) == 64);
static_assert(offsetof(TimestampEntry, track) == 24 && offsetof(TimestampEntry, leaving) == 36 &&
              offsetof(TimestampEntry, unit) == 40 && offsetof(TimestampEntry, check) == 48);

}  // namespace kdvfs::inline v0_3::device
