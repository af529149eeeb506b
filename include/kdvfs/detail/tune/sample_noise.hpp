// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

/// The noise of samples: heavy tails, and what samples of one sweep have in common.
namespace kdvfs::inline v0_3::tune::detail {

/// Student's t for the noise of a log, by its degrees of freedom (Lange, Little and Taylor, Journal
/// of the American Statistical Association 84, 1989): with 4, an outlier counts little, and where
/// there is none hardly anything is lost.
class HeavyTails {
public:
    /// What a deviation weighs beside one of normal noise; `square` is of its expected value.
    static double weight(double square, double scale_square) {
        return scale_square > 0 ? (degrees + 1) / (degrees + square / scale_square) : 1;
    }
    /// By how much less than normal noise of the same scale a weighted sample tells.
    static constexpr double efficiency() { return (degrees + 1) / (degrees + 3); }

    static constexpr double degrees = 4;
};

/// One sample's log, and what variance of it was stated when it was measured.
struct LogSample {
    double value = 0;
    double stated = 0;
    double apart = stated;    ///< of what the sample says beside its block's total
    std::uint32_t sweep = 0;  ///< that it belongs to: the sample's index
};

/// One quantity of one kernel: samples by point of the grid.
struct KernelSamples {
    std::vector<std::vector<LogSample>> at;
    double scale_square = 0;  ///< of noise beyond what was stated
};

/// Noise of samples: squares of what they are off, and what these are found from.
struct NoiseSum {
    double squares = 0;
    double freedom = 0;

