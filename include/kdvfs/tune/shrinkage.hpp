// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/tune/block_totals.hpp>
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
#include <numeric>
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
    double apart = stated;  ///< of what the sample says beside its block's total
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
    Eigen::MatrixXd covariance{};  ///< where it was asked for

    /// What the covariance says, once blocks have changed it.
    void follow_covariance() {
        variance = covariance.diagonal();
        with_baseline = covariance.col(baseline);
    }

    /// The standard deviation of the difference between a point and the baseline.
    [[nodiscard]] double off_baseline(Eigen::Index point) const {
        return std::sqrt(
            std::max(0.0, variance(point) + variance(baseline) - 2 * with_baseline(point)));
    }
};

/// Which clock points are one and the same to a kernel. A cap that the board does not reach, since
/// its power is limited before, changes nothing: from some core clock on, caps are as good as none.
/// And memory that is left alone mostly runs at its highest clock, but not on every board: an RTX
/// 3080 Ti draws more power then. Where points are the same, samples count together, and no luck
/// can be picked among them.
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

    [[nodiscard]] std::size_t levels() const { return levels_.size(); }
    /// Whether any points differ by nothing but memory that is left alone or at its highest clock.
    [[nodiscard]] bool has_memory_on_auto() const {
        return levels_.front().own_memory != levels_.front().auto_memory;
    }
    /// For each point the one that it is the same as; level 0 has no such points.
    /// @param auto_memory whether memory that is left alone is at its highest clock
    [[nodiscard]] const std::vector<Eigen::Index>& map(std::size_t level, bool auto_memory) const {
        return auto_memory ? levels_[level].auto_memory : levels_[level].own_memory;
    }

