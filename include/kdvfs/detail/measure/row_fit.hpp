// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/power_windows.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// How a row's noise follows from that of the rows before it. Predictors of all orders up to the
/// chosen one are kept, for the first rows after a gap have fewer rows before them.
class Autoregression {
public:
    static constexpr std::size_t most_lags = 8;

    /// White noise.
    Autoregression() : predictors_(1), innovations_{1} {}

    /// By Levinson and Durbin's recursion; the order is the one of least Bayesian information
    /// criterion (Schwarz, Annals of Statistics 6, 1978).
    /// @param correlations of a row with those 1, 2, ... rows before it
    /// @param rows         from how many rows they are known
    Autoregression(std::span<const double> correlations, double rows) : Autoregression{} {
        double best = 0;
        std::size_t order = 0;
        for (std::size_t k = 1; k <= std::min(correlations.size(), most_lags); ++k) {
            const std::vector<double>& last = predictors_.back();
            double reflection = correlations[k - 1];
            for (std::size_t i = 1; i < k; ++i) {
                reflection -= last[i - 1] * correlations[k - 1 - i];
            }
            reflection = std::clamp(reflection / innovations_.back(), -0.999, 0.999);
            std::vector<double> next(k, reflection);
            for (std::size_t i = 1; i < k; ++i) {
                next[i - 1] = last[i - 1] - reflection * last[k - 1 - i];
            }
            const double innovation = innovations_.back() * (1 - reflection * reflection);
            predictors_.push_back(std::move(next));
            innovations_.push_back(innovation);
            const double criterion =
                rows * std::log(innovation) + static_cast<double>(k) * std::log(rows);
            if (criterion >= best) continue;
            best = criterion;
            order = k;
        }
        predictors_.resize(order + 1);
        innovations_.resize(order + 1);
    }

    [[nodiscard]] std::size_t order() const { return predictors_.size() - 1; }
    /// Weights of the rows 1, 2, ... before, where there are `known` of them.
    [[nodiscard]] std::span<const double> predictor(std::size_t known) const {
        return predictors_[std::min(known, order())];
    }
    /// Variance of what the predictor leaves, of noise of variance 1.
    [[nodiscard]] double innovation(std::size_t known) const {
        return innovations_[std::min(known, order())];
    }
    /// So many rows say as much together as one without noise before it would.
    [[nodiscard]] double long_run() const {
        double sum = 1;
        for (const double weight : predictors_.back()) sum -= weight;
        return std::max(1.0, innovations_.back() / (sum * sum));
    }

private:
    std::vector<std::vector<double>> predictors_;
    std::vector<double> innovations_;
};

/// Fits a block of rows, together with the sums of those before it, and adds it to them.
/// A row's noise is scaled by what is seen of each of its columns, since a kernel that runs into
/// the power limit, say, scatters more than others; residuals beyond `huber` standard deviations
/// are drawn in to there (Huber 1981, 7.8: pseudo-observations). How noise lasts is found apart for
/// long stretches in which nothing runs: a board that cools down before its first kernel says
/// nothing of how its power wavers under load.
class RowFit {
public:
    RowFit(const PowerRows& rows, const RowSums& before);

    void add_to(RowSums& into) const;

private:
    static constexpr double huber = 3;
    /// Mean square of a standard normal variate that is drawn in to +-`huber`.
    static constexpr double huber_square = 0.9950;

    static constexpr double least_variance = 1e-18;
    static constexpr std::size_t idle_column = RowSums::idle_column;

    /// Of a row, nothing runs in so much and more.
    static constexpr double mostly = 0.9;

    [[nodiscard]] bool follows(std::size_t i) const { return i > 0 && (*rows_)[i].follows; }
    [[nodiscard]] const Autoregression& following(std::size_t i) const {
        return following_[idles_[i]];
    }
    [[nodiscard]] PowerPrior prior() const { return {.mean = mean_watts_, .inside = inside_}; }
    [[nodiscard]] bool is_inside(std::size_t column) const { return inside_[column] != 0; }
    [[nodiscard]] bool is_rest(std::size_t column) const { return rests_[column] != 0; }
    void find_powers(const RowSums& before);
    void start_scales();
    void standardise();
    void rescale();
    void find_usual_idle();
    [[nodiscard]] NormalSums equations(const NormalSums& before) const;
    void find_autocorrelation();
    [[nodiscard]] double explained(std::size_t i, std::span<const double> watts) const {
        double sum = 0;
        for (const auto& [column, share] : rows_->entries(i)) sum += share * watts[column];
        return sum;
    }
    /// A gain that wavers makes noise that grows with the power.
    [[nodiscard]] double power_scale(double watts) const {
        constexpr double least = 0.1;  // of the mean: there is other noise, too
        return std::max({watts, least * mean_watts_, 1e-9});
    }
    [[nodiscard]] double leverage(std::size_t i, const SymmetricMatrix& gram) const;
    void add_level(RowSums& into) const;
    void add_white(RowSums& into) const;
    [[nodiscard]] bool is_filled(std::size_t i) const {
        const auto entries = rows_->entries(i);
        return std::none_of(entries.begin(), entries.end(), [&](const PowerRows::Entry& entry) {
            return is_rest(entry.column) && entry.share > 0.5;
        });
    }
    void add_shared(RowSums& into) const;

