// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/sensor_model.hpp>
#include <kdvfs/detail/measure/sensor_prior.hpp>
#include <kdvfs/detail/measure/sensor_sample.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// How a sensor is sought.
struct SensorSearch {
    std::size_t guesses = 32;            ///< how many hypotheses the cloud has
    std::optional<SensorGuess> about{};  ///< where to look first, beside all that the prior allows
    /// The cloud of an earlier posterior of this sensor, which is not sought again.
    std::span<const SensorGuess> known{};
};

/// The sensor as a sample of readings shows it, with the powers of the columns integrated out: a
/// cloud of equally likely hypotheses, found by sequential Monte Carlo (Del Moral, Doucet, Jasra,
/// JRSS B 68, 2006) that begins with the prior and lets in ever more rows (Chopin, Biometrika 89,
/// 2002). docs/measuring.md has the equations. Deterministic.
class SensorPosterior {
public:
    static constexpr std::size_t fewest_rows = 8;
    /// Deviations from which on a row is taken for a fault.
    static constexpr double far = 6;

    /// @param counter rows are differences of a counter, not readings of a log
    SensorPosterior(const SensorSample& sample, bool counter, const ColumnPrior& columns,
                    SensorPrior prior = {}, const SensorSearch& search = {});

    /// Whether there were rows to learn from.
    [[nodiscard]] bool solved() const { return !cloud_.empty(); }
    [[nodiscard]] std::span<const SensorGuess> cloud() const { return cloud_; }
    [[nodiscard]] Sensor sensor(const SensorGuess& guess) const {
        return guess.sensor(period_, counter_);
    }
    /// The mean of the guesses of the likeliest shape.
    [[nodiscard]] Sensor likely() const {
        std::array<int, 3> votes{};
        for (const SensorGuess& guess : cloud_) ++votes[static_cast<std::size_t>(guess.shape)];
        const auto most = std::max_element(votes.begin(), votes.end());
        SensorGuess mean{.shape = static_cast<SensorShape>(most - votes.begin())};
        for (const SensorGuess& guess : cloud_) {
            if (guess.shape != mean.shape) continue;
            for (std::size_t k = 0; k < 3; ++k) mean.at[k] += guess.at[k] / *most;
        }
        return sensor(mean);
    }
    /// The powers under one hypothesis, W by column.
    [[nodiscard]] std::vector<double> watts(const Sensor& sensor) const {
        const Fit found = fit(sensor, rows_.size());
        std::vector<double> all;
        for (const std::size_t column : place_) all.push_back(found.watts[column]);
        return all;
    }
    /// Whether the readings do not speak against a hypothesis.
    [[nodiscard]] bool plausible(const Sensor& sensor) const {
        constexpr double much = 8;  // of the logarithm of the likelihood
        double highest = -std::numeric_limits<double>::infinity();
        for (const SensorGuess& guess : cloud_) {
            highest = std::max(highest, log_likelihood(guess, sought()));
        }
        return fit(sensor, sought()).log_likelihood > highest - much;
    }
    /// Covariance of the powers under one hypothesis, as the noise of the rows makes it.
    [[nodiscard]] SymmetricMatrix noise(const Sensor& sensor) const;
    /// The normal equations of all columns under one hypothesis, in units of the rows' noise, by
    /// the rows by which the sensor is sought.
    [[nodiscard]] NormalSums equations(const Sensor& sensor) const;
    /// The same with what else is known of the rows.
    [[nodiscard]] RowSums row_sums(const Sensor& sensor) const;
    /// The same of a sample of the same readings whose columns are other ones.
    [[nodiscard]] RowSums row_sums(const Sensor& sensor, const SensorSample& sample,
                                   const ColumnPrior& columns) const {
        SensorPosterior other{*this};
        const std::vector<SensorSample::Row> rows = sample.rows();
        for (SensorSample::Row& row : other.rows_) row = rows[row.index];
        other.sample_ = &sample;
        other.columns_ = {};
        other.take_columns(columns, columns.centre.size());
        return other.row_sums(sensor);
    }
    /// Powers are taken from rows as they are from here on, where these say more of them than rows
    /// less what the ones before them foretell: the noise of a call's power lasts as long as it.
    void choose_way();
    /// How far the board's power wanders about what the same columns explain, from second to
    /// second, without what a straight line through the run does: standard deviation, W.
    [[nodiscard]] double wanders(const Sensor& sensor) const;
    [[nodiscard]] std::size_t rows() const { return rows_.size(); }
    /// Which of the powers that are sought each column has: that of some is one.
    [[nodiscard]] std::span<const std::size_t> places() const { return place_; }
    /// The sensor is sought by so many of the rows; the powers are of all.
    [[nodiscard]] std::size_t sought() const {
        return std::min(rows_.size(), sample_->rows_to_seek());
    }
    /// How many rows are taken for faults.
    [[nodiscard]] std::size_t left_out() const {
        return static_cast<std::size_t>(std::count(outlier_.begin(), outlier_.end(), char{1}));
    }
    /// What the likeliest hypothesis leaves of a row, W, root mean square.
    [[nodiscard]] double unexplained() const { return std::sqrt(square_); }
    /// How much more what rows of one place in the sequence leave resembles each other than chance
    /// makes it: 1 where it does not.
    [[nodiscard]] double clustering() const { return clustering_; }

private:
    struct Fit {
        double log_likelihood = 0;
        std::vector<double> watts;
        double square = 0;  // of a row
    };
    struct Weighed {
        SensorGuess guess;
        double prior = 0;
        double last = 0;  // log likelihood of the stage before
        double next = 0;
    };

