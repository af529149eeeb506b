// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/counter_noise.hpp>
#include <kdvfs/measure/least_squares.hpp>
#include <kdvfs/measure/normal_equations.hpp>
#include <kdvfs/measure/row_block.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// Judges a block of rows in hindsight, together with the sums of all earlier ones: which rows are
/// believed, and with what weight. Two kinds of wrong rows are known. Single ones, where the
/// counter jumped: Huber's M-estimator bounds the pull of each. And a stretch in which something
/// else drew power that no scope covers: that bends any such estimator, so the powers are also
/// sought from the lower half of the rows (least trimmed squares, by the concentration steps of
/// Rousseeuw and van Driessen, Technometrics 41, 1999), and from the earlier sums alone.
class RobustFit {
public:
    /// A row further from the fit than this many standard deviations is refused (white noise is
    /// once in a million),
    static constexpr double tolerance = 5;
    /// but never for less than this share of its joules: no counter is that good.
    static constexpr double harmless = 1e-3;
    /// Where more than this share of a block would be refused, and not for external power, it is
    /// the fit that is wrong: the powers are not constant. The block is kept whole, and intervals
    /// become wide.
    static constexpr double most_refused = 0.25;
    /// Foreign power is more than this share of what the row's kernels draw. Powers that drift by
    /// less, as a board warms up, are no constant powers either.
    static constexpr double least_foreign = 0.10;
    /// Of all rows ever, at most this share is refused: the majority says what is normal.
    static constexpr double most_foreign = 0.45;

    /// @param noise          of the rows before, to begin with
    /// @param weighing       what the sums' rows were weighed by, and these are to be as well: a
    ///                       counter's noise does not change, so a block that scatters more is one
    ///                       that the fit does not hold for, and is to widen the intervals
    /// @param refused_before of the rows before
    /// @param shares         the largest share that each column had of a believed row before
    RobustFit(const RowBlock& block, const NormalEquations& sums, CounterNoise noise,
              std::optional<CounterNoise> weighing, std::uint64_t refused_before,
              const std::vector<double>& shares)
        : block_{block},
          sums_{sums},
          noise_{noise},
          weighing_{weighing},
          refused_before_{refused_before},
          shares_{shares},
          refused_(block.size()),
          excess_(block.size()),
          watts_(block.size()),
          by_power_(block.size()) {
        judge();
    }

    [[nodiscard]] bool refuses(std::size_t row) const { return refused_[row] != 0; }
    /// Joules beyond the fit.
    [[nodiscard]] double excess(std::size_t row) const { return excess_[row]; }
    /// The inverse variance of a believed row of weight 1.
    [[nodiscard]] double trust(std::size_t row) const { return trust_of(noise_, watts_[row]); }
    [[nodiscard]] const CounterNoise& noise() const { return noise_; }

private:
    using Marks = std::vector<unsigned char>;

    struct Candidate {
        CounterNoise noise;
        std::vector<double> excess;  ///< joules beyond the fit
        std::vector<double> watts;   ///< of the fit
        Marks refused;
    };

    [[nodiscard]] double trust_of(const CounterNoise& noise, double watts) const {
        return 1 / (weighing_ ? *weighing_ : noise).variance(watts);
    }
    void judge();
    [[nodiscard]] Candidate huber();
    void order_by_power(const Candidate& candidate);
    [[nodiscard]] Candidate from_lower_half(const Candidate& start) const;
    [[nodiscard]] bool mark_external_to_sums();
    void grow(Candidate& candidate) const;
    void look(const LeastSquares& fit, Candidate& candidate) const;
    [[nodiscard]] std::vector<double> shares_of(const Candidate& candidate) const;
    [[nodiscard]] bool contradicts(const LeastSquares& fit, const Candidate& candidate,
                                   std::size_t i, const std::vector<double>& shares,
                                   std::vector<double>& seconds) const;
    [[nodiscard]] CounterNoise noise_of(const Candidate& candidate, double spare) const;
    [[nodiscard]] bool is_external(const Candidate& candidate) const;
    [[nodiscard]] double spread_of_half(const Candidate& candidate) const;
    void accept(Candidate&& candidate) {
        noise_ = candidate.noise;
        excess_ = std::move(candidate.excess);
        watts_ = std::move(candidate.watts);
        refused_ = std::move(candidate.refused);
    }
    [[nodiscard]] double scaled(const Candidate& candidate, std::size_t i) const {
        return std::abs(candidate.excess[i]) * std::sqrt(block_.row(i).weight);
    }
    [[nodiscard]] double limit(const Candidate& candidate, std::size_t i, double deviations) const {
        const double least =
            harmless * std::abs(block_.row(i).joules) * std::sqrt(block_.row(i).weight);
        return std::max(deviations * std::sqrt(candidate.noise.variance(candidate.watts[i])),
                        least);
    }
    [[nodiscard]] static std::size_t count(const Marks& marks) {
        return static_cast<std::size_t>(std::count(marks.begin(), marks.end(), 1));
    }

