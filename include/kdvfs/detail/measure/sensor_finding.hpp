// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/limited_sample.hpp>
#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/sensor_posterior.hpp>
#include <kdvfs/detail/measure/sensor_prior.hpp>
#include <kdvfs/detail/measure/sensor_sample.hpp>
#include <kdvfs/detail/measure/unlike_runs.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// What the readings of a power log say of the powers, with the sensor unknown.
struct SensorFinding {
    Sensor likely{};
    RowSums rows;                        ///< under the likeliest sensor
    NormalSums assumed{};                ///< likewise, of as many rows as the hypotheses
    std::vector<NormalSums> hypotheses;  ///< of the powers, as likely as each other
    bool usual = false;                  ///< to be taken for NVIDIA's log of 20 ms (`LogMemories`)
    bool stale = false;                  ///< not as it was measured (`SensorCalibration`)
    /// Far above 1 where the board is not as the model has it; beds that are leave at most 2.2.
    double overcount = 1;
    static constexpr double most_overcount = 2.5;
    /// W that the power wanders by from second to second while the same runs; 0 where a limiter
    /// moves it.
    double wanders = 0;
    /// Covariance of what powers are off by because they depend on the kernel before, or change
    /// inside runs, W^2; empty where a limiter moves them.
    SymmetricMatrix unlike{};
    /// How much powers change inside runs and gaps, root mean square, of the mean power. Beds that
    /// are as the model has it have at most 0.025.
    double uneven = 0;
    static constexpr double most_uneven = 0.05;
    std::size_t left_out = 0;  ///< rows that were taken for faults
    double left = 0;           ///< W of a reading, root mean square, that are unexplained
    double deviation = 0;      ///< W of a reading from the mean of all

    /// What these columns draw at least under the likeliest sensor, W: two standard deviations
    /// below the estimate.
    [[nodiscard]] std::vector<double> least_watts(std::span<const std::size_t> columns) const {
        const PowerPrior prior{rows.power.mean_watts(), PowerPrior::differing(rows), {}};
        const Cholesky factor = prior.factor(rows.level.gram);
        const std::vector<double> watts = prior.watts(factor, rows.level.right);
        std::vector<double> least;
        for (const std::size_t column : columns) {
            std::vector<double> unit(watts.size());
            unit[column] = 1;
            const double variance = factor.solve(std::move(unit))[column];
            least.push_back(watts[column] - 2 * std::sqrt(variance));
        }
        return least;
    }
    /// Whether powers are to be taken from it, of columns that had so many seconds.
    [[nodiscard]] bool holds(std::span<const double> seconds) const {
        return !usual && !runs_are_few(seconds);
    }
    /// Whether most of the time belongs to kernels that ran too seldom to know their scatter by:
    /// a few long runs, of which timestamps say enough.
    [[nodiscard]] bool runs_are_few(std::span<const double> seconds) const {
        constexpr double few = 4;
        double all = 0;
        double seldom = 0;
        for (std::size_t j = 0; j < seconds.size(); ++j) {
            if (j == RowSums::idle_column) continue;
            all += seconds[j];
            const double runs = rows.shares[j] * rows.shares[j];
            if (runs < few * rows.squared_shares[j]) seldom += seconds[j];
        }
        return seldom > 0.5 * all;
    }
    /// How long the time is that a reading shows most of, s.
    [[nodiscard]] double window(double period) const {
        return likely.memory > 0 ? period : likely.window;
    }
};

/// Whether a log is most likely that of NVIDIA's boards, and too short to show another: of an
/// H200's recording of which one step in four is metered, the model resolves a kernel 177 W beside
/// the whole recording's figure, where its interval and the other one's are 40 W.
[[nodiscard]] inline bool is_short_usual_log(const SensorSample& sample) {
    constexpr std::size_t few = 1000;  // readings are no reason to leave the family
    return SensorPrior::has_family(sample.period()) && sample.readings() < few;
}

/// What one posterior says, and how well it explains the readings.
[[nodiscard]] inline SensorFinding finding_of(const SensorPosterior& posterior) {
    SensorFinding found;
    found.likely = posterior.likely();
    found.rows = posterior.row_sums(found.likely);
    found.assumed = posterior.equations(found.likely);
    for (const SensorGuess& guess : posterior.cloud()) {
        found.hypotheses.push_back(posterior.equations(posterior.sensor(guess)));
    }
    found.overcount = posterior.clustering();
    found.left_out = posterior.left_out();
    found.left = posterior.unexplained();
    return found;
}