    /// Guesses of one shape.
    struct Population {
        std::vector<Weighed> guesses{};
        double evidence = 0;  // its logarithm
        double weight = 1;
    };
    struct Equations {
        explicit Equations(std::size_t columns) : right(columns), products_(columns * columns) {}
        void add(std::span<const std::size_t> own, std::span<const double> shares, double rest) {
            for (std::size_t a = 0; a < own.size(); ++a) {
                double* line = products_.data() + own[a] * right.size();
                for (std::size_t b = 0; b < a; ++b) line[own[b]] += shares[a] * shares[b];
                line[own[a]] += shares[a] * shares[a];
                right[own[a]] += shares[a] * rest;
            }
        }
        [[nodiscard]] SymmetricMatrix gram() const {
            const std::size_t n = right.size();
            SymmetricMatrix all{n};
            for (std::size_t i = 0; i < n; ++i) {
                all(i, i) = products_[i * n + i];
                for (std::size_t j = 0; j < i; ++j)
                    all(i, j) = products_[i * n + j] + products_[j * n + i];
            }
            return all;
        }

        std::vector<double> right;
        double squares = 0;
        double log_fresh = 0;
        double count = 0;

    private:
        std::vector<double> products_;  // each pair in one of its two places
    };

    /// Rows without any noise would be infinitely certain, beyond what doubles can say.
    [[nodiscard]] double least_square() const { return std::max(std::pow(1e-4 * mean_, 2), 1e-9); }
    static constexpr std::size_t most_columns = 160;
    void take_columns(const ColumnPrior& columns, std::size_t most = most_columns);
    void shuffle();
    [[nodiscard]] bool follows(std::size_t i) const;
    void add_rows(const Sensor& sensor, std::size_t rows, Equations& into) const;
    [[nodiscard]] SymmetricMatrix of_columns(const SymmetricMatrix& found, double scale) const;
    [[nodiscard]] NormalSums normal_sums(const Equations& found, double square) const;
    void add_shares(const Sensor& sensor, RowSums& sums) const;
    /// The same for whoever takes each row: `take(i, rest, behind)`, with columns and shares in
    /// `own_` and `shares_`.
    template <class Take>
    void each_row(const Sensor& sensor, std::size_t rows, Take take) const;
    [[nodiscard]] const SensorSample::Stretch& shown_stretch(const SensorSample::Row& row,
                                                             double delay) const {
        const auto& stretches = sample_->blocks()[row.block].stretches;
        std::size_t s = row.stretch;
        while (s > 0 && stretches[s].from >= row.at - delay) --s;
        while (s > 0 && stretches[s].from > stretches[s].run_from) --s;
        return stretches[s];
    }
    [[nodiscard]] static StepResponse response(const Sensor& sensor, const SensorSample::Row& row) {
        return {sensor, row.length > 0 ? row.length : sensor.window};
    }
    /// The shares of columns in a row; `columns_` of them in `shares_`.
    double find_shares(const SensorSample::Row& row, const StepResponse& response,
                       double delay) const;
    [[nodiscard]] Fit fit(const Sensor& sensor, std::size_t rows) const;
    [[nodiscard]] double explained(const SensorSample::Row& row, const Sensor& sensor,
                                   std::span<const double> watts) const;
    [[nodiscard]] Population start(SensorShape shape);
    void weigh(std::vector<Population>& all, std::size_t rows);
    void advance(Population& population, std::size_t from, std::size_t to);
    void resample(std::vector<Weighed>& all, double by, std::size_t many);
    void move(std::vector<Weighed>& all, double part, std::size_t from, std::size_t to);
    void leave_out(std::span<const double> left, double most);
    void judge_rows(const Sensor& sensor, std::size_t rows);
    void judge_all();
    [[nodiscard]] double overcount(const Sensor& sensor, const Sensor& other, std::size_t rows,
                                   std::span<const double> watts,
                                   std::span<const double> left) const;
    [[nodiscard]] double log_likelihood(const SensorGuess& guess, std::size_t rows) const {
        return rows == 0 ? 0 : fit(sensor(guess), rows).log_likelihood;
    }
    [[nodiscard]] double uniform() { return std::uniform_real_distribution<double>{0, 1}(random_); }

    const SensorSample* sample_;
    bool counter_;
    double period_;
    ColumnPrior columns_;
    std::vector<std::size_t> place_;  // in `columns_`, of each column of the sample
    SensorPrior prior_;
    std::size_t guesses_;
    std::optional<SensorGuess> about_;
    std::mt19937_64 random_{20260};
    std::vector<SensorSample::Row> rows_;  // shuffled
    std::vector<char> outlier_;            // by row
    double mean_ = 0;                      // of rows, W
    double square_ = 0;                    // of a row, W^2
    double lasting_ = 0;                   // of a row's noise in the next one
    double clustering_ = 1;                // of the rows by which the sensor is sought
    double overcount_ = 1;                 // the same of all rows
    std::vector<SensorGuess> cloud_;
    mutable std::vector<double> dense_;  // by column
    mutable std::vector<std::size_t> own_;
    mutable std::vector<double> shares_;
};