    const RowBlock& block_;
    const NormalEquations& sums_;
    CounterNoise noise_;
    std::optional<CounterNoise> weighing_;
    std::uint64_t refused_before_;
    const std::vector<double>& shares_;
    Marks refused_;
    std::vector<double> excess_;
    std::vector<double> watts_;
    std::vector<std::size_t> by_power_;
    double mean_watts_ = 0;
    Marks foreign_;  ///< by the sums alone
};

inline void RobustFit::judge() {
    double joules = 0;
    double seconds = 0;
    for (std::size_t i = 0; i < block_.size(); ++i) {
        joules += std::abs(block_.row(i).joules);
        seconds += block_.row(i).seconds;
    }
    mean_watts_ = seconds > 0 ? joules / seconds : 0;
    if (mark_external_to_sums() && count(foreign_) == block_.size()) return;
    Candidate best = huber();
    Candidate low = from_lower_half(best);
    grow(best);
    // Without external power both ways find the same half, up to noise.
    constexpr double clearly = 0.7;
    if (spread_of_half(low) < clearly * spread_of_half(best)) {
        grow(low);
        if (is_external(low)) best = std::move(low);
    }
    const auto rows = static_cast<double>(block_.size());
    if (static_cast<double>(count(best.refused)) > most_refused * rows && !is_external(best)) {
        std::fill(best.refused.begin(), best.refused.end(), 0);
    }
    accept(std::move(best));
}

/// What the rows lie beyond a fit.
inline void RobustFit::look(const LeastSquares& fit, Candidate& candidate) const {
    constexpr double least_known = 0.5;
    candidate.excess.resize(block_.size());
    candidate.watts.resize(block_.size());
    for (std::size_t i = 0; i < block_.size(); ++i) {
        const double explained = block_.explained(i, fit);
        const double joules = block_.row(i).joules;
        candidate.excess[i] = joules - explained;
        // Of kernels that it hardly knows a fit may say anything, and noise follows power.
        candidate.watts[i] = std::max(explained, least_known * joules) / block_.row(i).seconds;
    }
}

/// The largest share that each column has of a believed row: what is known of it, however often it
/// was met, is no better than what such a row tells.
inline std::vector<double> RobustFit::shares_of(const Candidate& candidate) const {
    std::vector<double> shares = shares_;
    for (std::size_t i = 0; i < block_.size(); ++i) {
        if (candidate.refused[i] != 0) continue;
        for (const auto& entry : block_.entries(i)) {
            shares[entry.column] =
                std::max(shares[entry.column], entry.seconds / block_.row(i).seconds);
        }
    }
    return shares;
}

/// Whether a row lies further from a fit than its noise and the fit's own uncertainty allow. A row
/// of kernels that the fit hardly knows contradicts nothing: it may be all that is known of them.
/// @param seconds zeros, one per column; left as zeros
inline bool RobustFit::contradicts(const LeastSquares& fit, const Candidate& candidate,
                                   std::size_t i, const std::vector<double>& shares,
                                   std::vector<double>& seconds) const {
    if (scaled(candidate, i) <= limit(candidate, i, tolerance)) return false;
    // The prediction's own error costs most, so it is asked for last.
    double thin = 0;  // seconds, by how thinly the believed rows hold them
    for (const auto& entry : block_.entries(i)) {
        seconds[entry.column] = entry.seconds;
        thin += entry.seconds / std::max(shares[entry.column], harmless * harmless);
    }
    const Combination sum = fit.combine(seconds);
    for (const auto& entry : block_.entries(i)) seconds[entry.column] = 0;
    const double noise = candidate.noise.variance(candidate.watts[i]) / block_.row(i).weight;
    const double model = harmless * mean_watts_ * thin;
    const double deviation =
        std::sqrt(noise + sum.standard_error * sum.standard_error + model * model);
    return sum.open_seconds <= harmless * block_.row(i).seconds &&
           std::abs(candidate.excess[i]) > tolerance * deviation;
}

