// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>

namespace kdvfs::inline v0_3::device {

/// How a board holds its power limit. Firmware moves a ceiling of the core clock by what the board
/// draws,
///     d ln(ceiling) / dt = rate * (1 - power / limit),
/// between the lowest and the highest clock. So a short hungry kernel draws more than the limit,
/// the mean over some tens of milliseconds is the limit, and what one kernel does not draw the next
/// one can.
///
/// The law and its only parameter are fitted to GEMMs of 50 ms to 5 s at the limit of H100 and H200
/// boards (`bench/boards/averaging_limit`, which prints its errors). Those boards also swing by a
/// tenth of their power with a period of about a second, which the law does not have.
struct PowerLimiter {
    Watts limit{};
    double rate = 0;  ///< per second
    double lowest_mhz = 0;
    double top_mhz = 0;  ///< where the ceiling is of a board that has drawn little

    /// Of H100 and H200 (SXM, 700 W), where a kernel's power goes with the clock to the power
    /// of 2.5; what recordings tell is the product of the two, 27 to 33 per second.
    static constexpr double measured_rate = 11;
};

/// The ceiling at a moment.
class ClockCeiling {
public:
    /// A board that has drawn little.
    explicit ClockCeiling(const PowerLimiter& limiter) : mhz_{limiter.top_mhz} {}
    /// One that has come down, or up, to some clock.
    explicit ClockCeiling(double mhz) : mhz_{mhz} {}

    [[nodiscard]] double mhz() const { return mhz_; }

    /// The board draws a power for some time, in which the ceiling moves by under a percent or so.
    void pass(const PowerLimiter& limiter, Watts power, Seconds time) {
        const double spare = 1 - power.count / limiter.limit.count;
        mhz_ = std::clamp(mhz_ * std::exp(limiter.rate * spare * time.count()), limiter.lowest_mhz,
                          limiter.top_mhz);
    }

private:
    double mhz_;
};

}  // namespace kdvfs::inline v0_3::device
