// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kdvfs::tune {

/// Keeps a swept run's slowdown below a bound: says how many iterations at the baseline must go by
/// before some slower ones are affordable. Pure.
class SweepPace {
public:
    /// @param max_slowdown as a fraction, above 0
    explicit SweepPace(double max_slowdown) : bound_{max_slowdown} {}

    /// What an iteration takes at the baseline, as known by now.
    void set_baseline(Seconds iteration) { baseline_ = iteration; }
    [[nodiscard]] Seconds baseline() const { return baseline_; }

    void count_iteration() { ++iterations_; }
    [[nodiscard]] std::uint64_t iterations() const { return iterations_; }

    /// So many iterations will take, or took, so long each, instead of `instead_of`.
    void charge(std::uint32_t iterations, Seconds each, Seconds instead_of) {
        extra_ += (each - instead_of) * iterations;
    }

    /// Iterations at the baseline to be run before `slow` more that take `each`: with them, the run
    /// is within the bound even if nothing follows.
    [[nodiscard]] std::uint32_t wait_before(std::uint32_t slow, Seconds each) const {
        const Seconds extra = extra_ + (each - baseline_) * slow;
        const double needed = extra / (baseline_ * bound_);
        const double missing = std::ceil(needed) - static_cast<double>(iterations_) - slow;
        constexpr double most = std::numeric_limits<std::uint32_t>::max();
        return static_cast<std::uint32_t>(std::clamp(missing, 0.0, most));
    }

    /// Of the run so far, as a fraction.
    [[nodiscard]] double slowdown() const {
        return iterations_ == 0 || baseline_ <= Seconds{0}
                   ? 0
                   : extra_ / (baseline_ * static_cast<double>(iterations_));
    }

private:
    double bound_;
    Seconds baseline_{0};
    Seconds extra_{0};
    std::uint64_t iterations_ = 0;
};

}  // namespace kdvfs::tune
