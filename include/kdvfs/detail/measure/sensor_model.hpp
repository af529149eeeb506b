// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>

namespace kdvfs::inline v0_3::measure {

/// One hypothesis of how a reading sees the power of the board; all times in seconds.
/// docs/measuring.md has the equations.
struct Sensor {
    double delay =
        0;  ///< from the moment that a reading shows to its timestamp; < 0: stamped early
    double memory = 0;  ///< time constant of a filter of first order; 0: none
    double window = 0;  ///< length of a mean; 0: none. A row of a counter is a mean over its length
    double rise = 0;    ///< time constant with which the board's power follows a change of the load
};

/// The response of a sensor to a load that begins: mean over `window` of a filter with the time
/// constants `memory` and `rise`.
class StepResponse {
public:
    /// @param window seconds of the mean; 0: the filter's value itself
    StepResponse(const Sensor& sensor, double window)
        : memory_{std::max(sensor.memory, shortest)},
          rise_{std::max(sensor.rise, shortest)},
          window_{window} {
        if (std::abs(memory_ - rise_) < shortest) memory_ = rise_ + shortest;
    }

    /// What a reading shows of a watt that is drawn from `age` seconds before the moment that it
    /// shows until then. 0 to 1.
    [[nodiscard]] double operator()(double age) const {
        if (age <= 0) return 0;
        if (window_ <= 0) return value(age);
        return (integral(age) - integral(age - window_)) / window_;
    }

private:
    static constexpr double shortest = 1e-7;  // s: far below what any reading resolves

    [[nodiscard]] double value(double age) const {
        return 1 - (memory_ * decayed(age / memory_) - rise_ * decayed(age / rise_)) /
                       (memory_ - rise_);
    }
    [[nodiscard]] double integral(double age) const {
        if (age <= 0) return 0;
        return age - memory_ - rise_ +
               (memory_ * memory_ * decayed(age / memory_) - rise_ * rise_ * decayed(age / rise_)) /
                   (memory_ - rise_);
    }
    [[nodiscard]] static double decayed(double ages) { return ages < 40 ? std::exp(-ages) : 0; }

    double memory_;
    double rise_;
    double window_;
};

}  // namespace kdvfs::inline v0_3::measure