/// Whether a log's sensor is to be taken for that of NVIDIA's boards. Where powers differ inside
/// runs, as on these boards, the model leaves an overcount of 4 to 10 (its own boards 1 to 2), or
/// finds the sensor to 0.4 ms and 11 % (an H200) and believes its own powers too much: near that
/// log, or with such an overcount where that log explains nearly as much, it is that log.
[[nodiscard]] inline bool is_usual_log(const SensorPosterior& posterior,
                                       const SensorFinding& found) {
    constexpr double near_delay = 1e-3;   // s
    constexpr double near_memory = 0.25;  // of it
    // Of what readings leave, root mean square: on recordings of five boards 1.02 to 1.35.
    constexpr double nearly = 1.5;
    const Sensor log{.delay = 3.4e-3, .memory = 12.8e-3};
    const Sensor& likely = found.likely;
    const bool near = std::abs(likely.delay + likely.rise - log.delay) < near_delay &&
                      std::abs(likely.memory / log.memory - 1) < near_memory;
    if (near || posterior.plausible(log)) return true;
    return found.overcount > SensorFinding::most_overcount &&
           posterior.row_sums(log).scatter < nearly * nearly * found.rows.scatter;
}

/// Finds the sensor of the log of a board whose power limiter moves the powers of kernels
/// (`LimitedPowers`). The limiter's rate is one more parameter that is integrated out: a part of
/// the sample says where it lies, the whole what it makes of the powers there.
class LimitedFinding {
public:
    /// @param limit of the board's power, W
    LimitedFinding(const SensorSample& sample, ColumnPrior columns, SensorPrior prior, double limit)
        : sample_{&sample}, columns_{std::move(columns)}, prior_{prior}, limit_{limit} {}

    /// @param takes_usual as `SensorFinding::usual`, of a posterior and what it found
    /// @param add_errors  to what a posterior of the whole sample found
    /// @returns nothing where there are too few readings
    template <class TakesUsual, class AddErrors>
    [[nodiscard]] std::optional<SensorFinding> find(TakesUsual takes_usual,
                                                    AddErrors add_errors) const {
        const SensorSample sparse = static_cast<double>(sample_->rows().size()) > part * fewest
                                        ? sample_->thinned(part)
                                        : *sample_;
        const SensorPosterior free{sparse, false, columns_, prior_};
        if (!free.solved()) return {};
        const std::vector<double> watts = free.watts(free.likely());
        const auto at = [&](const SensorSample& sample, double rate,
                            std::optional<SensorGuess> about = {},
                            std::span<const SensorGuess> known = {}) {
            const SensorSample limited = LimitedPowers{sample, watts, limit_, rate}.sample();
            const SensorPosterior posterior{
                limited, false, columns_, prior_, {.about = about, .known = known}};
            Fit fit{rate, finding_of(posterior), {}};
            fit.finding.usual = takes_usual(posterior, fit.finding);
            if (&sample == sample_) add_errors(posterior, fit.finding);
            fit.cloud.assign(posterior.cloud().begin(), posterior.cloud().end());
            return fit;
        };
        std::vector<Fit> parts;
        for (const double rate : rates) parts.push_back(at(sparse, rate));
        const auto [centre, apart] = likely_rate(parts);
        std::vector<Fit> all;
        all.push_back(at(*sample_, centre, nearest(parts, centre)));
        for (const double rate : {centre * apart, centre / apart}) {
            all.push_back(at(*sample_, rate, {}, moved(all.front(), rate, parts)));
        }
        // Powers that follow the limit at once, or not at all.
        parts.push_back({0, finding_of(free), {}});
        if (heights(parts).back() >= 0) {
            const SensorPosterior posterior{*sample_, false, columns_, prior_};
            all.push_back({0, finding_of(posterior), {}});
            all.back().finding.usual = takes_usual(posterior, all.back().finding);
            add_errors(posterior, all.back().finding);
        }
        return mixed(std::move(all));
    }

private:
    static constexpr std::int64_t part = 4;
    static constexpr double fewest = 200;  ///< rows that say something of a rate
    /// Per second: 27 to 33 on H100 and H200 boards (bench/boards), unknown on others.
    static constexpr std::array rates{14.0, 28.0, 56.0};

    struct Fit {
        double rate;
        SensorFinding finding;
        std::vector<SensorGuess> cloud;

