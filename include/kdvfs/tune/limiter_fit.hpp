// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/power_limiter.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// Runs of one kernel after the other on a board at its power limit, as a measure-only run has
/// them: timestamps say how long, cycle counters at which clock.
struct LimitedRun {
    std::size_t kernel = 0;
    Seconds rest{0};  ///< before it, without work
    Seconds time{0};
    double mhz = 0;  ///< mean
};

/// What a board draws by core clock while it runs a kernel, in MHz; or without work.
using PowerByClock = std::function<Watts(double mhz)>;

/// The mean clocks of runs under a limiter, in MHz. The board has drawn little before the first.
/// @param kernels by the runs' numbers
inline std::vector<double> clocks_at_limit(std::span<const PowerByClock> kernels,
                                           const PowerByClock& idle,
                                           std::span<const LimitedRun> runs,
                                           const device::PowerLimiter& limiter) {
    constexpr Seconds longest_step{1e-3};
    device::ClockCeiling ceiling{limiter};
    const auto pass = [&](const PowerByClock& power, Seconds time) {
        const double steps = std::max(1.0, std::ceil(time / longest_step));
        double sum = 0;
        for (double i = 0; i < steps; ++i) {
            sum += ceiling.mhz();
            ceiling.pass(limiter, power(ceiling.mhz()), time / steps);
        }
        return sum / steps;
    };
    std::vector<double> clocks;
    for (const LimitedRun& run : runs) {
        if (run.rest > Seconds{0}) pass(idle, run.rest);
        clocks.push_back(pass(kernels[run.kernel], run.time));
    }
    return clocks;
}

/// Finds a limiter's rate from runs at the limit: the one with the least mean error of their
/// clocks, from 0.3 to 100 per second, which is a mean over about a second down to some
/// milliseconds.
/// @param limiter its limit and its clocks
/// @param counts which runs to judge by; those of kernels that the limit never holds back say
/// nothing
/// @throws Error (invalid_input) where no run counts
inline device::PowerLimiter fit_limiter(std::span<const PowerByClock> kernels,
                                        const PowerByClock& idle, std::span<const LimitedRun> runs,
                                        device::PowerLimiter limiter,
                                        const std::function<bool(const LimitedRun&)>& counts) {
    if (std::none_of(runs.begin(), runs.end(), counts))
        throw Error{Errc::invalid_input,
                    {"find how fast a power limit acts", "the runs", "none is at the limit",
                     "run a kernel that draws more than the limit, for 20 ms to some seconds"}};
    const auto error = [&](double log_rate) {
        limiter.rate = std::exp(log_rate);
        const std::vector<double> clocks = clocks_at_limit(kernels, idle, runs, limiter);
        double sum = 0;
        for (std::size_t i = 0; i < runs.size(); ++i)
            if (counts(runs[i])) sum += std::abs(clocks[i] / runs[i].mhz - 1);
        return sum;
    };
    const double low = std::log(0.3);
    const double high = std::log(100.0);
    constexpr int coarse = 30;
    double best = low;
    double least = error(low);
    double step = (high - low) / coarse;
    for (int i = 1; i <= coarse; ++i)
        if (const double its = error(low + i * step); its < least)
            least = its, best = low + i * step;
    for (step /= 2; step > 1e-3; step /= 2)
        for (const double other : {best - step, best + step})
            if (const double its = error(other); its < least) least = its, best = other;
    limiter.rate = std::exp(best);
    return limiter;
}

}  // namespace kdvfs::inline v0_3::tune
