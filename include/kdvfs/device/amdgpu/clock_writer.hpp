// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>

#include <concepts>
#include <string>
#include <string_view>

namespace kdvfs::device::amdgpu {

/// What a board was found to allow when it was tried.
enum class Capability {
    absent,     ///< there is no file for it
    refused,    ///< the driver said no
    supported,  ///< applied, read back and restored
};

constexpr std::string_view to_string(Capability capability) {
    switch (capability) {
        case Capability::absent: return "absent";
        case Capability::refused: return "refused";
        case Capability::supported: return "supported";
    }
    return "unknown";
}

/// The ways to set the clocks of a board, each tried once.
struct ClockCapabilities {
    Capability range = Capability::absent;        ///< limits in performance level `manual`
    Capability determinism = Capability::absent;  ///< a limit in level `perf_determinism`
    Capability memory = Capability::absent;       ///< an upper limit of the memory clock
};

/// Limits as the driver takes them: all of them are numbers.
struct ClockLimits {
    Megahertz core_min;
    Megahertz core_max;
    Megahertz memory_max = auto_clock;  ///< auto: there is none to write

    friend bool operator==(ClockLimits, ClockLimits) = default;
};

/// How settings get to the driver: by its files, or through a library. Each call throws `Error` and
/// may then have done its first half: no setter of the driver is atomic.
template <class Writer>
concept ClockWriter = requires(Writer& writer, const std::string& level, const ClockLimits& limits,
                               Megahertz cap) {
    { Writer::name } -> std::convertible_to<std::string_view>;
    { writer.write_level(level) } -> std::same_as<void>;
    { writer.write_limits(limits) } -> std::same_as<void>;
    { writer.write_determinism(cap) } -> std::same_as<void>;
};

}  // namespace kdvfs::device::amdgpu
