// SPDX-License-Identifier: MIT
#pragma once

#include <gsl/assert>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// Half-width of a 95 % interval in standard errors: Student's t, by Fisher's expansion in the
/// degrees of freedom (Abramowitz and Stegun 26.7.5). Within 0.3 % from 3 degrees on.
inline double student_95(std::size_t degrees_of_freedom) {
    if (degrees_of_freedom == 0) return std::numeric_limits<double>::infinity();
    constexpr double z = 1.959963984540054;
    constexpr double z3 = z * z * z;
    constexpr double z5 = z3 * z * z;
    constexpr double z7 = z5 * z * z;
    constexpr double z9 = z7 * z * z;
    const auto n = static_cast<double>(degrees_of_freedom);
    return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n) +
           (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * z) / (92160 * n * n * n * n);
}

/// A sum of columns, `time` seconds each, as least squares see it.
struct Combination {
    double joules = 0;
    double standard_error = 0;
    /// Seconds of the sum that the rows leave open: watts could move between columns that always
    /// ran in one mix, and this much of the sum would move with them. 0 = well determined.
    double open_seconds = 0;
};

/// Solves G x = r, the normal equations of a weighted least squares, by a Cholesky factorisation
/// with diagonal pivoting of the matrix scaled to unit diagonal. A column whose pivot falls under
/// the threshold is, within rounding, a mix of the columns before it: it gets no watts of its own,
/// and `combine` says which sums do not depend on how the mix is split.
class LeastSquares {
public:
    /// A pivot is the squared sine of the angle between a column and the span of those before it.
    /// Sums of 1e6 rows in doubles are good to about 1e-13; times in nanoseconds to much less.
    static constexpr double pivot_threshold = 1e-10;

    /// `gram` is the lower triangle of A'WA, row by row in an n x n array.
    LeastSquares(std::vector<double> gram, std::span<const double> right, double squares,
                 std::size_t rows)
        : n_{right.size()}, factor_{std::move(gram)}, scale_(n_), order_(n_), group_(n_) {
        Expects(factor_.size() == n_ * n_);
        factorise();
        substitute(right);
        find_mixes();
        degrees_ = rows > rank_ ? rows - rank_ : 0;
        double explained = 0;
        for (std::size_t i = 0; i < n_; ++i) explained += watts_[i] * right[i];
        const double residual = std::max(squares - explained, 0.0);
        variance_ = degrees_ > 0 ? residual / static_cast<double>(degrees_) : 0;
    }

    [[nodiscard]] std::size_t rank() const { return rank_; }
    [[nodiscard]] std::size_t degrees_of_freedom() const { return degrees_; }
    /// Variance of a row of weight 1.
    [[nodiscard]] double residual_variance() const { return variance_; }
    /// One solution: a column without a pivot has 0 watts. Use `combine` for what may be believed.
    [[nodiscard]] double watts(std::size_t column) const { return watts_[column]; }
    /// Columns with the same group cannot be told apart.
    [[nodiscard]] std::size_t group(std::size_t column) const { return root(column); }

