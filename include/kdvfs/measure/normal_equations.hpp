// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/least_squares.hpp>

#include <gsl/assert>

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// The sums of a streaming weighted least squares: rows come one at a time and are not kept.
/// A row says: over one interval of the energy counter, column j ran for a_j seconds, and the
/// counter grew by b joules; the unknowns are each column's watts. What is kept is A'WA, A'Wb and
/// b'Wb, so memory grows with the columns only, and a row allocates nothing.
/// Cost of a row: half the square of the columns that it touches.
class NormalEquations {
public:
    /// Adds an unknown and returns its index.
    std::size_t add_column() {
        const std::size_t column = time_.size();
        gram_.resize(gram_.size() + column + 1);
        right_.push_back(0);
        time_.push_back(0);
        row_.push_back(0);
        touched_.reserve(time_.capacity());
        return column;
    }

    /// Adds time to the row under construction.
    void add(std::size_t column, double seconds) {
        Expects(column < row_.size());
        if (seconds == 0) return;
        if (row_[column] == 0) touched_.push_back(column);
        row_[column] += seconds;
    }

    /// Ends the row under construction. `weight` is proportional to 1 / variance of `joules`.
    void finish_row(double joules, double weight) {
        for (const std::size_t i : touched_) {
            const double weighted = weight * row_[i];
            right_[i] += weighted * joules;
            time_[i] += row_[i];
            for (const std::size_t j : touched_) {
                if (j <= i) gram_[packed(i, j)] += weighted * row_[j];
            }
        }
        squares_ += weight * joules * joules;
        ++rows_;
        discard_row();
    }

    /// Forgets the row under construction.
    void discard_row() {
        for (const std::size_t i : touched_) row_[i] = 0;
        touched_.clear();
    }

    [[nodiscard]] std::size_t columns() const { return time_.size(); }
    [[nodiscard]] std::size_t rows() const { return rows_; }
    /// Seconds of a column over all finished rows.
    [[nodiscard]] double time(std::size_t column) const { return time_[column]; }
    /// A'WA, A'Wb and b'Wb, for other solvers.
    [[nodiscard]] double gram(std::size_t i, std::size_t j) const {
        return i < j ? gram_[packed(j, i)] : gram_[packed(i, j)];
    }
    [[nodiscard]] double right(std::size_t column) const { return right_[column]; }
    [[nodiscard]] double squares() const { return squares_; }

    /// The watts that explain the joules best.
    [[nodiscard]] LeastSquares solve() const {
        const std::size_t n = columns();
        std::vector<double> full(n * n);
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j <= i; ++j) full[i * n + j] = gram_[packed(i, j)];
        }
        return LeastSquares{std::move(full), right_, squares_, rows_};
    }

private:
    // Row by row of the lower triangle: a new column only appends.
    static constexpr std::size_t packed(std::size_t i, std::size_t j) {
        return i * (i + 1) / 2 + j;
    }

    std::vector<double> gram_;
    std::vector<double> right_;
    std::vector<double> time_;
    std::vector<double> row_;
    std::vector<std::size_t> touched_;
    double squares_ = 0;
    std::size_t rows_ = 0;
};

}  // namespace kdvfs::measure
