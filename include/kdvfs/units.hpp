// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>

#include <chrono>
#include <compare>
#include <cstdint>

namespace kdvfs::inline v0_3 {

/// A clock frequency in megahertz, the unit in which vendors list clocks.
/// Structural, so that it can be a template argument: `CapClock<1100_MHz>`.
struct Megahertz {
    std::uint32_t count = 0;

    // Written out, here and in every such type: nvcc 13 does not emit the == that <=> implies.
    friend constexpr bool operator==(Megahertz, Megahertz) = default;
    friend constexpr auto operator<=>(Megahertz, Megahertz) = default;
};

/// Energy in joules.
struct Joules {
    double count = 0;

    constexpr Joules& operator+=(Joules other) {
        count += other.count;
        return *this;
    }
    friend constexpr bool operator==(Joules, Joules) = default;
    friend constexpr auto operator<=>(Joules, Joules) = default;
};

/// Power in watts.
struct Watts {
    double count = 0;

    friend constexpr bool operator==(Watts, Watts) = default;
    friend constexpr auto operator<=>(Watts, Watts) = default;
};

/// A duration in seconds, for physics; schedules and timestamps use integer nanoseconds.
using Seconds = std::chrono::duration<double>;

constexpr Joules operator+(Joules a, Joules b) { return {a.count + b.count}; }
constexpr Joules operator-(Joules a, Joules b) { return {a.count - b.count}; }
constexpr Joules operator*(Joules a, double factor) { return {a.count * factor}; }
constexpr double operator/(Joules a, Joules b) { return a.count / b.count; }
constexpr Watts operator+(Watts a, Watts b) { return {a.count + b.count}; }
constexpr Watts operator-(Watts a, Watts b) { return {a.count - b.count}; }
constexpr Watts operator*(Watts a, double factor) { return {a.count * factor}; }
constexpr Joules operator*(Watts power, Seconds time) { return {power.count * time.count()}; }
constexpr Watts operator/(Joules energy, Seconds time) { return {energy.count / time.count()}; }

inline namespace literals {

/// `1100_MHz`. A zero or absurd clock does not compile.
consteval Megahertz operator""_MHz(unsigned long long megahertz) {
    if (megahertz == 0 || megahertz > 100'000) {
        throw "a clock lies between 1 and 100000 MHz; the board's own choice is kdvfs::auto_clock";
    }
    return {static_cast<std::uint32_t>(megahertz)};
}

}  // namespace literals

using Duration = std::chrono::nanoseconds;

/// The one time axis of a process: CLOCK_MONOTONIC where GPUs are real, virtual time on the
/// simulated GPU. It has no `now()`: whoever needs the time is handed it, so that controller and
/// sampler stay pure and testable.
struct Timeline {
    using rep = Duration::rep;
    using period = Duration::period;
    using duration = Duration;
    using time_point = std::chrono::time_point<Timeline>;
    static constexpr bool is_steady = true;
};

using TimePoint = Timeline::time_point;

}  // namespace kdvfs::inline v0_3
