// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/symmetric_matrix.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// Normal equations of rows scaled to unit variance, and how far chance moves them.
struct NormalSums {
    SymmetricMatrix gram;
    SymmetricMatrix scatter;  ///< covariance of `right` about gram * watts
    std::vector<double> right;
    double rows = 0;  ///< as far as they are counted: `RowSums::filled`

    void grow(std::size_t columns) {
        gram.grow(columns);
        scatter.grow(columns);
        right.resize(columns);
    }
};

/// The mean power of rows, each by how much of it kernels ran; of all rows where none did: a long
/// idle stretch says nothing of what kernels draw.
class MeanPower {
public:
    /// @param busy share of the row in which a kernel ran
    void add_power(double watts, double busy) {
        ++rows_;
        watts_ += watts;
        busy_ += busy;
        busy_watts_ += busy * watts;
    }
    [[nodiscard]] double mean_watts() const {
        constexpr double some = 1;  // row
        return busy_ > some ? busy_watts_ / busy_ : watts_ / std::max(rows_, 1.0);
    }

private:
    double rows_ = 0;
    double watts_ = 0;
    double busy_ = 0;
    double busy_watts_ = 0;
};

/// What is kept of rows that were fitted; grows with the columns, never with the rows.
struct RowSums {
    /// Of the time in which nothing runs.
    static constexpr std::size_t idle_column = 0;

    NormalSums level;       ///< of the rows as they are: hits each column's mean over its time
    NormalSums white;       ///< of the rows less what those before them foretell: least noise
    bool whitened = false;  ///< `white` differs from `level`; before, it is empty
    /// Where kernels are to be repeated (`keeps_filled`): of `white`, or of `level` before it, the
    /// rows that kernels fill for the most part.
    NormalSums filled;
    bool keeps_filled = false;
    std::vector<double> shares;
    std::vector<double> squared_shares;
    /// What lies beyond the fit in rows that a column shares with others, W times rows, and the
    /// square of what chance makes of it.
    std::vector<double> shared_excess;
    std::vector<double> shared_variance;
    /// What lies beyond `RowFit::huber` and was drawn in, W times rows.
    std::vector<double> winsorized;
    /// How much more the rows have than those before them, W times rows.
    std::vector<double> changes;
    /// Of a row of this column alone and of a second, relative to its power squared; as last seen.
    std::vector<double> variances;
    /// Which columns say how a kernel's power differs inside its runs: how much more a part of
    /// their time draws than the whole. They have no time of their own, and shares of either sign.
    std::vector<char> inside;
    std::vector<char> rests;  ///< by column: nothing runs in its time
    /// How far a row may be off after a change of the power, as a part of it: its meter's memory
    /// and delay are known to so much only.
    double change_error = 0;
    double change_fades = 0;  ///< what is left of that in the next row
    double rows = 0;
    double fewer_rows = 0;  ///< rows without autocorrelation that would say as much
    double product = 0;     ///< of a row's noise and that of the row before it
    double square = 0;
    MeanPower power;
    double scatter = 0;  ///< sum of the squares of what rows lie beyond the fit, W^2

    [[nodiscard]] std::size_t columns() const { return shares.size(); }
    void add_column(bool is_inside = false, bool is_rest = false) {
        const std::size_t columns = shares.size() + 1;
        inside.push_back(is_inside ? 1 : 0);
        rests.push_back(is_rest || columns == idle_column + 1 ? 1 : 0);
        level.grow(columns);
        if (whitened) white.grow(columns);
        if (keeps_filled) filled.grow(columns);
        for (auto* sums : {&shares, &squared_shares, &shared_excess, &shared_variance, &winsorized,
                           &changes, &variances})
            sums->resize(columns);
    }
    [[nodiscard]] double autocorrelation() const { return square > 0 ? product / square : 0; }
};

/// What is known of a column's power from elsewhere, W.
struct PowerBelief {
    double watts = 0;
    double deviation = 0;  ///< 0: nothing is known
    /// So much longer a call took there: at another clock, or waiting for its launch.
    double longer = 1;
};

