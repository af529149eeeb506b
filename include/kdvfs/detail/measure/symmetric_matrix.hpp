// SPDX-License-Identifier: MIT
#pragma once

#include <gsl/assert>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// A symmetric matrix: its lower triangle row by row, so that a new column only appends.
class SymmetricMatrix {
public:
    SymmetricMatrix() = default;
    explicit SymmetricMatrix(std::size_t size) { grow(size); }

    [[nodiscard]] std::size_t size() const { return size_; }
    /// New rows and columns are zero.
    void grow(std::size_t size) {
        Expects(size >= size_);
        size_ = size;
        values_.resize(size * (size + 1) / 2);
    }
    double& operator()(std::size_t i, std::size_t j) { return values_[place(i, j)]; }
    double operator()(std::size_t i, std::size_t j) const { return values_[place(i, j)]; }

    /// Adds weight * v v', where v is `values` at `columns`, each of them once, and zero elsewhere.
    void add_outer(std::span<const std::size_t> columns, std::span<const double> values,
                   double weight) {
        for (std::size_t a = 0; a < columns.size(); ++a) {
            const double weighted = weight * values[a];
            for (std::size_t b = 0; b <= a; ++b) {
                values_[place(columns[a], columns[b])] += weighted * values[b];
            }
        }
    }
    /// The same for a vector without zeros.
    void add_outer(std::span<const double> v, double weight) {
        double* value = values_.data();
        for (std::size_t i = 0; i < size_; ++i) {
            const double weighted = weight * v[i];
            for (std::size_t j = 0; j <= i; ++j) *value++ += weighted * v[j];
        }
    }
    SymmetricMatrix& operator+=(const SymmetricMatrix& other) {
        Expects(size_ == other.size_);
        for (std::size_t k = 0; k < values_.size(); ++k) values_[k] += other.values_[k];
        return *this;
    }

private:
    static std::size_t place(std::size_t i, std::size_t j) {
        return i < j ? j * (j + 1) / 2 + i : i * (i + 1) / 2 + j;
    }

    std::size_t size_ = 0;
    std::vector<double> values_;
};

/// The Cholesky factor of a positive definite matrix, L L'. A pivot that rounding has made zero or
/// less becomes a tiny one: its unknown is then as good as fixed by nothing.
class Cholesky {
public:
    explicit Cholesky(const SymmetricMatrix& matrix)
        : size_{matrix.size()}, factor_(size_ * size_) {
        for (std::size_t i = 0; i < size_; ++i) {
            for (std::size_t j = 0; j <= i; ++j) {
                double& value = at(i, j);
                value = matrix(i, j) - std::inner_product(&at(i, 0), &at(i, 0) + j, &at(j, 0), 0.0);
                if (j < i) value /= at(j, j);
            }
            constexpr double rounding = 1e-14;
            at(i, i) = std::sqrt(std::max({at(i, i), rounding * matrix(i, i), 1e-300}));
        }
    }

    /// The x of L L' x = right.
    [[nodiscard]] std::vector<double> solve(std::vector<double> right) const {
        Expects(right.size() == size_);
        for (std::size_t i = 0; i < size_; ++i) {
            right[i] -= std::inner_product(&at(i, 0), &at(i, 0) + i, right.data(), 0.0);
            right[i] /= at(i, i);
        }
        for (std::size_t i = size_; i-- > 0;) {
            right[i] /= at(i, i);
            for (std::size_t k = 0; k < i; ++k) right[k] -= at(i, k) * right[i];
        }
        return right;
    }

    [[nodiscard]] double log_determinant() const {
        double sum = 0;
        for (std::size_t i = 0; i < size_; ++i) sum += 2 * std::log(at(i, i));
        return sum;
    }

    /// The diagonal of the inverse.
    [[nodiscard]] std::vector<double> inverse_diagonal() const {
        std::vector<double> result(size_);
        std::vector<double> x(size_);
        for (std::size_t j = 0; j < size_; ++j) {
            // Of a unit vector's solution, what lies before its one is not needed.
            for (std::size_t i = j; i < size_; ++i) {
                x[i] = i == j ? 1 : 0;
                x[i] -= std::inner_product(&at(i, j), &at(i, 0) + i, x.data() + j, 0.0);
                x[i] /= at(i, i);
            }
            for (std::size_t i = size_; i-- > j;) {
                x[i] /= at(i, i);
                for (std::size_t k = j; k < i; ++k) x[k] -= at(i, k) * x[i];
            }
            result[j] = x[j];
        }
        return result;
    }

    /// The inverse times `middle` times the inverse: the covariance of an estimate whose scores
    /// have the covariance `middle`.
    [[nodiscard]] SymmetricMatrix robust_covariance(const SymmetricMatrix& middle) const {
        std::vector<double> half(size_ * size_);  // inverse * middle
        solve_columns([&](std::size_t i, std::size_t j) { return middle(i, j); },
                      [&](std::size_t i, std::size_t j, double x) { half[i * size_ + j] = x; });
        SymmetricMatrix result{size_};
        solve_columns([&](std::size_t i, std::size_t j) { return half[j * size_ + i]; },
                      [&](std::size_t i, std::size_t j, double x) {
                          if (i <= j) result(j, i) = x;
                      });
        return result;
    }

private:
    /// Columns that are solved at a time: their sums need not wait for each other.
    static constexpr std::size_t lanes = 8;

    /// As `solve` for each column of a square matrix.
    /// @param right gives its elements
    /// @param take  gets those of the solutions
    template <class Right, class Take>
    void solve_columns(Right right, Take take) const {
        std::vector<std::array<double, lanes>> x(size_);
        for (std::size_t first = 0; first < size_; first += lanes) {
            const std::size_t width = std::min(lanes, size_ - first);
            for (std::size_t i = 0; i < size_; ++i) {
                for (std::size_t c = 0; c < width; ++c) x[i][c] = right(i, first + c);
            }
            solve_lanes(x);
            for (std::size_t i = 0; i < size_; ++i) {
                for (std::size_t c = 0; c < width; ++c) take(i, first + c, x[i][c]);
            }
        }
    }
    void solve_lanes(std::vector<std::array<double, lanes>>& x) const {
        for (std::size_t i = 0; i < size_; ++i) {
            std::array<double, lanes> sums{};
            for (std::size_t k = 0; k < i; ++k) {
                const double own = at(i, k);
                for (std::size_t c = 0; c < lanes; ++c) sums[c] += own * x[k][c];
            }
            for (std::size_t c = 0; c < lanes; ++c) x[i][c] = (x[i][c] - sums[c]) / at(i, i);
        }
        for (std::size_t i = size_; i-- > 0;) {
            for (double& each : x[i]) each /= at(i, i);
            for (std::size_t k = 0; k < i; ++k) {
                const double own = at(i, k);
                for (std::size_t c = 0; c < lanes; ++c) x[k][c] -= own * x[i][c];
            }
        }
    }

    double& at(std::size_t i, std::size_t j) { return factor_[i * size_ + j]; }
    [[nodiscard]] const double& at(std::size_t i, std::size_t j) const {
        return factor_[i * size_ + j];
    }

    std::size_t size_;
    std::vector<double> factor_;
};

}  // namespace kdvfs::inline v0_3::measure
