// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/tune/clock_curves.hpp>
#include <kdvfs/detail/tune/sample_noise.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

/// What samples say of the curves of one quantity, over all kernels and clock points. The prior is
/// that of `CurvePriors`; noise has heavy tails (Student's t).
namespace kdvfs::inline v0_3::tune::detail {

/// Where a few samples lie, outliers counting less; what they are worth together.
struct Location {
    double value = 0;
    double precision = 0;

    /// `guess` is what they are thought to lie around, with its variance.
    Location(std::span<const LogSample> samples, double scale_square, double guess,
             double variance = 0) {
        for (const LogSample& sample : samples) {
            const double off = sample.value - guess;
            const double scale = scale_square + sample.apart;
            const double weight = HeavyTails::weight(off * off + variance, scale) / scale;
            value += weight * sample.value;
            precision += weight;
        }
        value /= precision;
        precision *= HeavyTails::efficiency();
    }

    /// Around themselves.
    static Location of(std::span<const LogSample> samples, double scale_square) {
        Location found{samples, scale_square, middle_of(samples)};
        for (int round = 0; round < 4; ++round)
            found = Location{samples, scale_square, found.value};
        return found;
    }
};

/// How far samples of the same point lie apart, beyond what was stated.
/// @param middles by point, where they were found to lie so far: a step of the iteration is taken
inline NoiseSum noise_within(const KernelSamples& kernel, double scale_square,
                             std::vector<double>& middles) {
    NoiseSum sum;
    for (std::size_t p = 0; p < kernel.at.size(); ++p) {
        const auto& samples = kernel.at[p];
        if (samples.size() < 2) continue;
        const double middle = middles[p] =
            Location{samples, std::max(scale_square, 1e-30), middles[p]}.value;
        for (const LogSample& sample : samples) {
            const double square = (sample.value - middle) * (sample.value - middle);
            sum.squares +=
                HeavyTails::weight(square, scale_square) * std::max(0.0, square - sample.stated);
        }
        sum.freedom += static_cast<double>(samples.size() - 1);
    }
    return sum;
}

/// What is known of one kernel's quantity, by point of the grid: logs.
struct CurveEstimate {
    Eigen::VectorXd mean;
    std::shared_ptr<const Eigen::MatrixXd> covariance;  ///< shared by kernels that are known alike

    /// The standard deviation of the difference between two points.
    [[nodiscard]] double off(Eigen::Index a, Eigen::Index b) const {
        const Eigen::MatrixXd& known = *covariance;
        return std::sqrt(std::max(0.0, known(a, a) + known(b, b) - 2 * known(a, b)));
    }
};

/// For each point of the grid the one that it is the same as.
using SamePoints = std::vector<Eigen::Index>;

/// One quantity of all kernels of a profile, shrunk.
class QuantityShrinkage {
public:
    /// @param grid all clock points, each once
    QuantityShrinkage(const std::vector<ClockShare>& grid, std::vector<KernelSamples> kernels)
        : kernels_{std::move(kernels)} {
        remove_levels(kernels_);
        const double scale = std::max(estimate_noise(), least_scale_square);
        if (!has_noise()) return;
        luck_ = SweepLuck{kernels_};
        for (const KernelSamples& kernel : kernels_) {
            ClockCurve& curve = curves_.emplace_back(grid.size());
            curve.noise = luck_.variance * noise_of(kernel, scale);
            for (std::size_t p = 0; p < grid.size(); ++p)
                if (!kernel.at[p].empty())
                    curve.value(static_cast<Eigen::Index>(p)) =
                        Location::of(kernel.at[p], scale).value;
        }
        priors_.emplace(grid, curves_);
    }

    /// Whether samples of one point differ at all, beyond rounding, or said that they are off.
    [[nodiscard]] bool has_noise() const { return noise_ > rounding * rounding; }
    /// Of the noise of a kernel's samples, beyond what was stated.
    [[nodiscard]] double scale(std::size_t k) const { return std::sqrt(kernels_[k].scale_square); }