/// What is assumed of columns' powers before any row is seen: they lie around the board's mean.
struct PowerPrior {
    double mean = 0;
    /// By about this. It matters only where the rows say nothing; boards draw 0 to 750 W (MI300X),
    /// so this assumes next to nothing.
    double spread = 500;
    std::span<const char> inside{};  ///< as `RowSums` has it; those lie around 0

    [[nodiscard]] bool is_inside(std::size_t i) const {
        return i < inside.size() && inside[i] != 0;
    }
    [[nodiscard]] double centre(std::size_t i) const { return is_inside(i) ? 0 : mean; }
    /// Kernels of one program, and parts of their runs, differ by so much of their mean (METHODS:
    /// 200 to 700 W of 450).
    static constexpr double differs = 0.4;
    [[nodiscard]] static double differing(const RowSums& rows) {
        return std::max(differs * std::abs(rows.power.mean_watts()), 1.0);
    }
    [[nodiscard]] double precision(std::size_t i) const {
        const double by = is_inside(i) ? std::max(differs * std::abs(mean), 1.0) : spread;
        return 1 / (by * by);
    }
    /// The factor of the normal equations of rows and prior.
    [[nodiscard]] Cholesky factor(SymmetricMatrix gram) const {
        for (std::size_t i = 0; i < gram.size(); ++i) gram(i, i) += precision(i);
        return Cholesky{gram};
    }
    /// The powers that they say.
    [[nodiscard]] std::vector<double> watts(const Cholesky& factor,
                                            std::vector<double> right) const {
        for (std::size_t i = 0; i < right.size(); ++i) right[i] += centre(i) * precision(i);
        return factor.solve(std::move(right));
    }
};

/// The watts of all columns and the covariance of their errors.
///
/// There are two ways to see the rows. As they are, they hit each column's mean power over its
/// time, whatever that power depends on (but see `UnlikeRuns`), but noise that lasts from row to
/// row weighs heavily. Less what the rows before foretell, they lose that noise, but they weigh how
/// powers change at a column's begin and end, and miss its mean where the power depends on what ran
/// before or for how long. Where the two differ by no more than the noise explains, the second is
/// taken, else the first: the way of least mean square error, whose bias the difference of both
/// shows.
class PowerEstimate {
public:
    /// @param seconds of each column: what its watts weigh in the choice of the way
    /// @param spread  of the columns' powers, as `PowerPrior` has it
    /// @param edges   of each column's seconds, those that may belong to what ran before or after
    /// @param repeated by column, may be shorter; what the rows say of their sum and mixes tells
    ///                how far they are off
    PowerEstimate(const RowSums& sums, std::span<const double> seconds, double spread,
                  std::span<const double> edges = {}, std::span<const PowerBelief> repeated = {});

    /// Takes others of the same powers for as right as their rows make them (Bayesian model
    /// averaging; Hoeting et al., Statistical Science 14, 1999): the mean of all, whose error is
    /// each one's own and what they differ by.
    /// @param between the truth may lie between two of a kind, which are two places apart: rows may
    ///                prefer the nearer one by far, so that ways next to a likely one count as much
    void mix(std::span<const PowerEstimate> others, bool between);

    /// Integrates the sensor out: the powers move by the mean of what hypotheses of the sensor
    /// make of them beyond what `from` does, whose covariance is the sensor's part of the error.
    /// @param from equations of the hypothesis that the rows of this estimate rest on
    void integrate(const NormalSums& from, std::span<const NormalSums> hypotheses);

    /// The sensor may also be any of the hypotheses, whose powers differ from these: a systematic
    /// error, which is the sensor's part. The powers stay as they are.
    /// @param seconds of each column: the joules of all together are the counter's
    void doubt(std::span<const NormalSums> hypotheses, std::span<const double> seconds);

