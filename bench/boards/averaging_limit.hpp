// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/power_limiter.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

/// The clock of a board at its power limit, foretold for one kernel after the other.
namespace power_limit {

/// A kernel by itself, for seconds.
struct Kernel {
    double watts = 0;
    double mhz = 0;        ///< the clock that holds
    bool limited = false;  ///< by the power limit
};

/// What is fitted to recordings.
struct Law {
    double rate = 7;      ///< `PowerLimiter::rate`
    double exponent = 3;  ///< of a kernel's watts by clock, near the one that holds
};

/// A board that runs one kernel after the other.
class Board {
public:
    Board(const Law& law, double limit_watts, double top_mhz)
        : exponent_{law.exponent},
          limiter_{{limit_watts}, law.rate, 0, top_mhz},
          ceiling_{limiter_} {}

    /// Runs a kernel for so long. @returns its mean clock in MHz
    double run(const Kernel& kernel, double seconds) {
        const auto steps = static_cast<std::size_t>(std::clamp(seconds / step_s, 4.0, 3000.0));
        const double step = seconds / static_cast<double>(steps);
        double sum = 0;
        for (std::size_t i = 0; i < steps; ++i) {
            const double watts = kernel.watts * std::pow(ceiling_.mhz() / kernel.mhz, exponent_);
            ceiling_.pass(limiter_, {kernel.limited ? watts : kernel.watts}, kdvfs::Seconds{step});
            sum += ceiling_.mhz();
        }
        return kernel.limited ? sum / static_cast<double>(steps) : kernel.mhz;
    }

private:
    static constexpr double step_s = 0.002;

    double exponent_;
    kdvfs::device::PowerLimiter limiter_;
    kdvfs::device::ClockCeiling ceiling_;
};

}  // namespace power_limit
