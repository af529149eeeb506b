// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/time.hpp>

#include <compare>
#include <cstdint>

namespace kdvfs {

/// A kernel and variant as a small number; a `measure::KernelTable` knows the name behind it.
struct KernelId {
    std::uint32_t value = 0;

    friend constexpr bool operator==(KernelId, KernelId) = default;
    friend constexpr auto operator<=>(KernelId, KernelId) = default;
};

/// A lane of stream work as a small number, in order of first use; 0 is the first.
struct LaneId {
    std::uint32_t value = 0;

    friend constexpr bool operator==(LaneId, LaneId) = default;
    friend constexpr auto operator<=>(LaneId, LaneId) = default;
};

/// One run of a scope's own work on the GPU: between its two markers, less what nested scopes ran.
/// A scope with others nested in it has several, of which the last `ends_scope`.
struct KernelInterval {
    KernelId kernel{};
    LaneId lane{};
    ClockPoint asked{};             ///< what the scope asked for
    TimePoint start{};              ///< when the stream passed the marker before it
    TimePoint end{};                ///< when the stream passed the marker behind it
    std::uint64_t core_cycles = 0;  ///< core clock cycles between the two, 0 where not counted
    bool ends_scope = true;         ///< false for a stretch that a nested scope has cut short
};

/// The core clock that really held over an interval, in MHz; `auto_clock` where not counted.
constexpr Megahertz held_clock(const KernelInterval& interval) {
    const auto nanoseconds = (interval.end - interval.start).count();
    if (interval.core_cycles == 0 || nanoseconds <= 0) return auto_clock;
    return {static_cast<std::uint32_t>(
        static_cast<double>(interval.core_cycles) * 1e3 / static_cast<double>(nanoseconds) + 0.5)};
}

}  // namespace kdvfs
