// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/least_squares.hpp>
#include <kdvfs/measure/normal_equations.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// Normal equations that a few wrong rows cannot spoil. A counter can jump by less than the board
/// could draw, and no limit on single readings finds that; but the row then lies far from what all
/// others say. The first rows are kept and fitted together with those that lie beyond 5 standard
/// deviations left out; after that a row is compared with the fit so far and kept or refused as it
/// comes. White noise passes but for one row in a million. Memory is bounded; a row that is kept
/// costs one pass over the columns that it touches, beyond `NormalEquations`.
class RobustRows {
public:
    /// A row further from the fit than this many standard deviations is refused.
    static constexpr double tolerance = 5;
    /// But never for less than this share of its joules: no counter is that good.
    static constexpr double harmless = 1e-3;
    /// So many refusals in a row mean that the work has changed and not that the counter errs.
    static constexpr std::uint32_t patience = 20;

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
    void finish_row(double joules, double weight);

    /// The sums of all rows that are believed by now.
    [[nodiscard]] NormalEquations equations() const {
        NormalEquations all = equations_;
        for (const Row& row : believed(first_rows_)) insert(row, all);
        return all;
    }
    [[nodiscard]] std::size_t columns() const { return equations_.columns(); }
    /// Rows that were refused.
    [[nodiscard]] std::uint64_t refused() const {
        return refused_ + first_rows_.size() - believed(first_rows_).size();
    }

private:
    struct Entry {
        std::size_t column;
        double seconds;
    };
    struct Row {
        std::vector<Entry> entries;
        double joules;
        double weight;
    };

    static void insert(const Row& row, NormalEquations& into) {
        for (const Entry& entry : row.entries) into.add(entry.column, entry.seconds);
        into.finish_row(row.joules, row.weight);
    }
    static double residual(const Row& row, const LeastSquares& fit) {
        double explained = 0;
        for (const Entry& entry : row.entries) {
            explained += fit.watts(entry.column) * entry.seconds;
        }
        return (row.joules - explained) * std::sqrt(row.weight);
    }
    static double least_error(const Row& row) {
        return harmless * std::abs(row.joules) * std::sqrt(row.weight);
    }
    [[nodiscard]] std::vector<Row> believed(const std::vector<Row>& rows) const;
    [[nodiscard]] bool believes(const Row& row) const;
    void learn();

    static constexpr std::size_t nowhere = ~std::size_t{0};

    NormalEquations equations_;
    std::vector<Entry> row_;
    std::vector<std::size_t> place_;  // of a column in the row under construction
    std::vector<Row> first_rows_;
    std::optional<LeastSquares> fit_;
    std::size_t fitted_columns_ = 0;
    std::size_t fitted_rows_ = 0;
    std::uint32_t refused_in_a_row_ = 0;
    std::uint64_t refused_ = 0;
};

inline void RobustRows::finish_row(double joules, double weight) {
    for (const Entry& entry : row_) place_[entry.column] = nowhere;
    Row row{std::exchange(row_, {}), joules, weight};
    if (!fit_) {
        first_rows_.push_back(std::move(row));
        const std::size_t enough = std::max<std::size_t>(64, 4 * columns());
        if (first_rows_.size() < enough) return;
        const auto kept = believed(first_rows_);
        refused_ += first_rows_.size() - kept.size();
        for (const Row& first : kept) insert(first, equations_);
        first_rows_ = {};
        learn();
        return;
    }
    if (!believes(row) && ++refused_in_a_row_ < patience) {
        ++refused_;
    } else {
        const bool changed = refused_in_a_row_ >= patience;
        refused_in_a_row_ = 0;
        insert(row, equations_);
        if (changed || equations_.rows() >= 2 * fitted_rows_) learn();
    }
    row_ = std::move(row.entries);  // its memory serves the next row
    row_.clear();
}

/// Those of the first rows that agree with most others: least squares, anew without the rows beyond
/// the tolerance until their set stays the same. The spread is taken from the median, which
/// outliers do not move.
inline std::vector<RobustRows::Row> RobustRows::believed(const std::vector<Row>& rows) const {
    constexpr double deviations_per_median = 1.4826;  // of the absolute value of a normal variate
    std::vector<Row> kept = rows;
    for (int round = 0; round < 10; ++round) {
        NormalEquations trial = equations_;
        for (const Row& row : kept) insert(row, trial);
        const LeastSquares fit = trial.solve();
        const std::size_t free = kept.size() - std::min(kept.size(), fit.rank());
        if (free < kept.size() / 2 || free == 0) return kept;
        std::vector<double> sizes;
        for (const Row& row : rows) sizes.push_back(std::abs(residual(row, fit)));
        auto sorted = sizes;
        const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
        std::nth_element(sorted.begin(), middle, sorted.end());
        // A fit with few rows to spare bends towards each of them.
        const double bend = std::sqrt(static_cast<double>(kept.size()) / static_cast<double>(free));
        const double limit = tolerance * deviations_per_median * bend * *middle;
        std::vector<Row> next;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (sizes[i] <= std::max(limit, least_error(rows[i]))) next.push_back(rows[i]);
        }
        const bool same = next.size() == kept.size();
        kept = std::move(next);
        if (same) break;
    }
    return kept;
}

/// Whether a row lies where the fit expects it, or where the fit knows too little to object.
inline bool RobustRows::believes(const Row& row) const {
    for (const Entry& entry : row.entries) {
        if (entry.column >= fitted_columns_) return true;
    }
    const double variance = fit_->residual_variance();
    const double size = std::abs(residual(row, *fit_));
    if (size <= std::max(tolerance * std::sqrt(variance), least_error(row))) return true;
    std::vector<double> seconds(fitted_columns_);
    double time = 0;
    for (const Entry& entry : row.entries) {
        seconds[entry.column] = entry.seconds;
        time += entry.seconds;
    }
    const Combination expected = fit_->combine(seconds);
    constexpr double known = 0.01;
    if (expected.open_seconds > known * time) return true;
    const double spread =
        std::sqrt(variance + row.weight * expected.standard_error * expected.standard_error);
    return size <= tolerance * spread;
}

inline void RobustRows::learn() {
    fit_ = equations_.solve();
    fitted_columns_ = columns();
    fitted_rows_ = equations_.rows();
}

}  // namespace kdvfs::measure
