// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>

namespace kdvfs::inline v0_3 {

/// Stands where a clock could stand and means "the board's own choice". Zero is never a clock.
inline constexpr Megahertz auto_clock{0};

/// A cap on the core clock and on the memory clock; either may be `auto_clock`.
/// A cap is soft: the board may run lower, because of its power limit or a light load.
struct ClockPoint {
    Megahertz core = auto_clock;
    Megahertz memory = auto_clock;

    /// Whether both clocks are left to the board.
    [[nodiscard]] constexpr bool is_auto() const {
        return core == auto_clock && memory == auto_clock;
    }

    /// Ordered by core, then memory; auto sorts first. An order for containers, not a judgement.
    friend constexpr bool operator==(ClockPoint, ClockPoint) = default;
    friend constexpr auto operator<=>(ClockPoint, ClockPoint) = default;
};

/// The higher of two caps; auto, being no cap at all, is above every clock.
constexpr Megahertz higher_cap(Megahertz a, Megahertz b) {
    return (a == auto_clock || b == auto_clock) ? auto_clock : std::max(a, b);
}

/// The point that restricts neither of two requests: domain by domain, the higher cap.
constexpr ClockPoint higher_cap(ClockPoint a, ClockPoint b) {
    return {higher_cap(a.core, b.core), higher_cap(a.memory, b.memory)};
}

/// A point that no domain of which is below a floor; `auto_clock` in a floor is none.
constexpr ClockPoint raised_to(ClockPoint point, ClockPoint floor) {
    constexpr auto raise = [](Megahertz clock, Megahertz least) {
        return least == auto_clock ? clock : higher_cap(clock, least);
    };
    return {raise(point.core, floor.core), raise(point.memory, floor.memory)};
}

/// A point that no domain of which is above a ceiling; `auto_clock` in a ceiling is none.
constexpr ClockPoint lowered_to(ClockPoint point, ClockPoint ceiling) {
    constexpr auto lower = [](Megahertz clock, Megahertz most) {
        if (most == auto_clock) return clock;
        return clock == auto_clock ? most : std::min(clock, most);
    };
    return {lower(point.core, ceiling.core), lower(point.memory, ceiling.memory)};
}

/// "1100 MHz" or "auto".
inline std::string to_string(Megahertz clock) {
    return clock == auto_clock ? "auto" : std::to_string(clock.count) + " MHz";
}

/// "core 1100 MHz, memory auto".
inline std::string to_string(ClockPoint point) {
    return "core " + to_string(point.core) + ", memory " + to_string(point.memory);
}

/// One of the operating points that a board's driver has prepared, by its number there: a profile
/// of AMPP (AMD), a workload power profile (NVIDIA). What is in it, power limits mostly, bounds
/// what clocks do; one write switches it for the whole board.
struct PreparedPoint {
    std::uint32_t number = 0;

    friend constexpr bool operator==(PreparedPoint, PreparedPoint) = default;
};

/// "prepared operating point 2".
inline std::string to_string(PreparedPoint point) {
    return "prepared operating point " + std::to_string(point.number);
}

/// What a kernel asks of the clocks.
struct ClockRequest {
    bool asks = false;     ///< false: keep whatever holds
    ClockPoint point{};    ///< the cap asked for, where `asks`
    Duration lasts{};      ///< the plan's figure of how long the kernel lasts, 0 where unknown
    bool ungated = false;  ///< the `not_worth_it` gate has no say: as in sweeps of clocks
    /// So long after the stream has got there, `then` is requested instead of `point`; 0: never.
    Duration after{};
    ClockPoint then{};

    friend constexpr bool operator==(const ClockRequest&, const ClockRequest&) = default;
};

}  // namespace kdvfs::inline v0_3
