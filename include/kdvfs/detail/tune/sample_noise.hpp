// SPDX-License-Identifier: MIT
#pragma once

#include <Eigen/Core>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <vector>

/// What samples of one sweep have in common: a warmer board or a later driver moves all of them,
/// and says nothing of one clock against another.
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
    std::uint32_t index = 0;  ///< of the sweep that it belongs to, as in the profile
};

/// One quantity of one kernel: samples by point of the grid.
struct KernelSamples {
    std::vector<std::vector<LogSample>> at;
    double scale_square = 0;  ///< of noise beyond what was stated
};

/// The levels of one kernel's sweeps against each other: an analysis of variance in two ways, by
/// point and by sweep.
struct SweepLevels {
    std::map<std::uint32_t, double> of;  ///< by sweep, around zero
    double points = 0;                   ///< at which a sweep was compared with others, on average
    double ratio = 1;  ///< mean square of the levels against that of chance; 1 where there is none

    explicit SweepLevels(const KernelSamples& kernel) {
        std::map<std::uint32_t, double> compared;
        double samples = 0;
        double middles = 0;
        for (const auto& at : kernel.at) {
            if (at.size() < 2) continue;
            for (const LogSample& sample : at) compared[sample.index] += 1;
            samples += static_cast<double>(at.size());
            middles += 1;
        }
        const auto sweeps = static_cast<double>(compared.size());
        const double freedom = samples - middles - (sweeps - 1);
        if (sweeps < 2 || freedom < 1) return;
        for (const auto& [sweep, count] : compared) of[sweep] = 0;
        double squares = 0;
        // Where sweeps lack points, levels and middles are found in turns.
        constexpr int turns = 20;
        for (int turn = 0; turn < turns; ++turn) {
            std::map<std::uint32_t, double> sums;
            squares = 0;
            for (const auto& at : kernel.at) {
                if (at.size() < 2) continue;
                double middle = 0;
                for (const LogSample& sample : at) middle += sample.value - of[sample.index];
                middle /= static_cast<double>(at.size());
                for (const LogSample& sample : at) {
                    const double off = sample.value - middle;
                    sums[sample.index] += off;
                    squares += (off - of[sample.index]) * (off - of[sample.index]);
                }
            }
            for (auto& [sweep, level] : of) level = sums[sweep] / compared[sweep];
        }
        points = samples / sweeps;
        double between = 0;
        for (const auto& [sweep, level] : of) between += compared[sweep] * level * level;
        if (squares > 0) ratio = between / (sweeps - 1) / (squares / freedom);
    }
};

/// Takes the levels of sweeps out of samples, as far as all kernels together show that sweeps have
/// any (the best linear unbiased prediction). Where every sweep has all points, this leaves the
/// mean of every point as it is but for a constant.
/// @returns the variance of levels against that of what is left
inline double remove_levels(std::vector<KernelSamples>& kernels) {
    double excess = 0;
    double counted = 0;
    std::vector<SweepLevels> levels;
    for (const KernelSamples& kernel : kernels) {
        const SweepLevels& found = levels.emplace_back(kernel);
        if (found.of.empty()) continue;
        excess += (found.ratio - 1) / found.points;
        counted += 1;
    }
    const double ratio = counted > 0 ? std::max(0.0, excess / counted) : 0;
    for (std::size_t k = 0; k < kernels.size(); ++k) {
        const double share = levels[k].points * ratio / (1 + levels[k].points * ratio);
        for (auto& at : kernels[k].at)
            for (LogSample& sample : at)
                if (const auto level = levels[k].of.find(sample.index); level != levels[k].of.end())
                    sample.value -= share * level->second;
    }
    return ratio;
}

/// Of the variance of samples around their points, what neighbours have in common: with all kernels
/// at that clock of the same sweep, and with the clocks beside it. What is left is each sample's
/// own.
struct NoiseShares {
    double block = 0;   ///< common to the kernels at one clock
    double board = 0;   ///< common to all kernels, drifting along a sweep
    double kernel = 0;  ///< of one kernel, drifting along a sweep
    double memory = 0;  ///< correlation of what drifts between neighbouring clocks

    [[nodiscard]] double own() const { return std::max(0.0, 1 - block - board - kernel); }
};