    /// Rows beyond as many as the powers that they determine.
    [[nodiscard]] double degrees_of_freedom() const { return degrees_; }
    /// Of all columns' joules as the rows' own noise moves the counter, J^2: the scatter of the
    /// level way, whichever was taken.
    [[nodiscard]] double total_variance() const { return total_variance_; }
    [[nodiscard]] bool whitened() const { return whitened_; }
    [[nodiscard]] const std::vector<double>& watts() const { return watts_; }
    [[nodiscard]] const SymmetricMatrix& covariance() const { return covariance_; }
    /// The part of the covariance that comes from not knowing the sensor.
    [[nodiscard]] const SymmetricMatrix& sensor_covariance() const { return sensor_; }
    /// The watts before negative ones were set to zero.
    [[nodiscard]] const std::vector<double>& unbounded_watts() const { return unbounded_; }
    /// Column `j` is off by `error`, W, which its variance does not explain: so are the columns
    /// that it trades power with, by as much as their errors go together.
    void widen(std::size_t j, double error) {
        std::vector<double> moved(covariance_.size());
        const double share = error / std::max(covariance_(j, j), 1e-300);
        for (std::size_t i = 0; i < moved.size(); ++i) moved[i] = share * covariance_(i, j);
        covariance_.add_outer(moved, 1);
    }
    /// The powers have other errors, too, of this covariance; of all columns, or empty.
    void add_errors(const SymmetricMatrix& errors) {
        if (errors.size() > 0) covariance_ += errors;
    }
    /// All columns together had so many joules in these seconds: known as well as a counter says.
    void agree(std::span<const double> seconds, double joules) {
        constexpr double resolution = 2e-4;  // of the joules
        std::vector<double> shares(seconds.size());
        double variance = std::pow(resolution * joules, 2);
        double missing = joules;
        for (std::size_t i = 0; i < seconds.size(); ++i) {
            for (std::size_t j = 0; j < seconds.size(); ++j) {
                shares[i] += covariance_(i, j) * seconds[j];
            }
            variance += shares[i] * seconds[i];
            missing -= watts_[i] * seconds[i];
        }
        if (!(variance > 0)) return;
        for (std::size_t i = 0; i < seconds.size(); ++i) {
            watts_[i] += shares[i] * missing / variance;
            unbounded_[i] += shares[i] * missing / variance;
        }
        covariance_.add_outer(shares, -1 / variance);
    }
    /// All powers may be too high by any part of so many watts.
    void add_common_error(double watts) {
        // The variance of what is evenly spread up to the whole, and room for the noise where it is
        // the whole.
        constexpr double spread = 1.0 / 2;
        if (watts <= 0) return;
        std::vector<double> columns(covariance_.size(), watts);
        for (std::size_t j = 0; j < columns.size(); ++j) {
            if (prior_.is_inside(j)) columns[j] = 0;
        }
        covariance_.add_outer(columns, spread);
    }
    /// The part of what these seconds' joules may be off by, squared, that lies between the edges
    /// of runs and the idle time beside them.
    [[nodiscard]] double edge_variance(std::span<const double> seconds) const {
        double joules = 0;
        for (std::size_t j = 0; j < std::min(seconds.size(), edges_.size()); ++j)
            joules += seconds[j] * edges_[j];
        return even * joules * joules;
    }
    /// From how many independent rows a column's scatter is known.
    [[nodiscard]] double rows_of(std::size_t column) const { return rows_of_[column]; }
    /// Powers in place as a multiple of those repeated, and how far single ones are off that.
    [[nodiscard]] double repeated_scale() const { return repeated_scale_; }
    [[nodiscard]] double repeated_spread() const { return repeated_spread_; }

private:
    /// Rows' worth of a repeated power, from which its scatter is known.
    static constexpr double repeated_worth = 30;
    static constexpr double even = 1.0 / 3;  ///< variance of what is evenly spread over -1 to 1

