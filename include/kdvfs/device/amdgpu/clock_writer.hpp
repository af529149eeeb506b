// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>

#include <concepts>
#include <string>
#include <string_view>

namespace kdvfs::device::amdgpu {

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
                               Megahertz cap, unsigned highest_level) {
    { Writer::name } -> std::convertible_to<std::string_view>;
    { writer.write_level(level) } -> std::same_as<void>;
    { writer.write_limits(limits) } -> std::same_as<void>;
    { writer.write_determinism(cap) } -> std::same_as<void>;
    { writer.write_levels_up_to(highest_level) } -> std::same_as<void>;
};

}  // namespace kdvfs::device::amdgpu