    /// The energy of `seconds[j]` seconds of each column j.
    [[nodiscard]] Combination combine(std::span<const double> seconds) const {
        Expects(seconds.size() == n_);
        Combination result;
        std::vector<double> v(rank_);
        for (std::size_t k = 0; k < n_; ++k) result.joules += watts_[k] * seconds[k];
        for (std::size_t i = 0; i < rank_; ++i) {
            v[i] = seconds[order_[i]] / scale_[order_[i]];
            for (std::size_t j = 0; j < i; ++j) v[i] -= factor_[i * n_ + j] * v[j];
            v[i] /= factor_[i * n_ + i];
        }
        result.standard_error =
            std::sqrt(variance_ * std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
        for (std::size_t i = rank_; i < n_; ++i) {
            double open = seconds[order_[i]];
            for (std::size_t k = 0; k < rank_; ++k) {
                open -= factor_[i * n_ + k] * seconds[order_[k]];
            }
            result.open_seconds += std::abs(open);
        }
        return result;
    }

private:
    void factorise() {
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        for (std::size_t i = 0; i < n_; ++i) {
            const double diagonal = factor_[i * n_ + i];
            scale_[i] = diagonal > 0 ? std::sqrt(diagonal) : 1;
        }
        for (std::size_t i = 0; i < n_; ++i) {
            for (std::size_t j = 0; j <= i; ++j) factor_[i * n_ + j] /= scale_[i] * scale_[j];
        }
        for (rank_ = 0; rank_ < n_; ++rank_) {
            std::size_t best = rank_;
            for (std::size_t i = rank_; i < n_; ++i) {
                if (factor_[i * n_ + i] > factor_[best * n_ + best]) best = i;
            }
            if (factor_[best * n_ + best] <= pivot_threshold) break;
            exchange(rank_, best);
            eliminate(rank_);
        }
    }

    /// Exchanges two rows and columns of the lower triangle.
    void exchange(std::size_t a, std::size_t b) {
        if (a == b) return;
        std::swap(order_[a], order_[b]);
        for (std::size_t j = 0; j < a; ++j) std::swap(factor_[a * n_ + j], factor_[b * n_ + j]);
        std::swap(factor_[a * n_ + a], factor_[b * n_ + b]);
        for (std::size_t k = a + 1; k < b; ++k) {
            std::swap(factor_[k * n_ + a], factor_[b * n_ + k]);
        }
        for (std::size_t i = b + 1; i < n_; ++i) {
            std::swap(factor_[i * n_ + a], factor_[i * n_ + b]);
        }
    }

    void eliminate(std::size_t k) {
        const double pivot = std::sqrt(factor_[k * n_ + k]);
        factor_[k * n_ + k] = pivot;
        for (std::size_t i = k + 1; i < n_; ++i) {
            factor_[i * n_ + k] /= pivot;
            const double multiple = factor_[i * n_ + k];
            if (multiple == 0) continue;
            for (std::size_t j = k + 1; j <= i; ++j) {
                factor_[i * n_ + j] -= multiple * factor_[j * n_ + k];
            }
        }
    }

    void substitute(std::span<const double> right) {
        std::vector<double> x(rank_);
        for (std::size_t i = 0; i < rank_; ++i) {
            x[i] = right[order_[i]] / scale_[order_[i]];
            for (std::size_t j = 0; j < i; ++j) x[i] -= factor_[i * n_ + j] * x[j];
            x[i] /= factor_[i * n_ + i];
        }
        back_substitute(x);
        watts_.assign(n_, 0);
        for (std::size_t i = 0; i < rank_; ++i) watts_[order_[i]] = x[i] / scale_[order_[i]];
    }

    /// Solves L' y = x in place.
    void back_substitute(std::span<double> x) const {
        for (std::size_t i = rank_; i-- > 0;) {
            for (std::size_t k = i + 1; k < rank_; ++k) x[i] -= factor_[k * n_ + i] * x[k];
            x[i] /= factor_[i * n_ + i];
        }
    }

    /// Replaces the factor's rows below the rank by each such column's mix: column i equals the sum
    /// of factor[i][k] times pivot column k, in seconds.
    void find_mixes() {
        // A share under this is rounding: pivots of 1e-10 leave shares good to about 1e-5.
        constexpr double share_threshold = 1e-4;
        std::iota(group_.begin(), group_.end(), std::size_t{0});
        for (std::size_t i = rank_; i < n_; ++i) {
            const std::span<double> mix{&factor_[i * n_], rank_};
            back_substitute(mix);
            for (std::size_t k = 0; k < rank_; ++k) {
                if (std::abs(mix[k]) > share_threshold) {
                    group_[root(order_[i])] = root(order_[k]);
                }
                mix[k] *= scale_[order_[i]] / scale_[order_[k]];
            }
        }
    }

    [[nodiscard]] std::size_t root(std::size_t column) const {
        while (group_[column] != column) column = group_[column];
        return column;
    }

    std::size_t n_;
    std::vector<double> factor_;
    std::vector<double> scale_;
    std::vector<std::size_t> order_;
    std::vector<std::size_t> group_;
    std::vector<double> watts_;
    std::size_t rank_ = 0;
    std::size_t degrees_ = 0;
    double variance_ = 0;
};

}  // namespace kdvfs::measure