    struct Way {
        std::vector<double> watts;
        SymmetricMatrix covariance;
        double known = 0;  ///< how many powers the rows determine
    };
    [[nodiscard]] Way solve(const NormalSums& sums) const;
    [[nodiscard]] std::vector<double> non_negative(const NormalSums& sums,
                                                   std::vector<double> watts) const;
    void apply_prior(const RowSums& rows, std::span<const PowerBelief> repeated);
    [[nodiscard]] std::vector<PowerBelief> in_place(const NormalSums& all,
                                                    std::span<const PowerBelief> repeated) const;
    void centre(std::span<const PowerBelief> repeated, double spread);
    [[nodiscard]] double evidence(const NormalSums& sums) const;
    [[nodiscard]] Cholesky factor(SymmetricMatrix gram) const;
    [[nodiscard]] std::vector<double> pulled(std::vector<double> right) const;
    void choose(Way level, Way white, std::span<const double> seconds);
    void add_model_error(const RowSums& sums);
    void add_edge_error(std::span<const double> seconds, std::span<const double> edges);

    PowerPrior prior_;
    std::vector<double> centre_;     // of each column's power before the rows speak, W
    std::vector<double> precision_;  // of it
    double repeated_scale_ = 1;
    double repeated_spread_ = 0;
    double degrees_ = 0;
    double known_ = 0;          ///< powers that the rows determine
    double rows_variance_ = 0;  ///< of what the rows leave, W^2
    double total_variance_ = 0;
    bool whitened_ = false;
    std::vector<double> watts_;
    std::vector<double> unbounded_;
    SymmetricMatrix covariance_;
    std::vector<double> edges_;  // W, that edges of runs may have of the idle time; may be empty
    SymmetricMatrix sensor_;     // of it; empty where the sensor was not integrated out
    std::vector<double> rows_of_;
};

inline PowerEstimate::PowerEstimate(const RowSums& sums, std::span<const double> seconds,
                                    double spread, std::span<const double> edges,
                                    std::span<const PowerBelief> repeated)
    : prior_{sums.power.mean_watts(), spread, sums.inside} {
    for (std::size_t i = 0; i < sums.columns(); ++i) {
        centre_.push_back(prior_.centre(i));
        precision_.push_back(prior_.precision(i));
    }
    apply_prior(sums, repeated);
    Way level = solve(sums.level);
    known_ = level.known;
    degrees_ = sums.rows - known_;
    rows_variance_ = sums.scatter / std::max(sums.rows, 1.0);
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        for (std::size_t j = 0; j < seconds.size(); ++j) {
            total_variance_ += seconds[i] * seconds[j] * level.covariance(i, j);
        }
    }
    if (sums.whitened) {
        choose(std::move(level), solve(sums.white), seconds);
    } else {
        watts_ = std::move(level.watts);
        covariance_ = std::move(level.covariance);
    }
    add_model_error(sums);
    add_edge_error(seconds, edges);
    unbounded_ = watts_;
    watts_ = non_negative(whitened_ ? sums.white : sums.level, std::move(watts_));
    const double independent = whitened_ ? 1 : sums.fewer_rows / std::max(sums.rows, 1.0);
    for (std::size_t j = 0; j < sums.columns(); ++j) {
        const double shares = sums.shares[j];
        const double rows =
            sums.squared_shares[j] > 0 ? shares * shares / sums.squared_shares[j] : 0;
        rows_of_.push_back(independent * rows);
        const bool known = j < repeated.size() && repeated[j].deviation > 0;
        if (known) rows_of_.back() += repeated_worth;
    }
}