inline SensorPosterior::SensorPosterior(const SensorSample& sample, bool counter,
                                        const ColumnPrior& columns, SensorPrior prior,
                                        const SensorSearch& search)
    : sample_{&sample},
      counter_{counter},
      period_{sample.period()},
      prior_{prior},
      guesses_{search.guesses},
      about_{search.about},
      rows_{sample.rows()},
      outlier_(rows_.size()) {
    if (rows_.size() < fewest_rows) return;
    take_columns(columns);
    shuffle();
    for (const auto& row : rows_) mean_ += row.watts / static_cast<double>(rows_.size());
    square_ = std::pow(0.05 * mean_, 2);
    if (!search.known.empty()) {
        cloud_.assign(search.known.begin(), search.known.end());
        judge_rows(likely(), sought());
        judge_all();
        return;
    }
    std::vector<Population> all;
    for (const SensorShape shape : prior_.shapes(counter_)) all.push_back(start(shape));
    std::size_t from = 0;
    std::size_t to = std::min(sought(), std::max<std::size_t>(160, 3 * columns_.centre.size()));
    while (true) {
        for (Population& each : all) advance(each, from, to);
        weigh(all, to);
        if (to == sought()) break;
        from = to;
        to = to > sought() / 6 ? sought() : 4 * to;
    }
    // As many guesses of each shape as it is likely.
    double before = 0;
    for (Population& each : all) {
        const auto first =
            static_cast<std::size_t>(std::lround(before * static_cast<double>(guesses_)));
        before += each.weight;
        const auto last =
            static_cast<std::size_t>(std::lround(before * static_cast<double>(guesses_)));
        for (std::size_t i = first; i < last; ++i) {
            cloud_.push_back(each.guesses[i % each.guesses.size()].guess);
        }
    }
    judge_all();
}

/// Those of most time; all others are as one.
inline void SensorPosterior::take_columns(const ColumnPrior& columns, std::size_t most) {
    const std::size_t all = columns.centre.size();
    std::vector<double> seconds(all);
    for (const auto& block : sample_->blocks()) {
        for (const auto& [column, time] : block.entries) seconds[column] += std::abs(time);
    }
    std::vector<std::size_t> order(all);
    for (std::size_t j = 0; j < all; ++j) order[j] = j;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return seconds[a] > seconds[b]; });
    place_.resize(all);
    const auto ran = static_cast<std::size_t>(
        std::count_if(seconds.begin(), seconds.end(), [](double time) { return time > 0; }));
    const std::size_t apart = std::min(ran, most);
    for (std::size_t k = 0; k < all; ++k) {
        place_[order[k]] = std::min(k, apart);
        if (k > apart) continue;
        columns_.centre.push_back(columns.centre[order[k]]);
        columns_.precision.push_back(columns.precision[order[k]]);
    }
    dense_.resize(columns_.centre.size());
}

/// So that the first rows are as good a sample as any; neighbours stay together, for their noise
/// lasts.
inline void SensorPosterior::shuffle() {
    constexpr std::size_t together = 32;
    std::vector<std::size_t> groups;
    for (std::size_t i = 0; i < rows_.size(); i += together) groups.push_back(i);
    for (std::size_t i = groups.size(); i > 1; --i) std::swap(groups[i - 1], groups[random_() % i]);
    std::vector<SensorSample::Row> shuffled;
    for (const std::size_t first : groups) {
        for (std::size_t i = first; i < std::min(first + together, rows_.size()); ++i) {
            shuffled.push_back(rows_[i]);
        }
    }
    rows_ = std::move(shuffled);
}

/// Whether a row comes right behind the one before it in the sample.
inline bool SensorPosterior::follows(std::size_t i) const {
    if (i == 0 || rows_[i].index != rows_[i - 1].index + 1 || outlier_[i - 1]) return false;
    const double apart = rows_[i].at - rows_[i - 1].at;
    return apart < 1.5 * std::max(period_, rows_[i].length);
}

/// The equations of rows whose noise follows that of the row before it (`lasting_`).
inline void SensorPosterior::add_rows(const Sensor& sensor, std::size_t rows,
                                      Equations& into) const {
    const double fresh = 1 / std::sqrt(1 - lasting_ * lasting_);
    each_row(sensor, rows, [&](std::size_t, double rest, bool behind) {
        into.add(own_, shares_, rest);
        into.squares += rest * rest;
        into.log_fresh += behind ? std::log(fresh) : 0;
        ++into.count;
    });
}

