// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/units.hpp>

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

}  // namespace kdvfs::tune
