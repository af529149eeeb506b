// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/tune/clock_curves.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/profile.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// Estimates that do not promise the winner's luck. Whoever picks the best of many noisy means
/// picks lucky ones, and is disappointed later; posterior means under a fair prior have no such
/// bias. The prior is that of `CurvePriors`; noise has heavy tails (Student's t).
namespace kdvfs::tune {
namespace detail {

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

private:
    static constexpr double degrees = 4;
};

/// One sample's log, and what variance of it was stated when it was measured.
struct LogSample {
    double value = 0;
    double stated = 0;
};

/// One quantity of one kernel: samples by point of the grid.
struct KernelSamples {
    std::vector<std::vector<LogSample>> at;
    double scale_square = 0;  ///< of noise beyond what was stated
};

/// Noise of samples: squares of what they are off, and what these are told from.
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

/// Where a few samples lie, outliers counting less; what they are worth together.
struct Location {
    double value = 0;
    double precision = 0;

    /// `guess` is what they are thought to lie around, with its variance.
    Location(std::span<const LogSample> samples, double scale_square, double guess,
             double variance = 0) {
        for (const LogSample& sample : samples) {
            const double off = sample.value - guess;
            const double scale = scale_square + sample.stated;
            const double weight = HeavyTails::weight(off * off + variance, scale) / scale;
            value += weight * sample.value;
            precision += weight;
        }
        value /= precision;
        precision *= HeavyTails::efficiency();
    }