template <class Take>
void SensorPosterior::each_row(const Sensor& sensor, std::size_t rows, Take take) const {
    std::vector<std::size_t> last_own;
    std::vector<double> last_shares;
    double last_rest = 0;
    const double fresh = 1 / std::sqrt(1 - lasting_ * lasting_);
    for (std::size_t i = 0; i < rows; ++i) {
        if (outlier_[i]) continue;
        const auto& row = rows_[i];
        double rest = row.watts - find_shares(row, response(sensor, row), sensor.delay);
        for (std::size_t a = 0; a < own_.size(); ++a) rest -= shares_[a] * columns_.centre[own_[a]];
        const bool behind = lasting_ > 0 && follows(i);
        if (lasting_ > 0) {
            std::swap(own_, last_own);
            std::swap(shares_, last_shares);
            std::swap(rest, last_rest);
        }
        // Now `last_` has this row, and `own_` the one before.
        if (behind) {
            for (std::size_t a = 0; a < own_.size(); ++a)
                dense_[own_[a]] = -lasting_ * fresh * shares_[a];
            for (std::size_t a = 0; a < last_own.size(); ++a) {
                if (dense_[last_own[a]] == 0) own_.push_back(last_own[a]);
                dense_[last_own[a]] += fresh * last_shares[a];
            }
            shares_.clear();
            for (const std::size_t column : own_)
                shares_.push_back(std::exchange(dense_[column], 0));
            rest = fresh * (last_rest - lasting_ * rest);
        } else if (lasting_ > 0) {
            own_ = last_own;
            shares_ = last_shares;
            rest = last_rest;
        }
        take(i, rest, behind);
    }
}

/// What lies before the first reading from which on all is known is what that reading shows: exact
/// for a filter of first order, and next to nothing of a mean.
/// @returns that part, W
inline double SensorPosterior::find_shares(const SensorSample::Row& row,
                                           const StepResponse& response, double delay) const {
    constexpr double all = 1 - 1e-3;
    const auto& blocks = sample_->blocks();
    const double shown = row.at - delay;
    std::size_t b = row.block;
    std::size_t i = row.stretch;
    while (i + 1 < blocks[b].stretches.size() && blocks[b].stretches[i].to < shown) ++i;
    if (blocks[b].stretches[i].to < shown && b + 1 < blocks.size()) {
        ++b;
        i = 0;
    }
    own_.clear();
    const double since =
        row.length > 0 ? -1e300 : std::max(row.first_at - delay, blocks[row.since].begin());
    double younger = 0;
    for (bool more = true; more && younger < all;) {
        const SensorSample::Block& block = blocks[b];
        const SensorSample::Stretch& stretch = block.stretches[i];
        if (stretch.from < shown) {
            const double from = std::max(stretch.from, since);
            if (from >= stretch.to) break;
            const double older = response(shown - from);
            const double share = (older - younger) / (stretch.to - stretch.from);
            younger = older;
            for (std::size_t k = stretch.first; k < stretch.first + stretch.count; ++k) {
                const std::size_t column = place_[block.entries[k].column];
                const double seconds = block.entries[k].share;
                if (dense_[column] == 0) own_.push_back(column);
                dense_[column] += share * seconds + 1e-300;
            }
        }
        if (i > 0) {
            --i;
        } else if (b > row.since) {
            --b;
            i = blocks[b].stretches.size() - 1;
        } else {
            more = false;
        }
    }
    shares_.clear();
    for (const std::size_t column : own_) shares_.push_back(std::exchange(dense_[column], 0));
    // What lies longer ago than matters is about the mean.
    return (1 - younger) * (younger < all && row.length <= 0 ? row.first_watts : mean_);
}

inline SensorPosterior::Fit SensorPosterior::fit(const Sensor& sensor, std::size_t rows) const {
    const std::size_t columns = columns_.centre.size();
    Equations all{columns};
    add_rows(sensor, rows, all);
    SymmetricMatrix gram = all.gram();
    double log_prior = 0;
    for (std::size_t j = 0; j < columns; ++j) {
        gram(j, j) += square_ * columns_.precision[j];
        log_prior += std::log(square_ * columns_.precision[j]);
    }
    const Cholesky factor{gram};
    Fit found;
    found.watts = factor.solve(all.right);
    double squares = all.squares;
    for (std::size_t j = 0; j < columns; ++j) {
        squares -= all.right[j] * found.watts[j];
        found.watts[j] += columns_.centre[j];
    }
    const double count = std::max(all.count, 1.0);
    found.square = std::max(squares / count, least_square());
    found.log_likelihood = (0.5 * (log_prior - factor.log_determinant()) -
                            0.5 * count * std::log(found.square) + all.log_fresh) /
                           clustering_;
    return found;
}

inline double SensorPosterior::explained(const SensorSample::Row& row, const Sensor& sensor,
                                         std::span<const double> watts) const {
    double sum = find_shares(row, response(sensor, row), sensor.delay);
    for (std::size_t a = 0; a < own_.size(); ++a) sum += shares_[a] * watts[own_[a]];
    return sum;
}

inline SymmetricMatrix SensorPosterior::noise(const Sensor& sensor) const {
    const std::size_t columns = columns_.centre.size();
    Equations all{columns};
    add_rows(sensor, rows_.size(), all);
    SymmetricMatrix gram = all.gram();
    const double square = fit(sensor, rows_.size()).square;
    for (std::size_t i = 0; i < columns; ++i) {
        for (std::size_t j = 0; j <= i; ++j) gram(i, j) /= square;
        gram(i, i) += columns_.precision[i];
    }
    const Cholesky factor{gram};
    SymmetricMatrix result{place_.size()};
    for (std::size_t j = 0; j < place_.size(); ++j) {
        std::vector<double> unit(columns);
        unit[place_[j]] = 1;
        unit = factor.solve(std::move(unit));
        for (std::size_t k = 0; k <= j; ++k) result(j, k) = unit[place_[k]];
    }
    return result;
}