inline void PowerEstimate::mix(std::span<const PowerEstimate> others, bool between) {
    if (others.empty()) return;
    // A step that repeats shows a slow counter a few mixes again and again, and what a model lacks
    // is the same in each: rows count for as many as they determine powers.
    std::vector<const PowerEstimate*> all{this};
    for (const PowerEstimate& other : others) all.push_back(&other);
    const PowerEstimate& likeliest = **std::min_element(
        all.begin(), all.end(),
        [](const auto* a, const auto* b) { return a->rows_variance_ < b->rows_variance_; });
    std::vector<double> weights;
    double sum = 0;
    for (const PowerEstimate* each : all) {
        const double more = each->rows_variance_ / std::max(likeliest.rows_variance_, 1e-12) - 1;
        weights.push_back(std::exp(-0.5 * std::min(likeliest.known_, likeliest.degrees_) * more));
    }
    const std::vector<double> alone = weights;
    for (std::size_t i = 0; between && i + 2 < alone.size(); ++i) {
        weights[i] += alone[i + 2];
        weights[i + 2] += alone[i];
    }
    for (const double weight : weights) sum += weight;
    PowerEstimate mixed = likeliest;
    const auto mean = [&](auto of) {
        double result = 0;
        for (std::size_t i = 0; i < all.size(); ++i) result += weights[i] / sum * of(*all[i]);
        return result;
    };
    for (std::size_t j = 0; j < watts_.size(); ++j) {
        mixed.unbounded_[j] = mean([&](const PowerEstimate& each) { return each.unbounded_[j]; });
        mixed.watts_[j] = mean([&](const PowerEstimate& each) { return each.watts_[j]; });
        mixed.rows_of_[j] = mean([&](const PowerEstimate& each) { return each.rows_of_[j]; });
    }
    mixed.covariance_ = SymmetricMatrix{watts_.size()};
    std::vector<double> apart(watts_.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        for (std::size_t j = 0; j < apart.size(); ++j) {
            apart[j] = all[i]->watts_[j] - mixed.watts_[j];
            for (std::size_t k = 0; k <= j; ++k) {
                mixed.covariance_(j, k) += weights[i] / sum * all[i]->covariance_(j, k);
            }
        }
        mixed.covariance_.add_outer(apart, weights[i] / sum);
    }
    mixed.degrees_ = mean([](const PowerEstimate& each) { return each.degrees_; });
    mixed.total_variance_ = mean([](const PowerEstimate& each) { return each.total_variance_; });
    *this = std::move(mixed);
}

inline void PowerEstimate::integrate(const NormalSums& from,
                                     std::span<const NormalSums> hypotheses) {
    if (hypotheses.empty()) return;
    const auto count = static_cast<double>(hypotheses.size());
    const auto watts_of = [&](const NormalSums& sums) {
        return factor(sums.gram).solve(pulled(sums.right));
    };
    const std::vector<double> before = watts_of(from);
    std::vector<std::vector<double>> moved;
    std::vector<double> mean(before.size());
    for (const NormalSums& each : hypotheses) {
        moved.push_back(watts_of(each));
        for (std::size_t j = 0; j < mean.size(); ++j) {
            moved.back()[j] -= before[j];
            mean[j] += moved.back()[j] / count;
        }
    }
    sensor_ = SymmetricMatrix{mean.size()};
    for (std::vector<double>& each : moved) {
        for (std::size_t j = 0; j < mean.size(); ++j) each[j] -= mean[j];
        sensor_.add_outer(each, 1 / std::max(count - 1, 1.0));
    }
    covariance_ += sensor_;
    for (std::size_t j = 0; j < mean.size(); ++j) {
        unbounded_[j] += mean[j];
        watts_[j] = std::max(unbounded_[j], 0.0);
    }
}

inline void PowerEstimate::doubt(std::span<const NormalSums> hypotheses,
                                 std::span<const double> seconds) {
    // The truth may lie anywhere between these powers and a hypothesis: mean square of the
    // distance, which puts either end inside the interval (1.13 distances).
    constexpr double spread = 1.0 / 3;
    if (hypotheses.empty()) return;
    sensor_ = SymmetricMatrix{watts_.size()};
    for (const NormalSums& each : hypotheses) {
        std::vector<double> apart = factor(each.gram).solve(pulled(each.right));
        double joules = 0;
        double time = 0;
        for (std::size_t j = 0; j < seconds.size(); ++j) {
            joules += (apart[j] - watts_[j]) * seconds[j];
            time += seconds[j];
        }
        for (std::size_t j = 0; j < apart.size(); ++j) {
            const bool ran = j < seconds.size() && seconds[j] > 0;
            apart[j] = ran ? apart[j] - watts_[j] - joules / time : 0;
        }
        sensor_.add_outer(apart, spread / static_cast<double>(hypotheses.size()));
    }
    covariance_ += sensor_;
}