    const PowerRows* rows_;
    std::size_t columns_;
    std::vector<char> inside_;  // as `RowSums` has it
    std::vector<char> rests_;   // as `RowSums` has it
    double mean_watts_ = 0;
    double least_deviation_ = 0;
    std::vector<double> watts_;
    std::vector<double> variances_;
    std::vector<double> change_error_;         // of each row, W
    std::vector<double> deviation_;            // of each row, W
    std::vector<double> noise_;                // of each row in its deviations, drawn in
    std::vector<std::size_t> idles_;           // by row, 1 where nothing runs for long, else 0
    std::vector<std::size_t> known_;           // rows before each without a gap, all idle or none
    std::optional<double> idle_square_;        // of a row's noise while nothing runs
    std::array<Autoregression, 2> following_;  // by `idles_`
};

inline RowFit::RowFit(const PowerRows& rows, const RowSums& before)
    : rows_{&rows},
      columns_{before.columns()},
      inside_{before.inside},
      rests_{before.rests},
      variances_{before.variances},
      change_error_(rows.size()),
      deviation_(rows.size(), 1.0),
      noise_(rows.size()),
      idles_(rows.size()),
      known_(rows.size()) {
    if (rows.size() == 0) return;
    // A shorter one is no reason to begin anew with what is known of the noise.
    constexpr std::size_t long_idle = 20;  // rows
    std::size_t idle_rows = 0;
    MeanPower seen = before.power;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        double busy = 1;
        for (const auto& [column, share] : rows.entries(i)) {
            if (is_rest(column)) busy -= share;
        }
        idle_rows = busy < 1 - mostly ? idle_rows + 1 : 0;
        if (idle_rows >= long_idle) {
            const std::size_t begin = i + 1 - (idle_rows == long_idle ? long_idle : 1);
            std::fill(idles_.begin() + static_cast<std::ptrdiff_t>(begin),
                      idles_.begin() + static_cast<std::ptrdiff_t>(i + 1), std::size_t{1});
        }
        seen.add_power(rows[i].watts, busy);
        if (!follows(i)) continue;
        const double changed = before.change_error * std::abs(rows[i].watts - rows[i - 1].watts);
        change_error_[i] = std::max(changed, before.change_fades * change_error_[i - 1]);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        known_[i] = follows(i) && idles_[i] == idles_[i - 1] ? known_[i - 1] + 1 : 0;
    }
    mean_watts_ = seen.mean_watts();
    // Rows without any noise would be infinitely certain, beyond what doubles can say.
    constexpr double least_noise = 1e-4;
    least_deviation_ = std::max(least_noise * std::abs(mean_watts_), 1e-9);
    find_powers(before);
    find_autocorrelation();
}

inline void RowFit::find_powers(const RowSums& before) {
    constexpr int most_rounds = 12;
    constexpr double still = 1e-3;  // of a deviation
    const bool known = before.rows >= static_cast<double>(rows_->size());
    if (known) {
        watts_ = prior().watts(prior().factor(before.level.gram), before.level.right);
    } else {
        for (std::size_t i = 0; i < rows_->size(); ++i) noise_[i] = (*rows_)[i].watts;
        watts_.assign(columns_, 0.0);
        NormalSums plain;
        plain.grow(columns_);
        plain = equations(plain);
        watts_ = prior().watts(prior().factor(plain.gram), plain.right);
    }
    find_usual_idle();
    start_scales();
    for (int round = 0; round < most_rounds; ++round) {
        standardise();
        const NormalSums all = equations(before.level);
        std::vector<double> next = prior().watts(prior().factor(all.gram), all.right);
        double moved = 0;
        for (std::size_t j = 0; j < columns_; ++j) {
            moved = std::max(moved, std::abs(next[j] - watts_[j]) * std::sqrt(all.gram(j, j)));
        }
        watts_ = std::move(next);
        const std::vector<double> last = variances_;
        rescale();
        double grown = 0;
        for (std::size_t j = 0; j < columns_; ++j) {
            grown = std::max(grown, std::abs(variances_[j] / last[j] - 1));
        }
        if (moved < still && grown < 0.02) break;
        if (known && round >= 1) break;
    }
    standardise();
}