    /// Around themselves.
    static Location of(std::span<const LogSample> samples, double scale_square) {
        std::vector<double> values;
        for (const LogSample& sample : samples) values.push_back(sample.value);
        const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
        std::nth_element(values.begin(), middle, values.end());
        Location found{samples, scale_square, *middle};
        for (int round = 0; round < 4; ++round)
            found = Location{samples, scale_square, found.value};
        return found;
    }
};

/// How far samples of the same point lie apart, beyond what was stated.
inline NoiseSum noise_within(const KernelSamples& kernel, double scale_square) {
    NoiseSum sum;
    for (const auto& samples : kernel.at) {
        if (samples.size() < 2) continue;
        const double middle = Location::of(samples, std::max(scale_square, 1e-30)).value;
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
    Eigen::VectorXd variance;
    Eigen::VectorXd with_baseline;  ///< covariance
    Eigen::Index baseline = 0;

    /// The standard deviation of the difference between a point and the baseline.
    [[nodiscard]] double off_baseline(Eigen::Index point) const {
        return std::sqrt(
            std::max(0.0, variance(point) + variance(baseline) - 2 * with_baseline(point)));
    }
};

/// Which clock points are one and the same to a kernel. A cap that the board does not reach, since
/// its power is limited before, changes nothing: from some core clock on, caps are as good as none.
/// Where points are the same, samples count together, and no luck can be picked among them.
class SameClocks {
public:
    /// @param clocks ascending
    explicit SameClocks(const std::vector<ClockPoint>& clocks) : clocks_{clocks} {
        std::vector<Megahertz> cores;
        for (const ClockPoint clock : clocks)
            if (clock.core != auto_clock) cores.push_back(clock.core);
        std::sort(cores.begin(), cores.end());
        cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
        constexpr std::size_t most = 24;
        const std::size_t stride = 1 + cores.size() / most;
        add_level(std::nullopt);
        for (std::size_t c = cores.size(); c > 0; c -= std::min(c, stride)) add_level(cores[c - 1]);
    }

    [[nodiscard]] std::size_t levels() const { return maps_.size(); }
    /// For each point the one that it is the same as; level 0 has no such points.
    [[nodiscard]] const std::vector<Eigen::Index>& map(std::size_t level) const {
        return maps_[level];
    }

private:
    /// From `core` on, all caps are as good as the highest.
    void add_level(std::optional<Megahertz> core) {
        std::vector<Eigen::Index> map;
        for (const ClockPoint clock : clocks_) {
            ClockPoint same = clock;
            if (core && (clock.core == auto_clock || clock.core >= *core))
                same.core = highest_core(same.memory);
            map.push_back(std::lower_bound(clocks_.begin(), clocks_.end(), same) - clocks_.begin());
        }
        if (maps_.empty() || map != maps_.back()) maps_.push_back(std::move(map));
    }

    /// Auto where there is such a point.
    [[nodiscard]] Megahertz highest_core(Megahertz memory) const {
        Megahertz highest;
        for (const ClockPoint clock : clocks_) {
            if (clock.memory != memory) continue;
            if (clock.core == auto_clock) return auto_clock;
            highest = std::max(highest, clock.core);
        }
        return highest;
    }

    std::vector<ClockPoint> clocks_;
    std::vector<std::vector<Eigen::Index>> maps_;
};

/// One quantity of all kernels of a profile, shrunk.
class QuantityShrinkage {
public:
    /// @param grid     all clock points, each once
    /// @param baseline index into `grid`
    QuantityShrinkage(const std::vector<ClockShare>& grid, std::size_t baseline,
                      std::vector<KernelSamples> kernels)
        : baseline_{static_cast<Eigen::Index>(baseline)}, kernels_{std::move(kernels)} {
        const double scale = std::max(estimate_noise(), least_scale_square);
        if (!has_noise()) return;
        for (const KernelSamples& kernel : kernels_) {
            ClockCurve& curve = curves_.emplace_back(grid.size());
            for (std::size_t p = 0; p < grid.size(); ++p) {
                if (kernel.at[p].empty()) continue;
                const auto i = static_cast<Eigen::Index>(p);
                curve.value(i) = Location::of(kernel.at[p], scale).value;
                double precision = 0;
                for (const LogSample& sample : kernel.at[p])
                    precision += 1 / (scale + sample.stated);
                curve.noise(i) = 1 / (precision * HeavyTails::efficiency());
            }
        }
        priors_.emplace(grid, curves_);
    }

    /// Whether samples of one point differ at all, beyond rounding, or said that they are off.
    [[nodiscard]] bool has_noise() const { return noise_ > rounding * rounding; }

    /// How likely each kernel's samples are if clock points are the same as `map` says, as
    /// logarithms; zeros where there is no noise to judge by.
    [[nodiscard]] std::vector<double> log_likelihoods(const std::vector<Eigen::Index>& map) const {
        std::vector<double> found(kernels_.size());
        for (std::size_t fold = 0; has_noise() && fold < CurvePriors::folds; ++fold) {
            if (fold >= curves_.size()) break;
            const Eigen::MatrixXd prior = priors_->of(fold)(map, map);
            std::optional<CurvePosterior> posterior;
            const ClockCurve* before = nullptr;
            for (std::size_t k = fold; k < curves_.size(); k += CurvePriors::folds) {
                if (before != nullptr && before->noise == curves_[k].noise)
                    posterior->take(curves_[k]);
                else
                    posterior.emplace(prior, curves_[k]);
                before = &curves_[k];
                found[k] = posterior->log_likelihood();
            }
        }
        return found;
    }

    /// Learns what curves have in common once more, from samples that count together where clock
    /// points are the same, by kernel.
    void pool(const std::vector<ClockShare>& grid,
              const std::vector<const std::vector<Eigen::Index>*>& maps) {
        if (!has_noise()) return;
        std::vector<ClockCurve> pooled = curves_;
        for (std::size_t k = 0; k < pooled.size(); ++k) {
            const std::vector<Eigen::Index>& map = *maps[k];
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
        looks_.clear();
    }

    /// What a kernel's curve is. Samples are weighed by how far they lie from what the whole curve
    /// says at first. @pre has_noise()
    [[nodiscard]] CurveEstimate estimate(std::size_t k, const std::vector<Eigen::Index>& map) {
        const KernelSamples& kernel = kernels_[k];
        ClockCurve curve = curves_[k];
        FirstLook& first = first_look(k, map);
        const Eigen::MatrixXd& prior = first.prior;
        first.posterior.take(curve);
        CurveEstimate found;
        found.baseline = baseline_;
        found.mean = first.posterior.mean();
        for (std::size_t p = 0; p < kernel.at.size(); ++p) {
            if (kernel.at[p].empty()) continue;
            const auto i = static_cast<Eigen::Index>(p);
            const Location seen{kernel.at[p], std::max(kernel.scale_square, least_scale_square),
                                found.mean(i), std::max(first.variance(i), 0.0)};
            curve.value(i) = seen.value;
            curve.noise(i) = 1 / seen.precision;
        }
        const CurvePosterior posterior{prior, curve};
        found.mean = posterior.mean();
        const Eigen::MatrixXd explained = posterior.explained();
        found.variance = prior.diagonal() - explained.colwise().squaredNorm().transpose();
        found.with_baseline =
            prior.col(baseline_) - explained.transpose() * explained.col(baseline_);
        // What is the same is so to the last bit, or a bound of 0 would tell it apart.
        const CurveEstimate exact = found;
        found.mean = exact.mean(map);
        found.variance = exact.variance(map);
        found.with_baseline = exact.with_baseline(map);
        return found;
    }

private:
    /// A posterior and its variance for kernels of the same fold, noise and points: worked out
    /// once.
    struct FirstLook {
        FirstLook(Eigen::MatrixXd covariance, const ClockCurve& curve)
            : prior{std::move(covariance)},
              noise{curve.noise},
              posterior{prior, curve},
              variance{prior.diagonal() -
                       posterior.explained().colwise().squaredNorm().transpose()} {}
        FirstLook(const FirstLook&) = delete;
        FirstLook& operator=(const FirstLook&) = delete;
        ~FirstLook() = default;

        Eigen::MatrixXd prior;
        Eigen::VectorXd noise;
        CurvePosterior posterior;  ///< refers to `prior`
        Eigen::VectorXd variance;
    };

    FirstLook& first_look(std::size_t k, const std::vector<Eigen::Index>& map) {
        constexpr std::size_t most = 256;  // where noise differs, none is needed again
        auto& looks = looks_[{k % CurvePriors::folds, &map}];
        for (const auto& look : looks)
            if (look->noise == curves_[k].noise) return *look;
        if (looks.size() == most) looks.clear();
        looks.push_back(std::make_unique<FirstLook>(priors_->of(k)(map, map), curves_[k]));
        return *looks.back();
    }

    static constexpr double rounding = 1e-9;

    static constexpr double least_scale_square = 1e-14;

    /// A kernel's own noise where it has been measured often enough to tell, since attributed
    /// energies of long kernels are far better known than those of short ones; else that of all.
    /// @returns that of all
    double estimate_noise() {
        double common = 0;
        std::vector<NoiseSum> own(kernels_.size());
        for (int round = 0; round < 12; ++round) {
            NoiseSum all;
            for (std::size_t k = 0; k < kernels_.size(); ++k)
                all += own[k] = noise_within(kernels_[k], common);
            common = all.value();
        }
        constexpr double worth = 20;  // degrees of freedom that all kernels' noise counts as
        for (std::size_t k = 0; k < kernels_.size(); ++k) {
            const NoiseSum mixed{own[k].squares + worth * common, own[k].freedom + worth};
            kernels_[k].scale_square = mixed.value();
        }
        noise_ = common;
        for (const KernelSamples& kernel : kernels_)
            for (const auto& samples : kernel.at)
                for (const LogSample& sample : samples) noise_ = std::max(noise_, sample.stated);
        return common;
    }

    Eigen::Index baseline_;
    std::vector<KernelSamples> kernels_;
    double noise_ = 0;
    std::vector<ClockCurve> curves_;
    std::optional<CurvePriors> priors_;
    std::map<std::pair<std::size_t, const std::vector<Eigen::Index>*>,
             std::vector<std::unique_ptr<FirstLook>>>
        looks_;  ///< by fold and map
};

/// Each kernel's likeliest level: both quantities meet the same one.
inline std::vector<std::size_t> likeliest_levels(const SameClocks& same, std::size_t kernels,
                                                 const QuantityShrinkage& time,
                                                 const QuantityShrinkage& energy) {
    std::vector<std::size_t> best(kernels);
    std::vector<double> likelihood(kernels, -std::numeric_limits<double>::infinity());
    for (std::size_t level = 0; level < same.levels(); ++level) {
        const std::vector<double> by_time = time.log_likelihoods(same.map(level));
        const std::vector<double> by_energy = energy.log_likelihoods(same.map(level));
        for (std::size_t k = 0; k < kernels; ++k) {
            if (!(by_time[k] + by_energy[k] > likelihood[k])) continue;
            likelihood[k] = by_time[k] + by_energy[k];
            best[k] = level;
        }
    }
    return best;
}

/// Whether any point was measured more than once, or its error stated.
inline bool tells_noise(const Profile& profile) {
    for (const KernelProfile& kernel : profile.kernels())
        for (const ProfilePoint& point : kernel.points)
            if (point.samples.size() > 1 || point.samples[0].energy_sd.count > 0) return true;
    return false;
}

/// The clock points of a profile, ascending.
inline std::vector<ClockPoint> clock_points(const Profile& profile) {
    std::vector<ClockPoint> clocks;
    for (const KernelProfile& kernel : profile.kernels()) {
        for (const ProfilePoint& point : kernel.points) clocks.push_back(point.clock);
        std::sort(clocks.begin(), clocks.end());
        clocks.erase(std::unique(clocks.begin(), clocks.end()), clocks.end());
    }
    return clocks;
}

inline std::size_t index_of(const std::vector<ClockPoint>& grid, ClockPoint clock) {
    return static_cast<std::size_t>(std::lower_bound(grid.begin(), grid.end(), clock) -
                                    grid.begin());
}

/// A cap only takes away: at one memory clock, no kernel is faster at a lower cap of the core
/// clock, and an estimate that says so is luck, which a plan would pick.
inline void forbid_faster_at_lower_caps(const std::vector<ClockPoint>& clocks,
                                        Eigen::VectorXd& log_times) {
    const auto rank = [](ClockPoint clock) {  // auto lies above all
        return clock.core == auto_clock ? std::numeric_limits<std::uint32_t>::max()
                                        : clock.core.count;
    };
    std::vector<std::size_t> order(clocks.size());
    for (std::size_t p = 0; p < order.size(); ++p) order[p] = p;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        if (clocks[a].memory != clocks[b].memory) return clocks[a].memory < clocks[b].memory;
        return rank(clocks[a]) > rank(clocks[b]);
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
        if (clocks[order[i]].memory != clocks[order[i - 1]].memory) continue;
        double& time = log_times(static_cast<Eigen::Index>(order[i]));
        time = std::max(time, log_times(static_cast<Eigen::Index>(order[i - 1])));
    }
}

}  // namespace detail

/// A table of shrunk estimates, with how far its times may be off. Noise is estimated from repeated
/// samples of the same point. Kernels that resemble each other are off alike, so that luck does not
/// average out when clocks are picked for all of them: a clock is credited with half a standard
/// deviation less than it seems to save, which was found to balance promised and kept savings
/// (bench/promise). What cannot be shrunk keeps its plain means, and
/// `CostTable::caveat` says why; samples that are all alike are taken as they are.
/// @throws Error as `make_cost_table`
inline CostTable shrunk_costs(const Profile& profile) {
    CostTable table = mean_costs(profile);
    if (!detail::tells_noise(profile)) {
        table.caveat =
            "no point was measured twice, so nothing was shrunk and the bound has no confidence";
        return table;
    }
    const std::vector<ClockPoint> clocks = detail::clock_points(profile);
    std::vector<detail::KernelSamples> times;
    std::vector<detail::KernelSamples> energies;
    for (const KernelProfile& kernel : profile.kernels()) {
        auto& time = times.emplace_back().at;
        auto& energy = energies.emplace_back().at;
        time.resize(clocks.size());
        energy.resize(clocks.size());
        for (const ProfilePoint& point : kernel.points) {
            const std::size_t at = detail::index_of(clocks, point.clock);
            for (const auto& sample : point.samples) {
                if (sample.cost.energy.count <= 0) {
                    table.caveat = to_string(kernel.key) + " has an energy of 0 J at " +
                                   to_string(point.clock) + ", so nothing was shrunk";
                    return table;
                }
                const double stated = sample.energy_sd / sample.cost.energy;
                time[at].push_back({std::log(sample.cost.time.count()), 0});
                energy[at].push_back({std::log(sample.cost.energy.count), stated * stated});
            }
        }
    }
    const std::vector<ClockShare> grid = clock_shares(clocks);
    const std::size_t baseline = detail::index_of(clocks, table.baseline);
    if (clocks.size() < 3) {
        table.caveat = "fewer than three clock points were measured, so nothing was shrunk";
        return table;
    }
    detail::QuantityShrinkage time{grid, baseline, std::move(times)};
    detail::QuantityShrinkage energy{grid, baseline, std::move(energies)};
    const detail::SameClocks same{clocks};
    std::vector<const std::vector<Eigen::Index>*> maps;
    for (const std::size_t level :
         detail::likeliest_levels(same, table.kernels.size(), time, energy))
        maps.push_back(&same.map(level));
    time.pool(grid, maps);
    energy.pool(grid, maps);
    constexpr double credit = 0.5;
    for (std::size_t k = 0; k < table.kernels.size(); ++k) {
        std::optional<detail::CurveEstimate> times_found;
        std::optional<detail::CurveEstimate> energies_found;
        if (time.has_noise()) times_found = time.estimate(k, *maps[k]);
        if (energy.has_noise()) energies_found = energy.estimate(k, *maps[k]);
        KernelCosts& kernel = table.kernels[k];
        if (times_found) detail::forbid_faster_at_lower_caps(clocks, times_found->mean);
        for (PointCost& point : kernel.points) {
            const auto at = static_cast<Eigen::Index>(detail::index_of(clocks, point.clock));
            if (times_found) {
                point.cost.time = Seconds{std::exp(times_found->mean(at))};
                kernel.time_errors.push_back(
                    {times_found->variance(at), times_found->with_baseline(at)});
            }
            if (energies_found)
                point.cost.energy = Joules{
                    std::exp(energies_found->mean(at) + credit * energies_found->off_baseline(at))};
        }
    }
    return table;
}

}  // namespace kdvfs::tune