        [[nodiscard]] double square() const {
            return finding.rows.scatter / std::max(finding.rows.rows, 1.0);
        }
        [[nodiscard]] SensorGuess mean() const {
            SensorGuess mean{.shape = cloud.front().shape};
            double count = 0;
            for (const SensorGuess& guess : cloud) {
                if (guess.shape != mean.shape) continue;
                ++count;
                for (std::size_t k = 0; k < 3; ++k) {
                    mean.at[k] += (guess.at[k] - mean.at[k]) / count;
                }
            }
            return mean;
        }
    };

    /// How well fits of the same readings explain them: the logarithm of the likelihood, with the
    /// overcount of the best, whose height is 0. Rows that one took for faults count by their least
    /// error.
    [[nodiscard]] static std::vector<double> heights(std::span<const Fit> all) {
        double rows = 1;
        double noise = std::numeric_limits<double>::infinity();
        for (const Fit& each : all) {
            rows = std::max(rows, each.finding.rows.rows);
            noise = std::min(noise, each.square());
        }
        std::vector<double> found;
        std::size_t best = 0;
        for (const Fit& each : all) {
            const double faults = (rows - each.finding.rows.rows) * SensorPosterior::far *
                                  SensorPosterior::far * noise;
            found.push_back(-0.5 * rows * std::log(each.finding.rows.scatter + faults));
            if (found.back() > found[best]) best = found.size() - 1;
        }
        const double highest = found[best];
        for (double& each : found) each = (each - highest) / all[best].finding.overcount;
        return found;
    }
    /// The likeliest rate and the factor of one deviation, by a parabola through the heights at
    /// `rates`; behind its ends it says little.
    [[nodiscard]] static std::pair<double, double> likely_rate(std::span<const Fit> parts) {
        const std::vector<double> height = heights(parts);
        const double step = std::log(rates[1] / rates[0]);
        const double bends = std::max((2 * height[1] - height[0] - height[2]) / (step * step), 1.0);
        const double tilts = (height[2] - height[0]) / (2 * step);
        return {rates[1] * std::exp(std::clamp(tilts / bends, -step, step)),
                std::exp(std::clamp(1 / std::sqrt(bends), 0.15, 0.7))};
    }
    /// What the part's fit whose rate is nearest looks for, with the rise in its delay.
    [[nodiscard]] static SensorGuess nearest(std::span<const Fit> parts, double rate) {
        const auto far = [&](const Fit& each) { return std::abs(std::log(each.rate / rate)); };
        SensorGuess guess =
            std::min_element(parts.begin(), parts.end(), [&](const Fit& a, const Fit& b) {
                return far(a) < far(b);
            })->mean();
        guess.at[0] += guess.at[2];
        return guess;
    }
    /// The cloud of a fit, moved to another rate as the parts' sensors move with theirs.
    [[nodiscard]] static std::vector<SensorGuess> moved(const Fit& from, double rate,
                                                        std::span<const Fit> parts) {
        const SensorGuess low = parts.front().mean();
        const SensorGuess high = parts.back().mean();
        const double by = std::log(rate / from.rate) / std::log(rates.back() / rates.front());
        std::vector<SensorGuess> cloud = from.cloud;
        if (low.shape != high.shape) return cloud;
        for (SensorGuess& guess : cloud) {
            if (guess.shape != low.shape) continue;
            for (std::size_t k = 0; k < 3; ++k) guess.at[k] += by * (high.at[k] - low.at[k]);
            guess.at[2] = std::max(guess.at[2], 0.0);
        }
        return cloud;
    }
    /// As many hypotheses of each as it is likely; all else is the likeliest one's.
    [[nodiscard]] static SensorFinding mixed(std::vector<Fit> all) {
        std::vector<double> weights = heights(all);
        double sum = 0;
        for (double& weight : weights) sum += weight = std::exp(weight);
        const auto best = static_cast<std::size_t>(
            std::max_element(weights.begin(), weights.end()) - weights.begin());
        std::vector<NormalSums> hypotheses;
        double before = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
            std::vector<NormalSums>& own = all[i].finding.hypotheses;
            const auto many = static_cast<double>(own.size());
            const auto first = static_cast<std::size_t>(std::lround(many * before));
            before += weights[i] / sum;
            const auto last = static_cast<std::size_t>(std::lround(many * before));
            for (std::size_t k = first; k < last; ++k) hypotheses.push_back(std::move(own[k]));
        }
        all[best].finding.hypotheses = std::move(hypotheses);
        return std::move(all[best].finding);
    }

    const SensorSample* sample_;
    ColumnPrior columns_;
    SensorPrior prior_;
    double limit_;
};

