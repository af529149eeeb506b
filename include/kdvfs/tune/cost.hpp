// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/units.hpp>

#include <cmath>
#include <optional>
#include <string>

namespace kdvfs::tune {

/// What work costs: time and energy, of one launch or of a whole iteration as the place says.
struct Cost {
    Seconds time{0};
    Joules energy{0};

    Cost& operator+=(const Cost& other) {
        time += other.time;
        energy += other.energy;
        return *this;
    }
    friend Cost operator+(Cost a, const Cost& b) { return a += b; }
    friend Cost operator*(const Cost& a, double factor) {
        return {a.time * factor, a.energy * factor};
    }
    friend bool operator==(const Cost&, const Cost&) = default;
};

/// Percent of change against a baseline, negative = saved; 0 where the baseline is 0.
inline double percent_change(double value, double baseline) {
    return baseline == 0 ? 0 : 100 * (value / baseline - 1);
}
inline double time_percent(const Cost& cost, const Cost& baseline) {
    return percent_change(cost.time.count(), baseline.time.count());
}
inline double energy_percent(const Cost& cost, const Cost& baseline) {
    return percent_change(cost.energy.count, baseline.energy.count);
}

/// What measured costs of one launch can be: no kernel starts and ends within a nanosecond, none
/// runs for four months, and no board draws a megawatt.
inline constexpr Seconds shortest_launch{1e-9};
inline constexpr Seconds longest_launch{1e7};
inline constexpr Watts most_board_power{1e6};

/// What is wrong with a measured cost, as a clause ("the time is negative"); nothing if it is
/// sound.
inline std::optional<std::string> find_fault(const Cost& cost) {
    const double time = cost.time.count();
    if (!std::isfinite(time)) return "the time is not finite";
    if (time <= 0) return "the time is not above zero";
    if (cost.time < shortest_launch) return "the time is below a nanosecond";
    if (cost.time > longest_launch) return "the time is above 1e7 s";
    if (!std::isfinite(cost.energy.count)) return "the energy is not finite";
    if (cost.energy.count < 0) return "the energy is negative";
    if (cost.energy / cost.time > most_board_power)
        return "energy over time is above a megawatt, which no GPU draws";
    return std::nullopt;
}

}  // namespace kdvfs::tune