/// By all columns of the sample: those that are as one in the search are alike.
inline SymmetricMatrix SensorPosterior::of_columns(const SymmetricMatrix& found,
                                                   double scale) const {
    std::vector<double> alike(found.size());
    for (const std::size_t place : place_) ++alike[place];
    SymmetricMatrix all{place_.size()};
    for (std::size_t i = 0; i < place_.size(); ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
            all(i, j) = scale * found(place_[i], place_[j]) / alike[place_[i]] / alike[place_[j]];
        }
    }
    return all;
}

inline NormalSums SensorPosterior::normal_sums(const Equations& found, double square) const {
    const std::size_t columns = columns_.centre.size();
    const SymmetricMatrix gram = found.gram();
    std::vector<double> alike(columns);
    for (const std::size_t place : place_) ++alike[place];
    NormalSums all{of_columns(gram, 1 / square), {}, {}, found.count};
    for (const std::size_t place : place_) {
        double right = found.right[place];
        for (std::size_t b = 0; b < columns; ++b) right += gram(place, b) * columns_.centre[b];
        all.right.push_back(right / square / alike[place]);
    }
    return all;
}

inline NormalSums SensorPosterior::equations(const Sensor& sensor) const {
    Equations all{columns_.centre.size()};
    add_rows(sensor, sought(), all);
    return normal_sums(all, fit(sensor, sought()).square * clustering_);
}

/// The scatter of the equations is that of their sums over runs: all rows of one run are off by
/// what its power differs from the kernel's (Liang and Zeger, Biometrika 73, 1986).
inline RowSums SensorPosterior::row_sums(const Sensor& sensor) const {
    const std::size_t columns = columns_.centre.size();
    const Fit found = fit(sensor, rows_.size());
    RowSums sums;
    for (std::size_t j = 0; j < place_.size(); ++j) sums.add_column();
    add_shares(sensor, sums);
    Equations all{columns};
    SymmetricMatrix scatter{columns};
    std::vector<double> score(columns);
    const SensorSample::Stretch* run = nullptr;
    std::vector<std::size_t> touched;
    std::vector<double> scores;
    const auto end_run = [&] {
        std::sort(touched.begin(), touched.end());
        touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
        scores.clear();
        for (const std::size_t column : touched) scores.push_back(std::exchange(score[column], 0));
        scatter.add_outer(touched, scores, 1);
        touched.clear();
    };
    each_row(sensor, rows_.size(), [&](std::size_t i, double rest, bool) {
        all.add(own_, shares_, rest);
        ++all.count;
        double left = rest;
        for (std::size_t a = 0; a < own_.size(); ++a) {
            left -= shares_[a] * (found.watts[own_[a]] - columns_.centre[own_[a]]);
        }
        const SensorSample::Stretch* shown = &shown_stretch(rows_[i], sensor.delay);
        if (std::exchange(run, shown) != shown) end_run();
        for (std::size_t a = 0; a < own_.size(); ++a) score[own_[a]] += shares_[a] * left;
        touched.insert(touched.end(), own_.begin(), own_.end());
    });
    end_run();
    sums.level = normal_sums(all, found.square * overcount_);  // rows say less than they seem to
    sums.level.scatter = of_columns(scatter, 1 / (found.square * found.square * overcount_));
    sums.rows = all.count;
    sums.fewer_rows = all.count;  // less what those before them foretell, they are independent
    sums.square = all.count;
    sums.product = lasting_ * all.count;
    sums.scatter = all.count * found.square;
    return sums;
}

inline void SensorPosterior::choose_way() {
    if (lasting_ <= 0) return;
    const auto error = [&] {
        const RowSums sums = row_sums(likely());
        SymmetricMatrix gram = sums.level.gram;
        for (std::size_t j = 0; j < gram.size(); ++j) gram(j, j) += columns_.precision[place_[j]];
        const SymmetricMatrix found = Cholesky{gram}.robust_covariance(sums.level.scatter);
        double square = 0;
        for (std::size_t j = 0; j < gram.size(); ++j) {
            square += sums.shares[j] * sums.shares[j] * found(j, j);
        }
        return square;
    };
    const double whitened = error();
    const double lasting = std::exchange(lasting_, 0);
    if (error() > whitened) lasting_ = lasting;
}