    /// What its samples have in common in a sweep.
    [[nodiscard]] const SweepLuck& luck() const { return luck_; }

    /// How likely each kernel's samples are if clock points are the same as `map` says, as
    /// logarithms; zeros where there is no noise to judge by.
    [[nodiscard]] std::vector<double> log_likelihoods(const SamePoints& map) const {
        std::vector<double> found(kernels_.size());
        for (std::size_t fold = 0; has_noise() && fold < CurvePriors::folds; ++fold)
            tune::log_likelihoods(priors_->of(fold)(map, map), curves_, fold, CurvePriors::folds,
                                  [&](std::size_t k, double likely) { found[k] = likely; });
        return found;
    }

    /// Learns what curves have in common once more, from samples that count together where clock
    /// points are the same, by kernel.
    void pool(const std::vector<ClockShare>& grid, const std::vector<const SamePoints*>& maps) {
        if (!has_noise()) return;
        std::vector<ClockCurve> pooled = curves_;
        for (std::size_t k = 0; k < pooled.size(); ++k) {
            const SamePoints& map = *maps[k];
            ClockCurve sum{grid.size()};  // weighted values, and weights in the place of noise
            sum.noise.setZero();
            for (std::size_t p = 0; p < map.size(); ++p) {
                const auto i = static_cast<Eigen::Index>(p);
                if (!std::isfinite(curves_[k].noise(i))) continue;
                sum.value(map[p]) += curves_[k].value(i) / curves_[k].noise(i);
                sum.noise(map[p]) += 1 / curves_[k].noise(i);
            }
            for (std::size_t p = 0; p < map.size(); ++p) {
                const auto i = static_cast<Eigen::Index>(p);
                if (sum.noise(map[p]) == 0) continue;
                pooled[k].value(i) = sum.value(map[p]) / sum.noise(map[p]);
            }
        }
        priors_->learn_common(grid, pooled);
        known_.clear();
    }

    /// What a kernel's curve most likely is, samples weighed by how far they lie from that. Found
    /// by iteration: each time, points are taken to have been measured where the samples' weights
    /// draw the curve to, with the noise that samples have on average (a step of Fisher's scoring),
    /// so that kernels with the same noise share one solution.
    /// @pre has_noise()
    [[nodiscard]] CurveEstimate estimate(std::size_t k, const SamePoints& map) {
        const KernelSamples& kernel = kernels_[k];
        const double scale = std::max(kernel.scale_square, least_scale_square);
        ClockCurve curve = curves_[k];
        const Eigen::VectorXd noise = noise_of(kernel, scale);
        curve.noise = luck_.variance * noise;
        const Observed& known = known_of(k, map, curve);
        Eigen::VectorXd mean = known.mean_of(curve.value);
        constexpr int rounds = 6;
        constexpr double damping = 0.6;  // steps of scoring are up to 1.75 times too long
        for (int round = 0; round < rounds; ++round) {
            for (std::size_t p = 0; p < kernel.at.size(); ++p) {
                const auto i = static_cast<Eigen::Index>(p);
                double drawn = 0;
                for (const LogSample& sample : kernel.at[p]) {
                    const double off = sample.value - mean(i);
                    const double square = off * off + std::max((*known.covariance)(i, i), 0.0);
                    drawn += HeavyTails::weight(square, scale + sample.apart) * off /
                             (scale + sample.apart);
                }
                if (!kernel.at[p].empty()) curve.value(i) = mean(i) + noise(i) * drawn;
            }
            mean += damping * (known.mean_of(curve.value) - mean);
        }
        // What is the same is so to the last bit, or a bound of 0 would tell it apart.
        return {mean(map), known.covariance};
    }

private:
    /// What is known of all curves of the same fold, points and noise.
    struct Observed {
        Observed(const Eigen::MatrixXd& prior, const SamePoints& map, const ClockCurve& curve)
            : noise{curve.noise} {
            const CurvePosterior posterior{prior, curve};
            seen = posterior.seen();
            const Eigen::MatrixXd explained = posterior.explained();
            const Eigen::MatrixXd left = prior - explained.transpose() * explained;
            covariance = std::make_shared<const Eigen::MatrixXd>(left(map, map));
            gain = posterior.gain();
        }
        [[nodiscard]] Eigen::VectorXd mean_of(const Eigen::VectorXd& values) const {
            const Eigen::VectorXd measured = values(seen);
            const double level = measured.mean();
            return (gain * (measured.array() - level).matrix()).array() + level;
        }

