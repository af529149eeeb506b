// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

/// The clock of a board at its power limit: firmware lets a short hungry kernel draw more than the
/// limit and slows it down by and by.
namespace power_limit {

/// How a board follows its limit. The clock approaches a target with one time constant downwards
/// and one upwards; the target is the clock at which the kernel draws the limit, raised by what the
/// board has drawn below the limit on average.
struct Law {
    double down_s = 0.02;   ///< time constant of a clock that falls
    double up_s = 0.05;     ///< of one that rises
    double window_s = 0.8;  ///< of the average of the power
    double gain = 0.15;     ///< share of clock for each share of power below the limit
};

/// A kernel by itself, for seconds.
struct Kernel {
    double watts = 0;
    double mhz = 0;        ///< the clock that holds
    bool limited = false;  ///< by the power limit
};

/// A board that runs one kernel after the other.
class Board {
public:
    Board(const Law& law, double limit_watts, double idle_watts, double top_mhz)
        : law_{law}, limit_{limit_watts}, top_{top_mhz}, average_{idle_watts}, mhz_{top_mhz} {}

    /// Runs a kernel for so long. @returns its mean clock in MHz
    double run(const Kernel& kernel, double seconds) {
        const auto steps = static_cast<std::size_t>(std::clamp(seconds / step_s, 4.0, 1000.0));
        const double step = seconds / static_cast<double>(steps);
        double sum = 0;
        for (std::size_t i = 0; i < steps; ++i) {
            const double target =
                kernel.limited
                    ? std::min(kernel.mhz * (1 + law_.gain * (limit_ - average_) / limit_), top_)
                    : top_;
            const double constant = target < mhz_ ? law_.down_s : law_.up_s;
            const double left = std::exp(-step / constant);
            const double mean = target + (mhz_ - target) * (1 - left) * constant / step;
            mhz_ = target + (mhz_ - target) * left;
            const double watts =
                kernel.watts * (kernel.limited ? std::pow(mean / kernel.mhz, exponent) : 1);
            average_ = watts + (average_ - watts) * std::exp(-step / law_.window_s);
            sum += mean;
        }
        return kernel.limited ? sum / static_cast<double>(steps) : kernel.mhz;
    }

private:
    static constexpr double step_s = 0.004;
    /// Of power by clock: assumption, as Lit Silicon (watts as f^2.2).
    static constexpr double exponent = 2.2;

    Law law_;
    double limit_;
    double top_;
    double average_;
    double mhz_;
};

}  // namespace power_limit