/// By means of windows, without what lies far out, as some readings are faults. What calls and
/// noise make of a mean is seen in every other run, which a load from outside moves like the
/// others.
inline double SensorPosterior::wanders(const Sensor& sensor) const {
    constexpr std::size_t fewest = 12;                            // windows
    const double length = std::max(0.5, 2.0 * fewest * period_);  // s
    const Fit found = fit(sensor, rows_.size());
    std::vector<double> left;
    std::vector<double> distances;
    for (const SensorSample::Row& row : rows_) {
        left.push_back(row.watts - explained(row, sensor, found.watts));
        distances.push_back(std::abs(left.back()));
    }
    const double most = far * median_to_deviation * median_of(distances);
    struct Mean {
        double count = 0;
        double watts = 0;
        void add(double more) { watts += (more - watts) / ++count; }
    };
    std::map<std::int64_t, std::array<Mean, 2>> windows;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        const SensorSample::Row& row = rows_[i];
        windows[static_cast<std::int64_t>(row.at / length)][row.stretch % 2].add(
            std::clamp(left[i], -most, most));
    }
    std::vector<std::array<double, 3>>
        means;  // window, its mean, and half of what halves differ by
    Mean differ;
    for (const auto& [window, halves] : windows) {
        const auto& [even, odd] = halves;
        if (std::min(even.count, odd.count) < 4) continue;
        means.push_back({static_cast<double>(window), 0.5 * (even.watts + odd.watts),
                         0.5 * (even.watts - odd.watts)});
        differ.add(means.back()[2]);
    }
    if (means.size() < fewest) return 0;
    Mean at;
    Mean mean;
    for (const auto& [window, watts, half] : means) {
        at.add(window);
        mean.add(watts);
    }
    double along = 0;
    double times = 0;
    double squares = 0;
    double chance = 0;
    for (const auto& [window, watts, half] : means) {
        along += (window - at.watts) * (watts - mean.watts);
        times += (window - at.watts) * (window - at.watts);
        squares += (watts - mean.watts) * (watts - mean.watts);
        chance += (half - differ.watts) * (half - differ.watts);
    }
    return std::sqrt(std::max(squares - along * along / times - chance, 0.0) / (mean.count - 2));
}

/// How much of the rows each column has, by runs.
inline void SensorPosterior::add_shares(const Sensor& sensor, RowSums& sums) const {
    const std::size_t columns = columns_.centre.size();
    std::vector<double> shares(columns);
    std::vector<double> squared(columns);
    std::vector<double> of_run(columns);
    const SensorSample::Stretch* run = nullptr;
    const auto end_run = [&] {
        for (std::size_t j = 0; j < columns; ++j) {
            shares[j] += of_run[j];
            squared[j] += of_run[j] * of_run[j];
            of_run[j] = 0;
        }
    };
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        if (outlier_[i]) continue;
        const auto& row = rows_[i];
        find_shares(row, response(sensor, row), sensor.delay);
        const SensorSample::Stretch* shown = &shown_stretch(row, sensor.delay);
        if (std::exchange(run, shown) != shown) end_run();
        double idle = 0;
        for (std::size_t a = 0; a < own_.size(); ++a) {
            of_run[own_[a]] += shares_[a];
            if (own_[a] == place_[RowSums::idle_column]) idle += shares_[a];
        }
        sums.power.add_power(row.watts, 1 - std::clamp(idle, 0.0, 1.0));
    }
    end_run();
    for (std::size_t j = 0; j < place_.size(); ++j) {
        sums.shares[j] = shares[place_[j]];
        sums.squared_shares[j] = squared[place_[j]];
    }
}

/// The prior, evenly sampled.
inline SensorPosterior::Population SensorPosterior::start(SensorShape shape) {
    const std::size_t many = 16 * guesses_;
    Population all;
    for (std::size_t i = 0; i < many; ++i) {
        SensorGuess guess = prior_.draw(shape, period_, [this] { return uniform(); });
        if (about_ && about_->shape == shape && i % 8 == 0) {
            constexpr double near = 0.5e-3;  // s
            constexpr double alike = 0.1;    // of a memory or window
            guess.at[0] = about_->at[0] + near * (2 * uniform() - 1) - guess.at[2];
            guess.at[1] = about_->at[1] + alike * (2 * uniform() - 1);
            if (!std::isfinite(prior_.density(guess, period_))) continue;
        }
        all.guesses.push_back({guess, prior_.density(guess, period_), 0, 0});
    }
    return all;
}

/// How likely each shape is: the height of its best guess times the room that its guesses take of
/// the prior's (Laplace). What is out of the question is dropped.
inline void SensorPosterior::weigh(std::vector<Population>& all, std::size_t rows) {
    constexpr double hopeless = 15;
    const auto best_of = [](Population& each) -> Weighed& {
        return *std::max_element(
            each.guesses.begin(), each.guesses.end(),
            [](const Weighed& a, const Weighed& b) { return a.next < b.next; });
    };
    const Weighed* best = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (Population& each : all) {
        const Weighed& own = best_of(each);
        const double square = fit(sensor(own.guess), rows).square;
        if (square < least) {
            least = square;
            best = &own;
        }
    }
    judge_rows(sensor(best->guess), rows);
    double highest = -std::numeric_limits<double>::infinity();
    for (Population& each : all) {
        for (Weighed& guess : each.guesses) guess.next = log_likelihood(guess.guess, rows);
        const Weighed& own = best_of(each);
        each.evidence = own.next + own.prior;
        for (std::size_t k = 0; k < 3; ++k) {
            if (k == 1 && own.guess.shape == SensorShape::since_last) continue;
            double mean = 0;
            double square = 0;
            for (const Weighed& guess : each.guesses) mean += guess.guess.at[k];
            mean /= static_cast<double>(each.guesses.size());
            for (const Weighed& guess : each.guesses)
                square += std::pow(guess.guess.at[k] - mean, 2);
            square /= static_cast<double>(each.guesses.size());
            each.evidence += 0.5 * std::log(6.2832 * square + 1e-16);
        }
        highest = std::max(highest, each.evidence);
    }
    std::erase_if(all, [&](const Population& each) { return each.evidence < highest - hopeless; });
    double sum = 0;
    for (Population& each : all) sum += each.weight = std::exp(each.evidence - highest);
    for (Population& each : all) each.weight /= sum;
}

