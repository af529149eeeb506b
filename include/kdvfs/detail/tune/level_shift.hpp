// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kdvfs::inline v0_3::tune::detail {

/// Finds out that a positive quantity, such as the time of an iteration, has moved to another
/// level: a two-sided cumulative sum (Page, Biometrika 41, 1954) of its logarithm, in standard
/// deviations of what is usual. A single value adds little however far off it is: checkpoints,
/// validation steps and stalls are no change of level. The usual level follows slow drift. Pure.
class LevelShift {
public:
    /// So many values say what is usual; none before is judged.
    static constexpr std::size_t learned_from = 16;

    /// @returns whether the level has moved
    bool add(double value) {
        const double x = std::log(value);
        if (count_ < learned_from) {
            learn(x);
            return false;
        }
        const double off = std::clamp((x - mean_) / deviation(), -most, most);
        above_ = std::max(0.0, above_ + off - slack);
        below_ = std::max(0.0, below_ - off - slack);
        if (above_ > limit || below_ > limit) return true;
        constexpr double slow = 1.0 / 64;
        mean_ += slow * deviation() * std::clamp(off, -slack, slack);
        const double by = (x - mean_) * (x - mean_);
        variance_ +=
            slow * (std::min(by, usual_most * deviation() * deviation()) / kept - variance_);
        return false;
    }

    /// Whether it knows what is usual.
    [[nodiscard]] bool has_level() const { return count_ >= learned_from; }
    /// What is usual. @pre `has_level()`
    [[nodiscard]] double level() const { return std::exp(mean_); }
    /// Whether a mean of `count` values is as usual, to within what they scatter.
    [[nodiscard]] bool is_usual(double value, std::size_t count) const {
        const double tolerance =
            std::max(least_shift, 3 * std::sqrt(variance_) / std::sqrt(static_cast<double>(count)));
        return std::abs(std::log(value) - mean_) <= tolerance;
    }
    /// Forgets what has added up since the level was last usual, and keeps the level.
    void settle() { above_ = below_ = 0; }

private:
    static constexpr double slack = 1;  ///< deviations: half of the least shift to be found
    static constexpr double most = 4;   ///< deviations that a single value counts for
    static constexpr double limit = 9;  ///< about e^(2 limit) values between false alarms
    static constexpr double usual_most = 9;
    static constexpr double kept = 0.973;  ///< of a normal variance, after `usual_most`
    /// Shifts of twice that are found, none below: a board that heats up moves by a percent or two.
    static constexpr double least_deviation = 0.01;
    static constexpr double least_shift = 0.005;  ///< of a mean, to be another level

    void learn(double x) {
        ++count_;
        const double from_mean = x - mean_;
        mean_ += from_mean / static_cast<double>(count_);
        squares_ += from_mean * (x - mean_);
        if (count_ == learned_from) variance_ = squares_ / (learned_from - 1);
    }
    [[nodiscard]] double deviation() const {
        return std::max(std::sqrt(variance_), least_deviation);
    }

    std::size_t count_ = 0;
    double mean_ = 0;  // of logarithms
    double squares_ = 0;
    double variance_ = 0;
    double above_ = 0;
    double below_ = 0;
};

}  // namespace kdvfs::inline v0_3::tune::detail