/// Columns that were never seen before start with the scatter of all rows, which outliers do not
/// move.
inline void RowFit::start_scales() {
    std::vector<double> distances(rows_->size());
    for (std::size_t i = 0; i < distances.size(); ++i) {
        const PowerRows::Row& row = (*rows_)[i];
        const double watts = explained(i, watts_);
        distances[i] = std::abs(row.watts - watts) / power_scale(watts) * std::sqrt(row.seconds);
    }
    const double all = std::pow(median_to_deviation * median_of(distances), 2) + least_variance;
    for (double& variance : variances_) variance = variance > 0 ? variance : all;
    if (idle_square_) variances_[idle_column] = *idle_square_ + least_variance;
}

/// Residuals in their deviations, drawn in.
inline void RowFit::standardise() {
    for (std::size_t i = 0; i < rows_->size(); ++i) {
        const PowerRows::Row& row = (*rows_)[i];
        double watts = 0;
        double variance = 0;
        for (const auto& [column, share] : rows_->entries(i)) {
            watts += share * watts_[column];
            if (!is_inside(column)) variance += share * variances_[column];
        }
        const double noise = power_scale(watts) * std::sqrt(variance / row.seconds);
        deviation_[i] = std::max(std::hypot(noise, change_error_[i]), least_deviation_);
        noise_[i] = std::clamp((row.watts - watts) / deviation_[i], -huber, huber);
    }
}

/// Idle has one power: where most rows in which nothing runs have it and others lie far beyond,
/// those show a load that no scope covers, which must not pass for noise.
inline void RowFit::find_usual_idle() {
    constexpr std::size_t fewest = 20;  // rows
    constexpr double far = 10;          // deviations
    constexpr double least = 0.01;      // deviation, of the power
    constexpr double some = 0.02;       // of the rows
    std::vector<double> watts;
    std::vector<double> distances;
    for (std::size_t i = 0; i < rows_->size(); ++i) {
        for (const auto& [column, share] : rows_->entries(i)) {
            if (column == idle_column && share > mostly) watts.push_back((*rows_)[i].watts);
        }
    }
    if (watts.size() < fewest) return;
    const double usual = median_of(watts);
    for (const double value : watts) distances.push_back(std::abs(value - usual));
    const double deviation =
        std::max(median_to_deviation * median_of(distances), least * std::abs(usual));
    const auto beyond = std::count_if(distances.begin(), distances.end(),
                                      [&](double value) { return value > far * deviation; });
    if (static_cast<double>(beyond) < some * static_cast<double>(watts.size())) return;
    watts_[idle_column] = usual;
    double seconds = 0;
    for (std::size_t i = 0; i < rows_->size(); ++i) seconds += (*rows_)[i].seconds;
    idle_square_ =
        std::pow(deviation / power_scale(usual), 2) * seconds / static_cast<double>(rows_->size());
}

/// Each column's variance from the rows in which it ran, by its share of them.
inline void RowFit::rescale() {
    constexpr double borrowed = 4;  // rows' worth of the scatter of all
    std::vector<double> squares(columns_);
    std::vector<double> shares(columns_);
    double all = 0;
    for (std::size_t i = 0; i < rows_->size(); ++i) {
        const double relative = noise_[i] * deviation_[i] / power_scale(explained(i, watts_));
        const double square = relative * relative * (*rows_)[i].seconds / huber_square;
        all += square;
        for (const auto& [column, share] : rows_->entries(i)) {
            if (is_inside(column)) continue;
            squares[column] += share * square;
            shares[column] += share;
        }
    }
    const auto rows = static_cast<double>(rows_->size());
    double used = 0;
    for (const double share : shares) used += std::min(share, 1.0);
    all /= std::max(rows - used, 0.5 * rows);
    if (idle_square_) squares[idle_column] = *idle_square_ * shares[idle_column];
    for (std::size_t j = 0; j < columns_; ++j) {
        const double free = std::max(shares[j] - 1, 0.5 * shares[j]);
        variances_[j] = (squares[j] + borrowed * all) / (free + borrowed) + least_variance;
    }
}

