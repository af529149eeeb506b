// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

namespace kdvfs::device::amdgpu {

/// What a board was found to allow when it was tried.
enum class Capability {
    absent,     ///< there is no file for it
    refused,    ///< the driver said no
    supported,  ///< tried and seen to work; a clock was read back and put back
};

constexpr std::string_view to_string(Capability capability) {
    switch (capability) {
        case Capability::absent: return "absent";
        case Capability::refused: return "refused";
        case Capability::supported: return "supported";
    }
    return "unknown";
}

/// The ways to set the clocks of a board, each tried once, and whether it counts its energy.
struct Capabilities {
    Capability range = Capability::absent;        ///< limits in performance level `manual`
    Capability determinism = Capability::absent;  ///< a limit in level `perf_determinism`
    /// A list of allowed core levels. The driver does not tell which are allowed: accepted counts.
    Capability level_mask = Capability::absent;
    Capability memory = Capability::absent;  ///< an upper limit of the memory clock
    Capability energy = Capability::absent;  ///< a counter; a second die's is its package's
};

/// How the core clock is capped.
enum class ClockWay { range, determinism, level_mask };

constexpr std::string_view to_string(ClockWay way) {
    switch (way) {
        case ClockWay::range: return "range";
        case ClockWay::determinism: return "determinism";
        case ClockWay::level_mask: return "level mask";
    }
    return "unknown";
}

}  // namespace kdvfs::device::amdgpu