        Eigen::VectorXd noise;
        std::vector<Eigen::Index> seen;
        Eigen::MatrixXd gain;  ///< by how much each point follows what was measured at each
        std::shared_ptr<const Eigen::MatrixXd> covariance;
    };

    const Observed& known_of(std::size_t k, const SamePoints& map, const ClockCurve& curve) {
        constexpr std::size_t most = 16;  // where noise differs more, none is needed again
        auto& alike = known_[{k % CurvePriors::folds, &map}];
        for (const auto& known : alike)
            if (known->noise == curve.noise) return *known;
        if (alike.size() == most) alike.clear();
        alike.push_back(std::make_unique<Observed>(priors_->of(k)(map, map), map, curve));
        return *alike.back();
    }

    static constexpr double rounding = 1e-9;
    static constexpr double least_scale_square = 1e-14;

    /// Of what the samples of each point say together, on average.
    static Eigen::VectorXd noise_of(const KernelSamples& kernel, double scale) {
        Eigen::VectorXd noise = Eigen::VectorXd::Constant(
            static_cast<Eigen::Index>(kernel.at.size()), ClockCurve::not_measured);
        for (std::size_t p = 0; p < kernel.at.size(); ++p) {
            double precision = 0;
            for (const LogSample& sample : kernel.at[p]) precision += 1 / (scale + sample.apart);
            if (precision > 0)
                noise(static_cast<Eigen::Index>(p)) = 1 / (precision * HeavyTails::efficiency());
        }
        return noise;
    }

    /// To about a tenth: nobody could tell more of a few samples, and kernels alike are known
    /// alike.
    static double rounded(double square) {
        return square > 0 ? std::exp2(std::round(4 * std::log2(square)) / 4) : 0;
    }

    /// A kernel's own noise where it has been measured often enough to tell, since attributed
    /// energies of long kernels are far better known than those of short ones; else that of all.
    /// @returns that of all
    double estimate_noise() {
        double common = 0;
        std::vector<NoiseSum> own(kernels_.size());
        std::vector<std::vector<double>> middles(kernels_.size());
        for (std::size_t k = 0; k < kernels_.size(); ++k)
            for (const auto& samples : kernels_[k].at)
                middles[k].push_back(samples.empty() ? 0 : middle_of(samples));
        for (int round = 0; round < 12; ++round) {
            NoiseSum all;
            for (std::size_t k = 0; k < kernels_.size(); ++k)
                all += own[k] = noise_within(kernels_[k], common, middles[k]);
            common = all.value();
        }
        constexpr double worth = 20;  // degrees of freedom that all kernels' noise counts as
        for (std::size_t k = 0; k < kernels_.size(); ++k) {
            const NoiseSum mixed{own[k].squares + worth * common, own[k].freedom + worth};
            kernels_[k].scale_square = rounded(mixed.value());
        }
        noise_ = common;
        for (const KernelSamples& kernel : kernels_)
            for (const auto& samples : kernel.at)
                for (const LogSample& sample : samples) noise_ = std::max(noise_, sample.stated);
        return common;
    }

    std::vector<KernelSamples> kernels_;
    SweepLuck luck_;
    double noise_ = 0;
    std::vector<ClockCurve> curves_;
    std::optional<CurvePriors> priors_;
    std::map<std::pair<std::size_t, const SamePoints*>, std::vector<std::unique_ptr<Observed>>>
        known_;  ///< by fold and map
};

}  // namespace kdvfs::inline v0_3::tune::detail