/// Covariances of samples of the same sweep, in squares of what each is off by itself.
class NoiseCovariances {
public:
    static constexpr std::array<std::size_t, 6> lags{0, 1, 2, 4, 8, 16};  ///< in clocks
    struct Sum {
        double products = 0;
        double pairs = 0;
        [[nodiscard]] double value() const { return pairs > 0 ? products / pairs : 0; }
    };

    explicit NoiseCovariances(const std::vector<KernelSamples>& kernels) {
        // By sweep and point: the sum over kernels, of their squares, and how many there are.
        struct Point {
            double sum = 0;
            double squares = 0;
            double freedom = 0;
            double kernels = 0;
        };
        std::map<std::uint32_t, std::vector<Point>> sweeps;
        for (const KernelSamples& kernel : kernels) {
            const auto off = residuals(kernel);
            for (const auto& [sweep, at] : off) {
                std::vector<Point>& points = sweeps[sweep];
                points.resize(at.size());
                for (std::size_t p = 0; p < at.size(); ++p) {
                    if (at[p].freedom == 0) continue;
                    points[p].sum += at[p].value;
                    points[p].squares += at[p].value * at[p].value;
                    points[p].freedom += at[p].freedom;
                    points[p].kernels += 1;
                    for (std::size_t l = 0; l < lags.size(); ++l) {
                        if (p + lags[l] >= at.size() || at[p + lags[l]].freedom == 0) continue;
                        within[l].products += at[p].value * at[p + lags[l]].value;
                        within[l].pairs += at[p].freedom;
                    }
                }
            }
        }
        for (const auto& [sweep, points] : sweeps)
            for (std::size_t p = 0; p < points.size(); ++p)
                for (std::size_t l = 0; l < lags.size() && p + lags[l] < points.size(); ++l) {
                    const Point& a = points[p];
                    const Point& b = points[p + lags[l]];
                    if (a.kernels < 2 || b.kernels < 2) continue;
                    // Less the kernels' products with themselves, which `within` has.
                    all[l].products += a.sum * b.sum;
                    all[l].pairs += a.freedom / a.kernels * a.kernels * b.kernels;
                }
        for (std::size_t l = 0; l < lags.size(); ++l) {
            across[l].products = all[l].products - within[l].products;
            across[l].pairs = all[l].pairs - within[l].pairs;
        }
    }

    std::array<Sum, lags.size()> within;  ///< a kernel with itself
    std::array<Sum, lags.size()> across;  ///< with others

private:
    struct Residual {
        double value = 0;
        double freedom = 0;  ///< of the variance about the point's mean, shared by its samples
    };
    static std::map<std::uint32_t, std::vector<Residual>> residuals(const KernelSamples& kernel) {
        std::map<std::uint32_t, std::vector<Residual>> found;
        if (!(kernel.scale_square > 0)) return found;
        constexpr double farthest = 4;  // outliers have no neighbours
        for (std::size_t p = 0; p < kernel.at.size(); ++p) {
            const auto& samples = kernel.at[p];
            if (samples.size() < 2) continue;
            const auto count = static_cast<double>(samples.size());
            double middle = 0;
            for (const LogSample& sample : samples) middle += sample.value / count;
            for (const LogSample& sample : samples) {
                auto& at = found[sample.index];
                at.resize(kernel.at.size());
                const double scale = std::sqrt(kernel.scale_square + sample.stated);
                at[p] = {std::clamp((sample.value - middle) / scale, -farthest, farthest),
                         (count - 1) / count};
            }
        }
        return found;
    }
    std::array<Sum, lags.size()> all;
};