/// By the power that a fit gives the rows, not by their own: that would sort them by their noise.
/// Once is enough, since later fits differ little.
inline void RobustFit::order_by_power(const Candidate& candidate) {
    std::iota(by_power_.begin(), by_power_.end(), std::size_t{0});
    std::sort(by_power_.begin(), by_power_.end(), [&](std::size_t a, std::size_t b) {
        return candidate.watts[a] < candidate.watts[b];
    });
}

/// The noise of the rows that are not refused.
inline CounterNoise RobustFit::noise_of(const Candidate& candidate, double spare) const {
    std::vector<CounterNoise::Scatter> rows;
    rows.reserve(block_.size());
    for (const std::size_t i : by_power_) {
        if (candidate.refused[i] == 0) rows.push_back({candidate.watts[i], scaled(candidate, i)});
    }
    return CounterNoise::fit(rows, spare);
}

/// Iteratively reweighted least squares. 95 % as efficient as least squares on white noise.
inline RobustFit::Candidate RobustFit::huber() {
    constexpr double bend = 1.345;
    constexpr int rounds = 12;
    Candidate candidate{noise_, {}, {}, foreign_.empty() ? Marks(block_.size()) : foreign_};
    std::vector<double> trust(block_.size());
    for (std::size_t i = 0; i < block_.size(); ++i) {
        trust[i] = trust_of(noise_, block_.row(i).joules / block_.row(i).seconds);
    }
    double before = 0;
    for (int round = 0; round < rounds; ++round) {
        NormalEquations trial = sums_;
        for (std::size_t i = 0; i < block_.size(); ++i) {
            if (candidate.refused[i] == 0) block_.insert(i, trust[i], trial);
        }
        const LeastSquares fit = trial.solve();
        look(fit, candidate);
        if (round == 0) order_by_power(candidate);
        const auto rows = static_cast<double>(trial.rows());
        candidate.noise =
            noise_of(candidate, rows / std::max(1.0, rows - static_cast<double>(fit.rank())));
        double sum = 0;
        for (std::size_t i = 0; i < block_.size(); ++i) {
            const double variance = candidate.noise.variance(candidate.watts[i]);
            const double distance = scaled(candidate, i);
            const double most = limit(candidate, i, bend);
            trust[i] = (distance > most ? most / distance : 1.0) *
                       trust_of(candidate.noise, candidate.watts[i]);
            sum += std::log(variance);
        }
        const double mean = sum / static_cast<double>(block_.size());
        if (round > 0 && std::abs(mean - before) <= 2e-3) break;
        before = mean;
    }
    return candidate;
}

/// The fit to the half of the rows that lies closest to it, sought from the rows that have the
/// least joules beyond `start`: external power only ever adds.
inline RobustFit::Candidate RobustFit::from_lower_half(const Candidate& start) const {
    constexpr int steps = 6;
    Candidate candidate = start;
    std::vector<std::pair<double, std::size_t>> order(block_.size());
    for (std::size_t i = 0; i < block_.size(); ++i) {
        order[i] = {start.excess[i] * std::sqrt(block_.row(i).weight), i};
    }
    const std::size_t half = std::min(block_.size(), block_.size() / 2 + 1);
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(half);
    double before = 0;
    for (int step = 0; step < steps; ++step) {
        if (half < order.size()) {
            std::nth_element(order.begin(), middle, order.end());
            constexpr double settled = 0.99;
            if (step > 1 && middle->first > settled * before) break;
            before = step > 0 ? middle->first : std::numeric_limits<double>::infinity();
        }
        NormalEquations trial = sums_;
        for (std::size_t k = 0; k < half; ++k) {
            const std::size_t i = order[k].second;
            block_.insert(i, trust_of(start.noise, start.watts[i]), trial);
        }
        look(trial.solve(), candidate);
        for (auto& [distance, i] : order) distance = scaled(candidate, i);
    }
    return candidate;
}