/// From what the first `from` rows say to what the first `to` rows do.
inline void SensorPosterior::advance(Population& population, std::size_t from, std::size_t to) {
    std::vector<Weighed>& all = population.guesses;
    constexpr double least = 0.5;  // of the guesses must stay effective
    for (Weighed& each : all) each.next = log_likelihood(each.guess, to);
    const auto likeliest = [&] {
        return std::max_element(all.begin(), all.end(),
                                [](const Weighed& a, const Weighed& b) { return a.next < b.next; });
    };
    const auto judge = [&] {  // the noise as the likeliest hypothesis leaves it
        judge_rows(sensor(likeliest()->guess), to);
        for (Weighed& each : all) {
            each.last = log_likelihood(each.guess, from);
            each.next = log_likelihood(each.guess, to);
        }
    };
    double done = 0;
    for (int step = 0; done < 1 && step < 40; ++step) {
        if (step % 4 == 0) judge();
        const auto effective = [&](double by) {
            double highest = -std::numeric_limits<double>::infinity();
            for (const Weighed& each : all)
                highest = std::max(highest, by * (each.next - each.last));
            double sum = 0;
            double squares = 0;
            for (const Weighed& each : all) {
                const double weight = std::exp(by * (each.next - each.last) - highest);
                sum += weight;
                squares += weight * weight;
            }
            return sum * sum / squares;
        };
        const double needed =
            std::min(least * static_cast<double>(all.size()), static_cast<double>(guesses_));
        double by = 1 - done;
        if (effective(by) < needed) {
            double low = 0;
            for (int i = 0; i < 30; ++i) {
                const double middle = 0.5 * (low + by);
                (effective(middle) < needed ? by : low) = middle;
            }
            by = low;
        }
        done += by;
        resample(all, by, from == 0 ? 2 * guesses_ : guesses_);
        move(all, done, from, to);
    }
    judge();
    move(all, 1, from, to);
}

/// Systematic resampling.
inline void SensorPosterior::resample(std::vector<Weighed>& all, double by, std::size_t many) {
    double highest = -std::numeric_limits<double>::infinity();
    for (const Weighed& each : all) highest = std::max(highest, by * (each.next - each.last));
    std::vector<double> weights;
    double sum = 0;
    for (const Weighed& each : all) {
        sum += std::exp(by * (each.next - each.last) - highest);
        weights.push_back(sum);
    }
    std::vector<Weighed> chosen;
    const double offset = uniform();
    std::size_t from = 0;
    for (std::size_t i = 0; i < many; ++i) {
        const double at = sum * (static_cast<double>(i) + offset) / static_cast<double>(many);
        while (from + 1 < weights.size() && weights[from] < at) ++from;
        chosen.push_back(all[from]);
    }
    all = std::move(chosen);
}

/// Differential evolution Markov chain (ter Braak, Statistics and Computing 16, 2006): steps as
/// long as guesses are apart, whatever the directions and however many modes.
inline void SensorPosterior::move(std::vector<Weighed>& all, double part, std::size_t from,
                                  std::size_t to) {
    const int rounds = part < 1 ? 1 : 2;
    std::normal_distribution<double> normal;
    for (int round = 0; round < rounds; ++round) {
        for (Weighed& each : all) {
            const Weighed& a = all[random_() % all.size()];
            const Weighed& b = all[random_() % all.size()];
            if (a.guess.shape != each.guess.shape || b.guess.shape != each.guess.shape) continue;
            const double length = random_() % 5 == 0 ? 1 : (random_() % 2 == 0 ? 0.4 : 0.97);
            Weighed tried = each;
            for (std::size_t k = 0; k < 3; ++k) {
                constexpr std::array jitter{2e-6, 1e-4, 4e-6};
                tried.guess.at[k] +=
                    length * (a.guess.at[k] - b.guess.at[k]) + jitter[k] * normal(random_);
            }
            tried.prior = prior_.density(tried.guess, period_);
            if (!std::isfinite(tried.prior)) continue;
            tried.next = log_likelihood(tried.guess, to);
            tried.last = part < 1 ? log_likelihood(tried.guess, from) : 0;
            const auto height = [&](const Weighed& of) {
                return of.prior + part * of.next + (part < 1 ? (1 - part) * of.last : 0);
            };
            if (std::log(uniform()) < height(tried) - height(each)) each = tried;
        }
    }
}

/// Faults are few and lie on either side, or lie far beyond all else. Other rows are a kernel's
/// own: left out, they take the calls that draw most from its mean.
/// @param left by row, W @param most from which on a row lies far
inline void SensorPosterior::leave_out(std::span<const double> left, double most) {
    constexpr double few = 0.01;    // of the rows
    constexpr double balanced = 3;  // deviations of the sum, were all signs chance
    double all = 0;
    double count = 0;
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
        all += left[i] * left[i];
        outlier_[i] = std::abs(left[i]) > most && most > 0 ? 1 : 0;
        if (!outlier_[i]) continue;
        ++count;
        sum += left[i];
        squares += left[i] * left[i];
    }
    const auto rows = static_cast<double>(left.size());
    if (count <= few * rows && sum * sum <= balanced * balanced * squares) return;
    constexpr double no_kernel = 2;  // means of the power that a row is off
    const double beyond = std::max(far * std::sqrt(all / rows), no_kernel * mean_);
    for (std::size_t i = 0; i < left.size(); ++i) outlier_[i] = std::abs(left[i]) > beyond ? 1 : 0;
}