/// The shares that explain covariances best, by least squares over lags; drift of either kind has
/// the same memory. Shares that chance explains are none.
inline NoiseShares find_shares(const NoiseCovariances& found) {
    NoiseShares best;
    double least = std::numeric_limits<double>::infinity();
    for (const double memory : {0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99}) {
        struct Fit {
            double share = 0;
            double off = 0;
        };
        const auto fit = [&](const auto& sums) {
            double dot = 0;
            double square = 0;
            for (std::size_t l = 1; l < NoiseCovariances::lags.size(); ++l) {
                const double model = std::pow(memory, NoiseCovariances::lags[l]);
                dot += sums[l].pairs * model * sums[l].value();
                square += sums[l].pairs * model * model;
            }
            Fit result{square > 0 ? std::max(0.0, dot / square) : 0, 0};
            for (std::size_t l = 1; l < NoiseCovariances::lags.size(); ++l) {
                const double model = std::pow(memory, NoiseCovariances::lags[l]);
                const double off = sums[l].value() - result.share * model;
                result.off += sums[l].pairs * off * off;
            }
            return result;
        };
        const Fit within = fit(found.within);
        const Fit across = fit(found.across);
        const double off = within.off + across.off / std::max(1.0, found.across[1].pairs) *
                                            std::max(1.0, found.within[1].pairs);
        if (!(off < least)) continue;
        least = off;
        best.memory = memory;
        best.board = std::min(across.share, within.share);
        best.kernel = within.share - best.board;
        best.block = std::max(0.0, found.across[0].value() - best.board);
    }
    const double drift = best.board + best.kernel;
    // Chance alone makes a share of about that.
    if (drift * std::sqrt(found.within[1].pairs) < 3) best.board = best.kernel = best.memory = 0;
    const double sum = best.block + best.board + best.kernel;
    constexpr double most = 0.98;
    if (sum > most) {
        best.block *= most / sum;
        best.board *= most / sum;
        best.kernel *= most / sum;
    }
    return best;
}

/// How the noise of a kernel's points goes together; empty where each point's is its own.
inline Eigen::MatrixXd correlate(const NoiseShares& shares, std::size_t points) {
    const double drift = shares.board + shares.kernel;
    if (!(drift > 0)) return {};
    const auto n = static_cast<Eigen::Index>(points);
    Eigen::MatrixXd matrix = Eigen::MatrixXd::Identity(n, n);
    for (Eigen::Index i = 0; i < n; ++i)
        for (Eigen::Index j = 0; j < i; ++j)
            matrix(i, j) = matrix(j, i) =
                drift * std::pow(shares.memory, static_cast<double>(i - j));
    return matrix;
}

/// Draws noise of one quantity as samples have it, in kernels' scales.
class NoiseDraws {
public:
    /// @param level variance of a kernel's sweeps as wholes, against that of samples' own noise
    NoiseDraws(const NoiseShares& shares, double level, std::size_t points, std::uint64_t seed)
        : shares_{shares}, level_{std::sqrt(level)}, points_{points}, random_{seed} {}

    /// The next kernel: what it has in common in its sweeps is drawn anew.
    void begin_kernel() { kernels_.clear(); }

    /// @param point of the grid
    /// @param sweep the sample's index
    double draw(std::size_t point, std::uint32_t sweep) {
        const auto board = boards_.try_emplace(sweep);
        if (board.second) {
            board.first->second = walk(std::sqrt(shares_.board));
            for (double& at : board.first->second)
                at += std::sqrt(shares_.block) * normal_(random_);
        }
        const auto kernel = kernels_.try_emplace(sweep);
        if (kernel.second) {
            kernel.first->second = walk(std::sqrt(shares_.kernel));
            const double level = level_ * normal_(random_);
            for (double& at : kernel.first->second) at += level;
        }
        return board.first->second[point] + kernel.first->second[point] +
               std::sqrt(shares_.own()) * tails_(random_);
    }

private:
    std::vector<double> walk(double scale) {
        std::vector<double> found(points_);
        if (!(scale > 0)) return found;
        const double rest = std::sqrt(1 - shares_.memory * shares_.memory);
        double now = normal_(random_);
        for (double& at : found) {
            at = scale * now;
            now = shares_.memory * now + rest * normal_(random_);
        }
        return found;
    }

    NoiseShares shares_;
    double level_;
    std::size_t points_;
    std::mt19937_64 random_;
    std::normal_distribution<double> normal_;
    std::student_t_distribution<double> tails_{HeavyTails::degrees};
    std::map<std::uint32_t, std::vector<double>> boards_;   ///< by sweep
    std::map<std::uint32_t, std::vector<double>> kernels_;  ///< by sweep, of this kernel
};

}  // namespace kdvfs::inline v0_3::tune::detail