/// A call draws as many joules beyond what the idle board does wherever it runs, in whatever time:
/// what the power limit lets a kernel take, one after the other of its kind, is less than in a mix.
inline std::vector<PowerBelief> PowerEstimate::in_place(
    const NormalSums& all, std::span<const PowerBelief> repeated) const {
    std::vector<PowerBelief> found(repeated.begin(), repeated.end());
    const Cholesky by_rows = factor(all.gram);
    const double idle = by_rows.solve(pulled(all.right))[RowSums::idle_column];
    const double unsure = std::sqrt(by_rows.inverse_diagonal()[RowSums::idle_column]);
    for (PowerBelief& belief : found) {
        if (belief.deviation <= 0) continue;
        const double beyond = belief.watts - std::clamp(idle, 0.0, belief.watts);
        belief.watts += (belief.longer - 1) * beyond;
        belief.deviation =
            std::hypot(belief.longer * belief.deviation, (belief.longer - 1) * unsure);
    }
    return found;
}

/// The powers that kernels were seen to draw while they were repeated are off in place: their data
/// were in caches, the board was not at its limit. How far, the rows say: by a common factor, which
/// is taken out, and one by one about it. That spread is the mean of a few, each weighed by how
/// likely it makes the rows (empirical Bayes; Efron, Large-Scale Inference, 2010, 1), and not below
/// what may hide from rows that never tell the kernels apart: of a common disagreement each kernel
/// may have any share from none to twice the mean. Asked are rows that kernels fill, where there
/// are some: in a program's first steps, between waits, kernels draw what the limit does not let
/// them later (10 to 14 % of a PyTorch step's kernels on an H200, which came out as 26 to 30 %).
inline void PowerEstimate::apply_prior(const RowSums& rows,
                                       std::span<const PowerBelief> while_repeated) {
    constexpr double fewest = 30;  // rows
    constexpr std::array spreads{0.02, 0.03, 0.04, 0.05, 0.07, 0.10, 0.14, 0.20, 0.30};
    if (std::none_of(while_repeated.begin(), while_repeated.end(),
                     [](const PowerBelief& belief) { return belief.deviation > 0; })) {
        return;
    }
    const NormalSums& all = rows.whitened ? rows.white : rows.level;
    const NormalSums& sums = rows.filled.rows >= fewest ? rows.filled : all;
    const std::vector<PowerBelief> repeated = in_place(all, while_repeated);
    // The factor: least squares of the rows on the repeated powers, the others as the rows have it.
    centre(repeated, spreads.back());
    for (int round = 0; round < 3; ++round) {
        const std::vector<double> watts = factor(sums.gram).solve(pulled(sums.right));
        double along = 0;
        double square = 0;
        for (std::size_t i = 0; i < repeated.size(); ++i) {
            if (repeated[i].deviation <= 0) continue;
            double rest = sums.right[i];
            for (std::size_t j = 0; j < centre_.size(); ++j) {
                const bool known = j < repeated.size() && repeated[j].deviation > 0;
                if (known) {
                    square += repeated[i].watts * sums.gram(i, j) * repeated[j].watts;
                } else {
                    rest -= sums.gram(i, j) * watts[j];
                }
            }
            along += repeated[i].watts * rest;
        }
        if (square > 0 && along > 0) repeated_scale_ = along / square;
        centre(repeated, spreads.back());
    }
    std::array<double, spreads.size()> evidences{};
    for (std::size_t i = 0; i < spreads.size(); ++i) {
        centre(repeated, spreads[i]);
        evidences[i] = evidence(sums);
    }
    const double likeliest = *std::max_element(evidences.begin(), evidences.end());
    double weights = 0;
    double squares = 0;
    for (std::size_t i = 0; i < spreads.size(); ++i) {
        const double weight = std::exp(evidences[i] - likeliest);
        weights += weight;
        squares += weight * spreads[i] * spreads[i];
    }
    repeated_spread_ =
        std::max(std::sqrt(squares / weights), std::abs(repeated_scale_ - 1) / std::sqrt(3.0));
    centre(repeated, repeated_spread_);
}

