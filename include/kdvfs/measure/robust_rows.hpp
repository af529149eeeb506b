// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/least_squares.hpp>
#include <kdvfs/measure/normal_equations.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// Normal equations that a few wrong rows cannot spoil. A counter can jump by less than the board
/// could draw, and no limit on single readings finds that; but its row then lies far from what all
/// others say. Rows are kept until a block is full, then judged in hindsight, together with all
/// earlier ones: fitted by Huber's M-estimator, which bounds the pull of every row, and added to
/// the sums unless they lie further from that fit than 5 standard deviations (white noise does so
/// once in a million). Memory is bounded by one block.
class RobustRows {
public:
    /// A row further from the fit than this many standard deviations is refused,
    static constexpr double tolerance = 5;
    /// but never for less than this share of its joules: no counter is that good.
    static constexpr double harmless = 1e-3;
    /// Where more than this share of a block would be refused, it is the fit that is wrong: the
    /// powers are not constant. The block is kept whole, and intervals become wide.
    static constexpr double most_refused = 0.25;

    std::size_t add_column() {
        place_.push_back(nowhere);
        return equations_.add_column();
    }
    void add(std::size_t column, double seconds) {
        if (seconds == 0) return;
        std::size_t& place = place_[column];
        if (place == nowhere) {
            place = row_.size();
            row_.push_back({column, 0});
        }
        row_[place].seconds += seconds;
    }
    void discard_row() {
        for (const Entry& entry : row_) place_[entry.column] = nowhere;
        row_.clear();
    }
    void finish_row(double joules, double weight) {
        const std::size_t first = entries_.size();
        entries_.insert(entries_.end(), row_.begin(), row_.end());
        block_.push_back({first, row_.size(), joules, weight});
        discard_row();
        if (block_.size() < std::max<std::size_t>(1024, 4 * columns())) return;
        refused_ += add_block(equations_);
        block_.clear();
        entries_.clear();
    }

    /// The sums of all rows that are believed by now.
    [[nodiscard]] NormalEquations equations() const {
        NormalEquations all = equations_;
        add_block(all);
        return all;
    }
    /// Rows that were refused.
    [[nodiscard]] std::uint64_t refused() const {
        NormalEquations all = equations_;
        return refused_ + add_block(all);
    }
    [[nodiscard]] std::size_t columns() const { return equations_.columns(); }

private:
    static constexpr std::size_t nowhere = ~std::size_t{0};

    struct Entry {
        std::size_t column;
        double seconds;
    };
    struct Row {
        std::size_t first;
        std::size_t count;
        double joules;
        double weight;
    };

    void insert(const Row& row, double trust, NormalEquations& into) const {
        for (std::size_t i = row.first; i < row.first + row.count; ++i) {
            into.add(entries_[i].column, entries_[i].seconds);
        }
        into.finish_row(row.joules, row.weight * trust);
    }
    [[nodiscard]] double residual(const Row& row, const LeastSquares& fit) const {
        double explained = 0;
        for (std::size_t i = row.first; i < row.first + row.count; ++i) {
            explained += fit.watts(entries_[i].column) * entries_[i].seconds;
        }
        return (row.joules - explained) * std::sqrt(row.weight);
    }
    static double least_error(const Row& row) {
        return harmless * std::abs(row.joules) * std::sqrt(row.weight);
    }
    std::uint64_t add_block(NormalEquations& sums) const;
    [[nodiscard]] double fit_robustly(const NormalEquations& sums,
                                      std::vector<double>& residuals) const;

    NormalEquations equations_;
    std::vector<Entry> row_;
    std::vector<std::size_t> place_;  // of a column in the row under construction
    std::vector<Row> block_;
    std::vector<Entry> entries_;  // of the block's rows
    std::uint64_t refused_ = 0;
};

/// Adds those of the block's rows that are believed; returns how many are not.
inline std::uint64_t RobustRows::add_block(NormalEquations& sums) const {
    if (block_.empty()) return 0;
    std::vector<double> residuals;
    const double deviation = fit_robustly(sums, residuals);
    const auto refuses = [&](std::size_t i) {
        return residuals[i] > std::max(tolerance * deviation, least_error(block_[i]));
    };
    std::uint64_t refused = 0;
    for (std::size_t i = 0; i < block_.size(); ++i) refused += refuses(i) ? 1 : 0;
    if (static_cast<double>(refused) > most_refused * static_cast<double>(block_.size())) {
        refused = 0;
    }
    for (std::size_t i = 0; i < block_.size(); ++i) {
        if (refused == 0 || !refuses(i)) insert(block_[i], 1, sums);
    }
    return refused;
}

/// Fits by iteratively reweighted least squares and returns the standard deviation of a row of
/// weight 1, from the median, which outliers do not move; `residuals` receives absolute values.
inline double RobustRows::fit_robustly(const NormalEquations& sums,
                                       std::vector<double>& residuals) const {
    constexpr double huber = 1.345;  // 95 % as efficient as least squares on white noise
    constexpr double median_to_deviation = 1.4826;  // of the absolute value of a normal variate
    constexpr int rounds = 20;
    std::vector<double> trust(block_.size(), 1.0);
    std::vector<double> sorted;
    double deviation = 0;
    for (int round = 0; round < rounds; ++round) {
        NormalEquations trial = sums;
        for (std::size_t i = 0; i < block_.size(); ++i) insert(block_[i], trust[i], trial);
        const LeastSquares fit = trial.solve();
        residuals.clear();
        for (const Row& row : block_) residuals.push_back(std::abs(residual(row, fit)));
        sorted = residuals;
        const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
        std::nth_element(sorted.begin(), middle, sorted.end());
        // A fit with few rows to spare bends towards each of them.
        const auto rows = static_cast<double>(trial.rows());
        const auto free = std::max(1.0, rows - static_cast<double>(fit.rank()));
        const double before = deviation;
        deviation = median_to_deviation * *middle * std::sqrt(rows / free);
        if (round > 0 && std::abs(deviation - before) <= 1e-3 * deviation) break;
        for (std::size_t i = 0; i < block_.size(); ++i) {
            const double limit = std::max(huber * deviation, least_error(block_[i]));
            trust[i] = residuals[i] > limit ? limit / residuals[i] : 1.0;
        }
    }
    return deviation;
}

}  // namespace kdvfs::measure