/// The noise of rows, which of them are faults, and how alike those of one place are.
inline void SensorPosterior::judge_rows(const Sensor& sensor, std::size_t rows) {
    const Fit found = fit(sensor, rows);
    std::vector<double> left(rows);
    std::vector<double> distances(rows);
    for (std::size_t i = 0; i < rows; ++i) {
        left[i] = rows_[i].watts - explained(rows_[i], sensor, found.watts);
        distances[i] = std::abs(left[i]);
    }
    leave_out(left, far * median_to_deviation * median_of(distances));
    double products = 0;
    double pairs = 0;
    for (std::size_t i = 0; i < rows; ++i) {
        if (outlier_[i] || !follows(i)) continue;
        products += left[i] * left[i - 1];
        pairs += 0.5 * (left[i] * left[i] + left[i - 1] * left[i - 1]);
    }
    lasting_ = pairs > 0 ? std::clamp(products / pairs, 0.0, 0.95) : 0;
    square_ = std::max(found.square, least_square());
    clustering_ = 1;
    for (const Sensor& other :
         {Sensor{sensor.delay + 1e-4, sensor.memory, sensor.window, sensor.rise},
          Sensor{sensor.delay, 1.03 * sensor.memory, 1.03 * sensor.window, sensor.rise}}) {
        clustering_ = std::max(clustering_, overcount(sensor, other, rows, found.watts, left));
    }
}

/// Where the board is not as the model has it, the more rows there are the less each one says.
inline void SensorPosterior::judge_all() {
    overcount_ = clustering_;
    if (sought() == rows()) return;
    for (int round = 0; round < 2; ++round) judge_rows(likely(), rows());  // once without faults
    std::swap(overcount_, clustering_);
}

/// How much less the rows say of the way from one sensor to another than independent ones would:
/// the variance of the score, clustered by place in the sequence and by neighbours in time, over
/// what independent residuals make of it.
inline double SensorPosterior::overcount(const Sensor& sensor, const Sensor& other,
                                         std::size_t rows, std::span<const double> watts,
                                         std::span<const double> left) const {
    const std::size_t columns = columns_.centre.size();
    std::vector<double> change(rows);
    std::vector<double> right(columns);
    SymmetricMatrix gram{columns};
    for (std::size_t j = 0; j < columns; ++j) gram(j, j) = square_ * columns_.precision[j];
    for (std::size_t i = 0; i < rows; ++i) {
        if (outlier_[i]) continue;
        change[i] = explained(rows_[i], other, watts) - (rows_[i].watts - left[i]);
        find_shares(rows_[i], response(sensor, rows_[i]), sensor.delay);
        gram.add_outer(own_, shares_, 1);
        for (std::size_t a = 0; a < own_.size(); ++a) right[own_[a]] += shares_[a] * change[i];
    }
    const std::vector<double> taken = Cholesky{gram}.solve(right);
    constexpr std::size_t parts = 3;
    constexpr std::size_t lags = 6;
    std::vector<double> places(parts * columns);
    std::vector<double> score(rows_.size());
    double alone = 0;
    double expected = 0;
    double squares = 0;
    for (std::size_t i = 0; i < rows; ++i) {
        if (outlier_[i]) continue;
        find_shares(rows_[i], response(sensor, rows_[i]), sensor.delay);
        for (std::size_t a = 0; a < own_.size(); ++a) change[i] -= shares_[a] * taken[own_[a]];
        const double z = change[i] * left[i];
        score[rows_[i].index] = z;
        alone += z * z;
        expected += change[i] * change[i];
        squares += left[i] * left[i];
        const auto& block = sample_->blocks()[rows_[i].block];
        const double shown = rows_[i].at - sensor.delay;
        std::size_t s = rows_[i].stretch;
        while (s > 0 && block.stretches[s].from >= shown) --s;
        const auto& stretch = block.stretches[s];
        if (stretch.count == 0) continue;
        const double age =
            std::clamp((shown - stretch.run_from) / (stretch.run_to - stretch.run_from), 0.0, 0.99);
        places[parts * place_[block.entries[stretch.first].column] +
               static_cast<std::size_t>(age * parts)] += z;
    }
    double by_place = 0;
    for (const double sum : places) by_place += sum * sum;
    double by_time = alone;
    for (std::size_t k = 1; k <= lags; ++k) {
        double sum = 0;
        for (std::size_t i = k; i < score.size(); ++i) sum += score[i] * score[i - k];
        by_time += 2 * (1 - static_cast<double>(k) / (lags + 1)) * sum;
    }
    const double usual = expected * squares / static_cast<double>(std::max<std::size_t>(rows, 1));
    return usual > 0 ? std::max({by_place, by_time, alone}) / usual : 1;
}

}  // namespace kdvfs::inline v0_3::measure