inline void PowerEstimate::centre(std::span<const PowerBelief> repeated, double spread) {
    for (std::size_t j = 0; j < repeated.size(); ++j) {
        if (repeated[j].deviation <= 0) continue;
        centre_[j] = repeated_scale_ * repeated[j].watts;
        precision_[j] = 1 / (std::pow(spread * centre_[j], 2) +
                             std::pow(repeated_scale_ * repeated[j].deviation, 2));
    }
}

/// The logarithm of the rows' likelihood, but for a constant, with the powers integrated out.
inline double PowerEstimate::evidence(const NormalSums& sums) const {
    const std::size_t columns = centre_.size();
    std::vector<double> beyond = sums.right;
    for (std::size_t i = 0; i < columns; ++i) {
        for (std::size_t j = 0; j < columns; ++j) beyond[i] -= sums.gram(i, j) * centre_[j];
    }
    const Cholesky all = factor(sums.gram);
    const std::vector<double> moved = all.solve(beyond);
    double result = -0.5 * all.log_determinant();
    for (std::size_t i = 0; i < columns; ++i) {
        result += 0.5 * std::log(precision_[i]) + 0.5 * beyond[i] * moved[i];
    }
    return result;
}

inline Cholesky PowerEstimate::factor(SymmetricMatrix gram) const {
    for (std::size_t i = 0; i < gram.size(); ++i) gram(i, i) += precision_[i];
    return Cholesky{gram};
}

/// The right side of the normal equations with what is believed before.
inline std::vector<double> PowerEstimate::pulled(std::vector<double> right) const {
    for (std::size_t i = 0; i < right.size(); ++i) right[i] += centre_[i] * precision_[i];
    return right;
}

inline PowerEstimate::Way PowerEstimate::solve(const NormalSums& sums) const {
    const Cholesky found = factor(sums.gram);
    SymmetricMatrix middle = sums.scatter;
    for (std::size_t i = 0; i < middle.size(); ++i) middle(i, i) += precision_[i];
    Way way{found.solve(pulled(sums.right)), found.robust_covariance(middle), 0};
    const std::vector<double> variances = found.inverse_diagonal();
    for (std::size_t i = 0; i < variances.size(); ++i) {
        way.known += 1 - std::min(1.0, variances[i] * precision_[i]);
    }
    return way;
}

/// Sets powers that came out negative to zero, and finds the others anew.
inline std::vector<double> PowerEstimate::non_negative(const NormalSums& sums,
                                                       std::vector<double> watts) const {
    std::vector<std::size_t> free(watts.size());
    for (std::size_t i = 0; i < free.size(); ++i) free[i] = i;
    const auto wrong = [&](std::size_t i) { return watts[i] < 0 && !prior_.is_inside(i); };
    while (std::any_of(free.begin(), free.end(), wrong)) {
        std::erase_if(free, wrong);
        SymmetricMatrix gram{free.size()};
        std::vector<double> right(free.size());
        for (std::size_t a = 0; a < free.size(); ++a) {
            right[a] = sums.right[free[a]] + centre_[free[a]] * precision_[free[a]];
            for (std::size_t b = 0; b <= a; ++b) gram(a, b) = sums.gram(free[a], free[b]);
            gram(a, a) += precision_[free[a]];
        }
        const auto found = Cholesky{gram}.solve(std::move(right));
        std::fill(watts.begin(), watts.end(), 0.0);
        for (std::size_t a = 0; a < free.size(); ++a) watts[free[a]] = found[a];
    }
    return watts;
}

