// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/keep_loaded.hpp>
#include <kdvfs/device/timestamp_ring.hpp>

#include <atomic>
#include <cstdint>

namespace kdvfs::device {

/// What a marker kernel is launched with. All addresses are the device's.
struct MarkerArguments {
    std::uint32_t* cell = nullptr;  ///< where the request word goes
    std::uint32_t level = 0;
    TimestampEntry* ring = nullptr;             ///< null: no timestamp
    unsigned long long* next_ticket = nullptr;  ///< in the device's own memory
    std::uint64_t ring_mask = 0;                ///< entries of the ring - 1
    TimestampEntry timestamp;                   ///< all but what only the device knows
};

/// Launches a marker kernel on the vendor's stream; returns the vendor's status.
using LaunchMarker = int (*)(void* stream, const MarkerArguments& arguments);

/// The program's marker kernel for an API: null unless a file compiled for the device includes
/// kdvfs, which then serves the files compiled by a host compiler, too.
template <class Api>
std::atomic<LaunchMarker>& marker_kernel_of_program() {
    static std::atomic<LaunchMarker> launch{nullptr};
    return launch;
}

/// Gives the program its marker kernel; the first one stays. The library that brings it is never
/// unloaded from then on: other libraries launch it, too, and the device may run it at any time.
template <class Api>
bool offer_marker_kernel(LaunchMarker launch) {
    if (marker_kernel_of_program<Api>() != nullptr) return false;
    kdvfs::detail::keep_loaded(reinterpret_cast<const void*>(launch));
    LaunchMarker none = nullptr;
    return marker_kernel_of_program<Api>().compare_exchange_strong(none, launch);
}

}  // namespace kdvfs::device