inline NormalSums RowFit::equations(const NormalSums& before) const {
    NormalSums all;
    all.gram = before.gram;
    all.right = before.right;
    for (std::size_t i = 0; i < rows_->size(); ++i) {
        const auto entries = rows_->entries(i);
        const double precision = 1 / (deviation_[i] * deviation_[i]);
        const double watts = explained(i, watts_) + noise_[i] * deviation_[i];
        for (std::size_t a = 0; a < entries.size(); ++a) {
            const auto& [column, share] = entries[a];
            const double weighted = precision * share;
            all.right[column] += weighted * watts;
            for (std::size_t b = 0; b <= a; ++b) {
                all.gram(column, entries[b].column) += weighted * entries[b].share;
            }
        }
    }
    return all;
}

inline void RowFit::find_autocorrelation() {
    constexpr std::size_t rows_per_lag = 20;
    for (std::size_t kind = 0; kind < following_.size(); ++kind) {
        const auto rows = static_cast<std::size_t>(std::count(idles_.begin(), idles_.end(), kind));
        const std::size_t lags = std::min(Autoregression::most_lags, rows / rows_per_lag);
        std::vector<double> products(lags);
        std::vector<double> pairs(lags);
        double square = 0;
        for (std::size_t i = 0; i < noise_.size(); ++i) {
            if (idles_[i] != kind) continue;
            square += noise_[i] * noise_[i];
            for (std::size_t k = 1; k <= std::min(lags, known_[i]); ++k) {
                products[k - 1] += noise_[i] * noise_[i - k];
                ++pairs[k - 1];
            }
        }
        if (square <= 0) continue;
        std::vector<double> correlations;
        for (std::size_t k = 0; k < lags; ++k) {
            // Divided by all rows, and not by the pairs, the correlations are those of some
            // process.
            if (pairs[k] < static_cast<double>(rows_per_lag)) break;
            correlations.push_back(products[k] / square);
        }
        following_[kind] = Autoregression{correlations, static_cast<double>(rows)};
    }
}

/// About how much of a row's noise the fit takes for power of its columns.
inline double RowFit::leverage(std::size_t i, const SymmetricMatrix& gram) const {
    double sum = 0;
    for (const auto& [column, share] : rows_->entries(i)) {
        sum += share * share / (deviation_[i] * deviation_[i] * gram(column, column));
    }
    return std::min(sum, 0.5);
}

inline void RowFit::add_to(RowSums& into) const {
    if (rows_->size() == 0) return;
    const std::size_t order = std::max(following_[0].order(), following_[1].order());
    if (order > 0 && !into.whitened) {
        into.white = into.level;
        into.whitened = true;
    }
    const NormalSums all = equations(into.level);
    into.level.gram = all.gram;
    into.level.right = all.right;
    if (into.whitened || into.keeps_filled) add_white(into);
    add_level(into);
    add_shared(into);
    into.variances = variances_;
    into.rows += static_cast<double>(rows_->size());
    for (std::size_t i = 0; i < rows_->size(); ++i) {
        into.fewer_rows += 1 / following(i).long_run();
        double busy = 1;
        into.scatter += std::pow(noise_[i] * deviation_[i], 2);
        into.square += noise_[i] * noise_[i];
        if (known_[i] > 0) into.product += noise_[i] * noise_[i - 1];
        for (const auto& [column, share] : rows_->entries(i)) {
            if (is_rest(column)) busy -= share;
            if (is_inside(column)) continue;
            into.shares[column] += share;
            into.squared_shares[column] += share * share;
        }
        into.power.add_power((*rows_)[i].watts, busy);
    }
}

/// The scatter of the level equations. Their right side is a sum of noise times shares; noise that
/// follows from the noise before it is a sum of innovations, which are independent of each other,
/// each times the shares of all later rows that it reaches. The squares of the innovations stand
/// for their variances (White, Econometrica 48, 1980), corrected for what the fit has bent to them.
inline void RowFit::add_level(RowSums& into) const {
    const std::size_t order = std::max(following_[0].order(), following_[1].order());
    std::vector<std::vector<double>> reach(order + 1, std::vector<double>(columns_));
    std::vector<std::size_t> columns;
    std::vector<double> values;
    for (std::size_t i = rows_->size(); i-- > 0;) {
        const auto before = following(i).predictor(known_[i]);
        double innovation = noise_[i];
        for (std::size_t k = 0; k < before.size(); ++k) {
            innovation -= before[k] * noise_[i - 1 - k];
        }
        const double square = innovation * innovation / (1 - leverage(i, into.level.gram));
        if (order == 0) {
            columns.clear();
            values.clear();
            for (const auto& [column, share] : rows_->entries(i)) {
                columns.push_back(column);
                values.push_back(share / deviation_[i]);
            }
            into.level.scatter.add_outer(columns, values, square);
            continue;
        }
        std::vector<double>& now = reach[i % (order + 1)];
        std::fill(now.begin(), now.end(), 0.0);
        for (const auto& [column, share] : rows_->entries(i)) {
            now[column] += share / deviation_[i];
        }
        for (std::size_t k = 1; k <= order && i + k < rows_->size(); ++k) {
            if (known_[i + k] < k) break;
            const auto later = following(i + k).predictor(known_[i + k]);
            if (k > later.size()) continue;
            const std::vector<double>& then = reach[(i + k) % (order + 1)];
            for (std::size_t j = 0; j < columns_; ++j) now[j] += later[k - 1] * then[j];
        }
        into.level.scatter.add_outer(now, square);
    }
}