inline void PowerEstimate::choose(Way level, Way white, std::span<const double> seconds) {
    double level_square = 0;
    double white_square = 0;
    double bias_square = 0;
    double excess = 0;  // of the squared differences, in what chance makes of them
    double columns = 0;
    std::vector<double> chance(seconds.size());
    for (std::size_t j = 0; j < seconds.size(); ++j) {
        const double weight = seconds[j] * seconds[j];
        const double difference = std::pow(white.watts[j] - level.watts[j], 2);
        // The variance of the difference of an estimate and of a better one (Hausman,
        // Econometrica 46, 1978); both are estimates, so that a part of the larger is the least.
        constexpr double least = 0.1;
        const double own = level.covariance(j, j);
        chance[j] = std::max(own - white.covariance(j, j), least * own);
        level_square += weight * own;
        white_square += weight * white.covariance(j, j);
        bias_square += weight * (difference - chance[j]);
        if (chance[j] <= 0 || prior_.is_inside(j)) continue;
        excess += difference / chance[j] - 1;
        ++columns;
    }
    // Level rows sum up to the counter: what the other way makes of all joules shows its bias, too.
    double all = 0;
    double all_chance = 0;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        all += seconds[i] * (white.watts[i] - level.watts[i]);
        for (std::size_t j = 0; j < seconds.size(); ++j) {
            all_chance +=
                seconds[i] * seconds[j] * (level.covariance(i, j) - white.covariance(i, j));
        }
    }
    bias_square = std::max({bias_square, all * all - std::max(all_chance, 0.0), 0.0});
    whitened_ = white_square + bias_square < level_square;
    Way& way = whitened_ ? white : level;
    watts_ = std::move(way.watts);
    covariance_ = std::move(way.covariance);
    if (!whitened_ || columns == 0) return;
    // What is left of the difference beyond twice its own chance is the way's error.
    excess = std::max(0.0, excess / columns - 2 * std::sqrt(2 / columns));
    for (std::size_t j = 0; j < seconds.size(); ++j) covariance_(j, j) += excess * chance[j];
}

/// What rows with several columns hold beyond the fit could be any of theirs, and so could what
/// was drawn in: any part of it, so that the error is evenly spread up to the whole. What is wrong
/// with the rows after changes of the power is the same in all.
inline void PowerEstimate::add_model_error(const RowSums& sums) {
    std::vector<double> after_changes(sums.columns());
    for (std::size_t j = 0; j < sums.columns(); ++j) {
        if (sums.shares[j] <= 0) continue;
        after_changes[j] = sums.change_error * sums.changes[j] / sums.shares[j];
        const double square = std::pow(sums.shared_excess[j], 2) - sums.shared_variance[j];
        const double model = std::max(square, 0.0) + std::pow(sums.winsorized[j], 2);
        covariance_(j, j) += even * model / std::pow(sums.shares[j], 2);
    }
    covariance_.add_outer(after_changes, 1);
}

/// Idle time that comes with each run, however short, cannot be told from the begin and end of the
/// runs, where markers and launches draw less than the kernel: either may have the other's joules,
/// up to the mean power. The counter's joules stay what they are.
inline void PowerEstimate::add_edge_error(std::span<const double> seconds,
                                          std::span<const double> edges) {
    constexpr std::size_t idle = 0;
    if (edges.empty()) return;
    double all_edges = 0;
    double all_seconds = 0;
    for (std::size_t j = 0; j < seconds.size(); ++j) {
        all_edges += edges[j];
        all_seconds += seconds[j];
    }
    if (all_edges <= 0) return;
    const bool idles = seconds[idle] > 0;
    const double shared = idles ? 0 : all_edges / all_seconds;
    edges_.assign(covariance_.size(), 0);
    for (std::size_t j = 0; j < seconds.size(); ++j) {
        if (seconds[j] <= 0) continue;
        const double share = j == idle ? -all_edges / seconds[j] : edges[j] / seconds[j] - shared;
        edges_[j] = prior_.mean * share;
    }
    covariance_.add_outer(edges_, even);
}

}  // namespace kdvfs::inline v0_3::measure