    NoiseSum& operator+=(const NoiseSum& other) {
        squares += other.squares;
        freedom += other.freedom;
        return *this;
    }
    [[nodiscard]] double value() const { return freedom > 0 ? squares / freedom : 0; }
};

/// The median; of an even number, the upper one of the two.
inline double middle_of(std::span<const LogSample> samples) {
    std::vector<double> values;
    for (const LogSample& sample : samples) values.push_back(sample.value);
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// The samples of a kernel by sweep and point, where each point has one of each sweep; else none.
/// Blocks in random order, as `Sweeping` measures them, are no sweeps along the clocks.
inline std::vector<std::vector<LogSample*>> by_sweep(KernelSamples& kernel) {
    std::map<std::uint32_t, std::vector<LogSample*>> sweeps;
    std::size_t points = 0;
    for (auto& at : kernel.at) {
        points += at.empty() ? 0 : 1;
        for (LogSample& sample : at) sweeps[sample.sweep].push_back(&sample);
    }
    std::vector<std::vector<LogSample*>> found;
    for (auto& [sweep, samples] : sweeps) {
        if (samples.size() != points) return {};
        found.push_back(std::move(samples));
    }
    return found.size() > 1 && points > 2 ? found : std::vector<std::vector<LogSample*>>{};
}

/// Takes out of samples what all clocks of a kernel have in common in a sweep (a warmer board): it
/// says nothing of one clock against another.
inline void remove_levels(std::vector<KernelSamples>& kernels) {
    for (KernelSamples& kernel : kernels) {
        const auto sweeps = by_sweep(kernel);
        if (sweeps.empty()) continue;
        const std::size_t points = sweeps.front().size();
        std::vector<double> middles(points);
        for (const auto& sweep : sweeps)
            for (std::size_t p = 0; p < points; ++p)
                middles[p] += sweep[p]->value / static_cast<double>(sweeps.size());
        for (const auto& sweep : sweeps) {
            std::vector<LogSample> off;
            for (std::size_t p = 0; p < points; ++p) off.push_back({sweep[p]->value - middles[p]});
            const double level = middle_of(off);
            for (LogSample* sample : sweep) sample->value -= level;
        }
    }
}

/// What samples of one sweep have in common beside its level, found by the correlations of what
/// they are off from the means of their points.
struct SweepLuck {
    double neighbours = 0;  ///< correlation of neighbouring clocks of a kernel
    /// By how much more a mean over many neighbouring clocks may be off than if each had luck of
    /// its own, as a factor of its variance: 1 + 2 * the sum of all correlations.
    double variance = 1;
    double kernels = 0;  ///< correlation of kernels at one clock

    SweepLuck() = default;
    explicit SweepLuck(std::vector<KernelSamples>& all) {
        constexpr double farthest = 3;  // outliers have no neighbours
        constexpr std::size_t lags = 48;
        std::vector<std::vector<std::vector<double>>> off;  // by kernel, sweep and point
        for (KernelSamples& kernel : all) {
            const auto sweeps = by_sweep(kernel);
            if (sweeps.empty() || !(kernel.scale_square > 0)) continue;
            auto& own = off.emplace_back(sweeps.size(), std::vector<double>(sweeps[0].size()));
            for (std::size_t p = 0; p < sweeps[0].size(); ++p) {
                double mean = 0;
                for (const auto& sweep : sweeps)
                    mean += sweep[p]->value / static_cast<double>(sweeps.size());
                for (std::size_t s = 0; s < sweeps.size(); ++s)
                    own[s][p] =
                        std::clamp((sweeps[s][p]->value - mean) / std::sqrt(kernel.scale_square),
                                   -farthest, farthest);
            }
        }
        double freedom = 0;
        std::vector<NoiseSum> products(lags);
        for (const auto& kernel : off) {
            for (const auto& sweep : kernel)
                for (std::size_t l = 0; l < std::min(lags, sweep.size() / 2); ++l)
                    for (std::size_t p = 0; p + l < sweep.size(); ++p)
                        products[l] += {sweep[p] * sweep[p + l], 1};
            freedom += static_cast<double>((kernel.size() - 1) * kernel[0].size());
        }
        if (!(products[0].squares > 0)) return;
        kernels = correlation_of_kernels(off);
        const auto count = static_cast<double>(off.size());
        // Kernels that are off alike tell the same.
        const double chance = 3 / std::sqrt(freedom / (1 + (count - 1) * kernels));
        for (std::size_t l = 1; l < lags; ++l) {
            const double correlation = products[l].value() / products[0].value();
            if (correlation < chance) break;
            if (l == 1) neighbours = correlation;
            variance += 2 * correlation;
        }
    }

    [[nodiscard]] bool is_own() const { return neighbours <= 0 && kernels <= 0; }

private:
    static double correlation_of_kernels(const std::vector<std::vector<std::vector<double>>>& off) {
        double pairs = 0;
        double squares = 0;
        double freedom = 0;
        for (std::size_t s = 0; s < off[0].size(); ++s)
            for (std::size_t p = 0; p < off[0][0].size(); ++p) {
                double sum = 0;
                double own = 0;
                for (const auto& kernel : off) {
                    if (s >= kernel.size() || p >= kernel[s].size()) continue;
                    sum += kernel[s][p];
                    own += kernel[s][p] * kernel[s][p];
                }
                pairs += sum * sum - own;
                squares += own;
                ++freedom;
            }
        if (off.size() < 2 || !(squares > 0)) return 0;
        const double found = pairs / squares / static_cast<double>(off.size() - 1);
        return found * std::sqrt(freedom) < 3.0 / static_cast<double>(off.size()) ? 0 : found;
    }
};

/// Draws noise as samples of sweeps have it, in scales of their kernels.
class LuckDraws {
public:
    LuckDraws(const SweepLuck& luck, std::size_t points, std::uint64_t seed)
        : luck_{luck}, points_{points}, random_{seed} {
        if (luck.neighbours <= 0) return;
        memory_ = std::clamp(1 - 2 * luck.neighbours / (luck.variance - 1), luck.neighbours, 0.995);
        drift_ = std::min(luck.neighbours / memory_, 0.98);
    }
    /// The next kernel has luck of its own.
    void begin_kernel() { own_.clear(); }

    double draw(std::size_t point, std::uint32_t sweep) {
        if (luck_.is_own()) return tails_(random_);
        const double kernels = std::clamp(luck_.kernels, 0.0, 0.95);
        return std::sqrt(kernels) * of(common_, sweep)[point] +
               std::sqrt(1 - kernels) * of(own_, sweep)[point];
    }

private:
    using Walks = std::map<std::uint32_t, std::vector<double>>;  // by sweep

    const std::vector<double>& of(Walks& walks, std::uint32_t sweep) {
        const auto [known, is_new] = walks.try_emplace(sweep);
        if (!is_new) return known->second;
        double now = normal_(random_);
        for (std::size_t p = 0; p < points_; ++p) {
            known->second.push_back(std::sqrt(drift_) * now +
                                    std::sqrt(1 - drift_) * tails_(random_));
            now = memory_ * now + std::sqrt(1 - memory_ * memory_) * normal_(random_);
        }
        return known->second;
    }

    SweepLuck luck_;
    std::size_t points_;
    double memory_ = 0;
    double drift_ = 0;  ///< share of the variance
    std::mt19937_64 random_;
    std::normal_distribution<double> normal_;
    std::student_t_distribution<double> tails_{HeavyTails::degrees};
    Walks common_;
    Walks own_;
};

}  // namespace kdvfs::inline v0_3::tune::detail
