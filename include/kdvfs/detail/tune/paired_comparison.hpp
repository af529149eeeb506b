// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

namespace kdvfs::inline v0_3::tune {

/// A mean with its 95 % interval, in percent of change; negative = saved. The ends are infinite
/// where the interval is not known.
struct PercentInterval {
    double mean = 0;
    double low = 0;
    double high = 0;

    [[nodiscard]] bool is_known() const { return std::isfinite(high - low); }
    [[nodiscard]] bool contains(double percent) const { return low <= percent && percent <= high; }
};

namespace detail {

/// Half the width of an interval around a mean that holds the true mean after every value at once
/// with 95 % probability, in standard deviations of the values: a confidence sequence. Inverts the
/// Bayesian t-test with a normal prior on the effect size, which is a test martingale under every
/// variance (Gonen et al., The American Statistician 59, 2005; Perez-Ortiz et al., "E-statistics,
/// group invariance and anytime-valid testing", Annals of Statistics 52, 2024; Wang and Ramdas,
/// "Anytime-valid t-tests", 2024). Exact for normal values from the second on, asymptotic for
/// others. Infinite where so few values say nothing.
/// @param prior_variance of the effect size: large values are narrow early, small ones late
inline double t_sequence_half_width(std::size_t count, double prior_variance) {
    constexpr double alpha = 0.05;
    if (count < 2) return std::numeric_limits<double>::infinity();
    const auto n = static_cast<double>(count);
    const double mixture = 1 + n * prior_variance;
    const double root = std::pow(mixture / (alpha * alpha), 1 / n);
    if (root >= mixture) return std::numeric_limits<double>::infinity();
    return std::sqrt((n - 1) * (root - 1) / (1 - root / mixture) / n);
}

/// Compares two ways of running a program while it runs: from pairs of neighbouring blocks in
/// random order, the mean change and an interval that holds the truth at every moment with 95 %
/// probability, however often it is looked at (`t_sequence_half_width`). What drifts slowly is
/// alike in both blocks of a pair. Pure.
class PairedComparison {
public:
    /// Fewer pairs say nothing.
    static constexpr std::size_t fewest_pairs = 8;

    /// @param changed what a block cost in the way that is judged, above 0
    /// @param before what its neighbour cost in the other way, above 0
    void add(double changed, double before) {
        const double value = std::log(changed / before);
        ++pairs_;
        const double from_mean = value - mean_;
        mean_ += from_mean / static_cast<double>(pairs_);
        squares_ += from_mean * (value - mean_);
    }

    [[nodiscard]] std::size_t pairs() const { return pairs_; }

    /// The mean change so far in percent, whatever it is worth.
    [[nodiscard]] double mean() const { return percent(mean_); }
    /// The standard deviation of `mean`, in percent. @pre two pairs
    [[nodiscard]] double error() const {
        const auto n = static_cast<double>(pairs_);
        return percent(std::sqrt(squares_ / (n - 1) / n));
    }
    /// The mean change so far in percent with its interval; nothing from fewer than `fewest_pairs`.
    [[nodiscard]] std::optional<PercentInterval> change() const {
        const double width = t_sequence_half_width(pairs_, prior_variance);
        if (pairs_ < fewest_pairs || !std::isfinite(width)) return std::nullopt;
        const double half = width * std::sqrt(squares_ / static_cast<double>(pairs_ - 1));
        return PercentInterval{percent(mean_), percent(mean_ - half), percent(mean_ + half)};
    }

private:
    static constexpr double prior_variance = 0.3;  ///< narrowest for 30 to 100 pairs

    static double percent(double log_ratio) { return 100 * std::expm1(log_ratio); }

    std::size_t pairs_ = 0;
    double mean_ = 0;     // of the logarithms of ratios
    double squares_ = 0;  // of what is off the mean
};

}  // namespace detail
}  // namespace kdvfs::inline v0_3::tune
