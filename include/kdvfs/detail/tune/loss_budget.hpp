// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kdvfs::inline v0_3::tune {

/// Keeps the time that a run loses to slow iterations below a start amount and a share of the time
/// that it would have taken without them, at every moment: says how many iterations at the baseline
/// must go by before some slower ones are affordable. Pure.
class LossBudget {
public:
    /// @param max_slowdown as a fraction, above 0  @param start that may be lost at once
    explicit LossBudget(double max_slowdown, Seconds start = Seconds{0})
        : bound_{max_slowdown}, start_{start} {}

    /// What an iteration takes at the baseline, as known by now.
    void set_baseline(Seconds iteration) { baseline_ = iteration; }
    [[nodiscard]] Seconds baseline() const { return baseline_; }

    void count_iteration() { ++iterations_; }
    [[nodiscard]] std::uint64_t iterations() const { return iterations_; }

    /// So many iterations will take, or took, so long each, instead of `instead_of`.
    void charge(std::uint32_t iterations, Seconds each, Seconds instead_of) {
        lost_ += (each - instead_of) * iterations;
    }

    /// What has been lost so far; below 0 where iterations were faster than at the baseline.
    [[nodiscard]] Seconds lost() const { return lost_; }
    /// What may still be lost now.
    [[nodiscard]] Seconds left() const { return start_ + bound_ * passed() - lost_; }

    /// Iterations at the baseline to be run before `slow` more that take `each`: with them, the run
    /// is within the budget even if nothing follows.
    [[nodiscard]] std::uint32_t wait_before(std::uint32_t slow, Seconds each) const {
        const Seconds extra = lost_ - start_ + (each - baseline_) * slow;
        const double needed = extra / (baseline_ * bound_);
        const double missing = std::ceil(needed) - static_cast<double>(iterations_) - slow;
        constexpr double most = std::numeric_limits<std::uint32_t>::max();
        return static_cast<std::uint32_t>(std::clamp(missing, 0.0, most));
    }

    /// Of the run so far, as a fraction.
    [[nodiscard]] double slowdown() const { return passed() > Seconds{0} ? lost_ / passed() : 0; }

private:
    [[nodiscard]] Seconds passed() const { return baseline_ * static_cast<double>(iterations_); }

    double bound_;
    Seconds start_;
    Seconds baseline_{0};
    Seconds lost_{0};
    std::uint64_t iterations_ = 0;
};

}  // namespace kdvfs::inline v0_3::tune