/// The same rows, each less what those before it foretell.
inline void RowFit::add_white(RowSums& into) const {
    struct WhiteRow {
        std::size_t first;
        double watts;
    };
    std::vector<WhiteRow> rows;
    std::vector<std::size_t> columns;
    std::vector<double> values;
    std::vector<double> dense(columns_);
    const auto of_row = [&](std::size_t i, const auto& items) {
        const std::size_t end = i + 1 < rows.size() ? rows[i + 1].first : items.size();
        return std::span{items}.subspan(rows[i].first, end - rows[i].first);
    };
    const auto add_row = [&](std::size_t i, NormalSums& to) {
        const auto own = of_row(i, columns);
        const auto value = of_row(i, values);
        for (std::size_t a = 0; a < own.size(); ++a) to.right[own[a]] += value[a] * rows[i].watts;
        to.gram.add_outer(own, value, 1);
        ++to.rows;
    };
    for (std::size_t i = 0; i < rows_->size(); ++i) {
        const auto before = following(i).predictor(known_[i]);
        const double scale = 1 / std::sqrt(following(i).innovation(known_[i]));
        const std::size_t first = columns.size();
        double watts = 0;
        const auto take = [&](std::size_t row, double weight) {
            watts += weight * (explained(row, watts_) / deviation_[row] + noise_[row]);
            for (const auto& [column, share] : rows_->entries(row)) {
                if (dense[column] == 0) columns.push_back(column);
                dense[column] += weight * share / deviation_[row];
                if (dense[column] == 0) dense[column] = 1e-300;
            }
        };
        take(i, scale);
        for (std::size_t k = 0; k < before.size(); ++k) take(i - 1 - k, -scale * before[k]);
        for (std::size_t a = first; a < columns.size(); ++a) {
            values.push_back(std::exchange(dense[columns[a]], 0.0));
        }
        rows.push_back({first, watts});
        if (into.whitened) add_row(i, into.white);
        if (into.keeps_filled && is_filled(i)) add_row(i, into.filled);
    }
    if (!into.whitened) return;
    NormalSums& white = into.white;
    const std::vector<double> found = prior().watts(prior().factor(white.gram), white.right);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto own = of_row(i, columns);
        const auto value = of_row(i, values);
        double innovation = rows[i].watts;
        double leverage = 0;
        for (std::size_t a = 0; a < own.size(); ++a) {
            innovation -= value[a] * found[own[a]];
            leverage += value[a] * value[a] / white.gram(own[a], own[a]);
        }
        white.scatter.add_outer(own, value,
                                innovation * innovation / (1 - std::min(leverage, 0.5)));
    }
}

/// What rows that several columns share hold beyond the fit: where powers depend on what ran
/// before, or for how long, or on a limit, it does not cancel.
inline void RowFit::add_shared(RowSums& into) const {
    for (std::size_t i = 0; i < rows_->size(); ++i) {
        const double excess = noise_[i] * deviation_[i];
        // What lies much farther is no kernel's habit but a fault.
        constexpr double fault = 10;
        const double farthest = fault * deviation_[i];
        const double whole = (*rows_)[i].watts - explained(i, watts_);
        const double winsorized = std::clamp(whole, -farthest, farthest) - excess;
        const double change = follows(i) ? (*rows_)[i].watts - (*rows_)[i - 1].watts : 0;
        for (const auto& [column, share] : rows_->entries(i)) {
            if (is_inside(column)) continue;
            const double shared = share * (1 - share) * excess;
            into.winsorized[column] += share * winsorized;
            into.changes[column] += share * change;
            into.shared_excess[column] += shared;
            into.shared_variance[column] += shared * shared * following(i).long_run();
        }
    }
}

}  // namespace kdvfs::inline v0_3::measure
