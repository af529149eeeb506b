// SPDX-License-Identifier: MIT
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// A Gaussian process of mean zero, conditioned on noisy values at some places (Rasmussen and
/// Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1).
/// @tparam Covariance a function of two places
template <class Place, class Covariance>
class GaussianProcess {
public:
    /// Values at any number of places, none included, and the variance of each one's noise.
    GaussianProcess(std::vector<Place> places, const Eigen::VectorXd& values,
                    const Eigen::VectorXd& noise, Covariance covariance)
        : places_{std::move(places)}, covariance_{std::move(covariance)} {
        Eigen::MatrixXd matrix = between(places_, places_);
        matrix.diagonal() += noise;
        factor_.compute(matrix);
        weights_ = factor_.solve(values);
        log_likelihood_ =
            -0.5 * values.dot(weights_) - factor_.matrixLLT().diagonal().array().log().sum();
    }

    /// Of the values, but for a constant.
    [[nodiscard]] double log_likelihood() const { return log_likelihood_; }

    /// The mean of the function at other places.
    [[nodiscard]] Eigen::VectorXd mean(std::span<const Place> at) const {
        return between(at, places_) * weights_;
    }

    /// How the function's values at other places vary together.
    [[nodiscard]] Eigen::MatrixXd posterior(std::span<const Place> at) const {
        const Eigen::MatrixXd common = between(places_, at);
        return between(at, at) - common.transpose() * factor_.solve(common);
    }

private:
    [[nodiscard]] Eigen::MatrixXd between(std::span<const Place> rows,
                                          std::span<const Place> columns) const {
        Eigen::MatrixXd matrix(static_cast<Eigen::Index>(rows.size()),
                               static_cast<Eigen::Index>(columns.size()));
        for (std::size_t i = 0; i < rows.size(); ++i)
            for (std::size_t j = 0; j < columns.size(); ++j)
                matrix(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) =
                    covariance_(rows[i], columns[j]);
        return matrix;
    }

    std::vector<Place> places_;
    Covariance covariance_;
    Eigen::LLT<Eigen::MatrixXd> factor_;
    Eigen::VectorXd weights_;
    double log_likelihood_ = 0;
};

}  // namespace kdvfs::inline v0_3::train::detail