/// Adds to the powers' errors that the powers of their parts differ.
/// @returns how much they do, W
inline double add_unlike(SensorFinding& found, const SensorPosterior& posterior,
                         const SplitSample& split, double mean) {
    if (!split.splits()) return 0;
    const ColumnPrior prior = ColumnPrior::around(mean, split.columns.size());
    const UnlikeRuns unlike{posterior.row_sums(found.likely, split.sample, prior), split.columns,
                            prior};
    unlike.add_to(found.unlike);
    return unlike.deviation(found.rows.columns());
}

/// Adds to the powers' errors that kernels of one column have unlike powers.
/// @param kernels the sample with a column of each
inline void add_merged(SensorFinding& found, const SensorPosterior& posterior,
                       const SplitSample& kernels, double mean) {
    const std::span<const std::size_t> places = posterior.places();
    std::vector<std::size_t> whole = kernels.columns;
    for (std::size_t& each : whole) {
        if (each != MergedColumns::left_out) each = places[each];
    }
    const ColumnPrior prior = ColumnPrior::around(mean, whole.size());
    const SymmetricMatrix errors =
        errors_of_merging(posterior.row_sums(found.likely, kernels.sample, prior), whole,
                          *std::max_element(places.begin(), places.end()) + 1);
    for (std::size_t i = 0; i < places.size(); ++i) {
        for (std::size_t j = 0; j <= i; ++j) found.unlike(i, j) += errors(places[i], places[j]);
    }
}

/// Finds the sensor of a power log or a counter (`SensorPosterior`), and the powers under each
/// hypothesis of it.
/// @param columns how many there are; idle is the first
/// @param counter rows are differences of a counter
/// @param measured the sensor as `kdvfs measure-sensor` found it
/// @param limit   of the board's power, W, where kernels draw about as much and a log is read; else
/// 0
/// @param kernels the sample with a column of each kernel, where some have been merged
/// @returns nothing where there are too few readings
[[nodiscard]] inline std::optional<SensorFinding> find_sensor(
    const SensorSample& sample, std::size_t columns, bool counter = false,
    const std::optional<MeasuredSensor>& measured = {}, double limit = 0,
    const SplitSample* kernels = nullptr) {
    double sum = 0;
    double squares = 0;
    double count = 0;
    for (const SensorSample::Row& row : sample.rows()) {
        sum += row.watts;
        squares += row.watts * row.watts;
        ++count;
    }
    if (count < static_cast<double>(SensorPosterior::fewest_rows)) return {};
    const double mean = sum / count;
    const auto period = std::chrono::duration_cast<Duration>(Seconds{sample.period()});
    const ColumnPrior centred = ColumnPrior::around(mean, columns);
    const SensorPrior prior = measured  ? SensorPrior::of(*measured)
                              : counter ? SensorPrior{}
                                        : SensorPrior::of_log(period);
    // A measured sensor does not make powers alike inside runs (`is_usual_log`).
    const bool has_family = !counter && SensorPrior::has_family(sample.period());
    const auto takes_usual = [&](const SensorPosterior& of, const SensorFinding& found) {
        return has_family && is_usual_log(of, found);
    };
    const auto add_kernels = [&](const SensorPosterior& of, SensorFinding& to) {
        to.unlike = SymmetricMatrix{columns};
        if (kernels != nullptr) add_merged(to, of, *kernels, mean);
    };
    std::optional<SensorFinding> found;
    if (limit > 0) {
        found = LimitedFinding{sample, centred, prior, limit}.find(takes_usual, add_kernels);
    } else if (SensorPosterior posterior{sample, counter, centred, prior}; posterior.solved()) {
        posterior.choose_way();
        found = finding_of(posterior);
        found->usual = takes_usual(posterior, *found);
        add_kernels(posterior, *found);
        add_unlike(*found, posterior, split_by_neighbour(sample), mean);
        // The response of NVIDIA's logs is for boards whose powers change inside runs.
        if (!found->usual) {
            found->uneven = add_unlike(*found, posterior, split_by_third(sample, columns), mean) /
                            std::max(mean, 1.0);
        }
        found->wanders = posterior.wanders(found->likely);
        const auto known =
            std::count_if(posterior.cloud().begin(), posterior.cloud().end(),
                          [&](const SensorGuess& each) { return prior.is_known(each); });
        found->stale = measured && 2 * static_cast<std::size_t>(known) < posterior.cloud().size();
    }
    if (found) found->deviation = std::sqrt(std::max(squares / count - mean * mean, 0.0));
    return found;
}

}  // namespace kdvfs::inline v0_3::measure