private:
    using Map = std::vector<Eigen::Index>;
    struct Level {
        Map own_memory;
        Map auto_memory;
    };

    /// From `core` on, all caps are as good as the highest.
    void add_level(std::optional<Megahertz> core) {
        Level level;
        for (const ClockPoint clock : clocks_) {
            level.own_memory.push_back(index_of(capped(clock, core)));
            level.auto_memory.push_back(index_of(capped(with_auto_memory(clock), core)));
        }
        if (levels_.empty() || level.own_memory != levels_.back().own_memory)
            levels_.push_back(std::move(level));
    }

    [[nodiscard]] ClockPoint capped(ClockPoint clock, std::optional<Megahertz> core) const {
        if (core && (clock.core == auto_clock || clock.core >= *core))
            clock.core = highest_core(clock.memory);
        return clock;
    }
    /// Where there is such a point.
    [[nodiscard]] ClockPoint with_auto_memory(ClockPoint clock) const {
        const ClockPoint left_alone{clock.core, auto_clock};
        Megahertz highest;
        for (const ClockPoint any : clocks_) highest = std::max(highest, any.memory);
        const bool is_there = std::binary_search(clocks_.begin(), clocks_.end(), left_alone);
        return clock.memory == highest && is_there ? left_alone : clock;
    }
    [[nodiscard]] Eigen::Index index_of(ClockPoint clock) const {
        return std::lower_bound(clocks_.begin(), clocks_.end(), clock) - clocks_.begin();
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
    std::vector<Level> levels_;
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
                    precision += 1 / (scale + sample.apart);
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
        for (std::size_t fold = 0; has_noise() && fold < CurvePriors::folds; ++fold)
            tune::log_likelihoods(priors_->of(fold)(map, map), curves_, fold, CurvePriors::folds,
                                  [&](std::size_t k, double likely) { found[k] = likely; });
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
    /// says at first.
    /// @param whole with the covariance between all points
    /// @pre has_noise()
    [[nodiscard]] CurveEstimate estimate(std::size_t k, const std::vector<Eigen::Index>& map,
                                         bool whole = false) {
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
        if (whole) {
            const Eigen::MatrixXd covariance = prior - explained.transpose() * explained;
            found.covariance = covariance(map, map);
        }
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

/// Which points are likeliest the same to each kernel: both quantities meet the same ones. What a
/// board does with memory that is left alone, it does to all kernels.
inline std::vector<const std::vector<Eigen::Index>*> likeliest_maps(
    const SameClocks& same, std::size_t kernels, const QuantityShrinkage& time,
    const QuantityShrinkage& energy) {
    const auto likelihoods = [&](std::size_t level, bool auto_memory) {
        std::vector<double> sum = time.log_likelihoods(same.map(level, auto_memory));
        const std::vector<double> more = energy.log_likelihoods(same.map(level, auto_memory));
        for (std::size_t k = 0; k < kernels; ++k) sum[k] += more[k];
        return sum;
    };
    const auto sum_of = [](const std::vector<double>& all) {
        return std::accumulate(all.begin(), all.end(), 0.0);
    };
    std::vector<std::size_t> best(kernels);
    std::vector<double> likelihood = likelihoods(0, false);
    bool auto_memory = false;
    if (same.has_memory_on_auto()) {
        std::vector<double> found = likelihoods(0, true);
        // No kernel may speak against it by more than chance lets one of them do.
        const double chance = 5 + std::log(static_cast<double>(kernels));
        auto_memory = sum_of(found) > sum_of(likelihood);
        for (std::size_t k = 0; k < kernels; ++k)
            auto_memory = auto_memory && found[k] > likelihood[k] - chance;
        if (auto_memory) likelihood = std::move(found);
    }
    for (std::size_t level = 1; level < same.levels(); ++level) {
        const std::vector<double> found = likelihoods(level, auto_memory);
        for (std::size_t k = 0; k < kernels; ++k) {
            if (!(found[k] > likelihood[k])) continue;
            likelihood[k] = found[k];
            best[k] = level;
        }
    }
    std::vector<const std::vector<Eigen::Index>*> maps;
    for (std::size_t k = 0; k < kernels; ++k) maps.push_back(&same.map(best[k], auto_memory));
    return maps;
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

/// The rows of a block within the estimates' samples.
struct BlockRows {
    struct Row {
        std::size_t kernel = 0;
        std::size_t sample = 0;  ///< at the block's point
        double launches = 1;
        Joules energy{};  ///< of these launches
        Joules energy_sd{};
    };
    std::vector<Row> rows;
};

/// Takes apart what rows say from what their blocks' totals say, in `energies` and as totals.
inline std::vector<BlockTotal> take_apart(const Profile& profile,
                                          const std::vector<ClockPoint>& clocks,
                                          std::vector<KernelSamples>& energies) {
    std::map<std::uint32_t, BlockRows> blocks;
    for (std::size_t k = 0; k < profile.kernels().size(); ++k) {
        const KernelProfile& kernel = profile.kernels()[k];
        for (const ProfilePoint& point : kernel.points)
            for (std::size_t s = 0; s < point.samples.size(); ++s) {
                const ProfileSample& sample = point.samples[s];
                if (sample.block == 0) continue;
                const auto launches = static_cast<double>(kernel.count);
                blocks[sample.block].rows.push_back(
                    {k, s, launches, sample.cost.energy * launches, sample.energy_sd * launches});
            }
    }
    std::vector<BlockTotal> totals;
    for (const auto& [id, block] : blocks) {
        const auto& [told, clock] = profile.blocks().at(id);
        const auto square = [&, whole = told.energy](Joules deviation) {
            return deviation / whole * (deviation / whole);
        };
        std::vector<double> stated;
        for (const BlockRows::Row& row : block.rows) stated.push_back(square(row.energy_sd));
        const BlockVariances found = apart(stated, square(told.energy_sd));
        if (!std::isfinite(found.total)) continue;
        const std::size_t at = index_of(clocks, clock);
        BlockTotal& total = totals.emplace_back();
        total.point = static_cast<Eigen::Index>(at);
        total.log_energy = std::log(told.energy.count);
        total.variance = found.total;
        for (std::size_t r = 0; r < block.rows.size(); ++r) {
            const BlockRows::Row& row = block.rows[r];
            const double share = row.energy / told.energy;
            energies[row.kernel].at[at][row.sample].apart = found.rows[r] / (share * share);
            total.members.push_back({row.kernel, row.launches});
        }
    }
    return totals;
}

/// By kernel; none where there is no noise to judge by.
inline std::vector<CurveEstimate> estimate_energies(
    QuantityShrinkage& energy, const std::vector<const std::vector<Eigen::Index>*>& maps,
    std::vector<BlockTotal> blocks) {
    std::vector<CurveEstimate> found;
    if (!energy.has_noise()) return found;
    std::vector<bool> in_blocks(maps.size());
    for (const BlockTotal& block : blocks)
        for (const BlockTotal::Member& member : block.members) in_blocks[member.kernel] = true;
    for (std::size_t k = 0; k < maps.size(); ++k)
        found.push_back(energy.estimate(k, *maps[k], in_blocks[k]));
    if (blocks.empty()) return found;
    std::vector<EnergyCurve> curves;
    for (CurveEstimate& estimate : found)
        curves.push_back({std::move(estimate.mean), std::move(estimate.covariance)});
    BlockTotals{std::move(blocks), maps.size()}.apply_to(curves);
    for (std::size_t k = 0; k < found.size(); ++k) {
        found[k].mean = std::move(curves[k].mean);
        found[k].covariance = std::move(curves[k].covariance);
        if (in_blocks[k]) found[k].follow_covariance();
    }
    return found;
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
/// samples of the same point. Energies that were measured together are estimated together
/// (`BlockTotals`). Kernels that resemble each other are off alike, so that luck does not
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
    std::vector<detail::BlockTotal> blocks = detail::take_apart(profile, clocks, energies);
    detail::QuantityShrinkage time{grid, baseline, std::move(times)};
    detail::QuantityShrinkage energy{grid, baseline, std::move(energies)};
    const detail::SameClocks same{clocks};
    const auto maps = detail::likeliest_maps(same, table.kernels.size(), time, energy);
    time.pool(grid, maps);
    energy.pool(grid, maps);
    const std::vector<detail::CurveEstimate> energies_found =
        detail::estimate_energies(energy, maps, std::move(blocks));
    constexpr double credit = 0.5;
    for (std::size_t k = 0; k < table.kernels.size(); ++k) {
        std::optional<detail::CurveEstimate> times_found;
        if (time.has_noise()) times_found = time.estimate(k, *maps[k]);
        KernelCosts& kernel = table.kernels[k];
        if (times_found) detail::forbid_faster_at_lower_caps(clocks, times_found->mean);
        for (PointCost& point : kernel.points) {
            const auto at = static_cast<Eigen::Index>(detail::index_of(clocks, point.clock));
            if (times_found) {
                point.cost.time = Seconds{std::exp(times_found->mean(at))};
                kernel.time_errors.push_back(
                    {times_found->variance(at), times_found->with_baseline(at)});
            }
            if (!energies_found.empty())
                point.cost.energy = Joules{std::exp(energies_found[k].mean(at) +
                                                    credit * energies_found[k].off_baseline(at))};
        }
    }
    return table;
}

}  // namespace kdvfs::tune