/// From the rows that fit best to all rows that fit.
inline void RobustFit::grow(Candidate& candidate) const {
    constexpr int rounds = 6;
    constexpr double normal_median = 0.6745;
    std::vector<double> seconds(sums_.columns());
    for (int round = 0; round < rounds; ++round) {
        if (round == 0) {
            const double far = spread_of_half(candidate);
            for (std::size_t i = 0; i < block_.size(); ++i) {
                candidate.refused[i] =
                    scaled(candidate, i) > tolerance / normal_median * far ? 1 : 0;
            }
        }
        NormalEquations trial = sums_;
        candidate.noise = noise_of(candidate, 1);
        for (std::size_t i = 0; i < block_.size(); ++i) {
            if (candidate.refused[i] != 0) continue;
            block_.insert(i, trust_of(candidate.noise, candidate.watts[i]), trial);
        }
        const LeastSquares fit = trial.solve();
        look(fit, candidate);
        const auto rows = static_cast<double>(trial.rows());
        candidate.noise =
            noise_of(candidate, rows / std::max(1.0, rows - static_cast<double>(fit.rank())));
        bool changed = false;
        const std::vector<double> shares = shares_of(candidate);
        for (std::size_t i = 0; i < block_.size(); ++i) {
            const unsigned char refused = contradicts(fit, candidate, i, shares, seconds) ? 1 : 0;
            changed = changed || refused != candidate.refused[i];
            candidate.refused[i] = refused;
        }
        if (!changed) break;
    }
}

/// How far the half of the rows lies at most, of weight 1.
inline double RobustFit::spread_of_half(const Candidate& candidate) const {
    std::vector<double> distances(block_.size());
    for (std::size_t i = 0; i < block_.size(); ++i) distances[i] = scaled(candidate, i);
    const auto middle = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2);
    std::nth_element(distances.begin(), middle, distances.end());
    return *middle;
}

/// Whether the refused rows look like something else that drew power for a while: more than the
/// fit, clearly, in few stretches, and never for most of the time.
inline bool RobustFit::is_external(const Candidate& candidate) const {
    constexpr double nearly_all = 0.95;
    constexpr double clumped = 0.5;  // of the changes that rows in random order would have
    const std::size_t refused = count(candidate.refused);
    const auto rows = static_cast<double>(block_.size());
    const auto share = static_cast<double>(refused) / rows;
    const auto ever = static_cast<double>(refused_before_ + refused);
    if (refused == 0 ||
        ever > most_foreign * (rows + static_cast<double>(refused_before_ + sums_.rows()))) {
        return false;
    }
    std::size_t above = 0;
    double changes = 0;
    for (std::size_t i = 0; i < block_.size(); ++i) {
        if (i > 0 && candidate.refused[i] != candidate.refused[i - 1]) ++changes;
        if (candidate.refused[i] == 0) continue;
        const double explained = block_.row(i).joules - candidate.excess[i];
        if (candidate.excess[i] > least_foreign * std::abs(explained)) ++above;
    }
    return static_cast<double>(above) >= nearly_all * static_cast<double>(refused) &&
           (share <= most_refused || changes <= clumped * 2 * share * (1 - share) * rows + 2);
}

/// Marks rows that have far more joules than the earlier rows alone predict, where those are many
/// and tell all columns apart. A load that goes on for a whole block is seen in no other way.
/// @returns whether there are any
inline bool RobustFit::mark_external_to_sums() {
    constexpr std::size_t most_columns = 128;  // a prediction's error costs their square
    if (sums_.rows() < block_.size() || sums_.columns() > most_columns) return false;
    const LeastSquares fit = sums_.solve();
    Candidate candidate{noise_, {}, {}, Marks(block_.size())};
    look(fit, candidate);
    std::vector<double> seconds(sums_.columns());
    for (std::size_t i = 0; i < block_.size(); ++i) {
        const bool above = candidate.excess[i] > least_foreign * std::abs(block_.row(i).joules);
        candidate.refused[i] = above && contradicts(fit, candidate, i, shares_, seconds) ? 1 : 0;
    }
    if (!is_external(candidate)) return false;
    foreign_ = candidate.refused;
    if (count(foreign_) == block_.size()) accept(std::move(candidate));
    return true;
}

}  // namespace kdvfs::measure
