// SPDX-License-Identifier: MIT
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>

namespace kdvfs::inline v0_3::solve {

/// Normal quantities of mean zero of which some have been observed with noise: what Gaussian
/// processes, shrunk curves and totals of blocks are conditioned by (Rasmussen and Williams,
/// Gaussian Processes for Machine Learning, 2006, algorithm 2.1). `common` is the covariance of the
/// observed quantities (rows) with those sought (columns).
class GaussianCondition {
public:
    GaussianCondition() = default;
    /// @param covariance of the observed quantities
    /// @param noise variance of each observation's
    GaussianCondition(Eigen::MatrixXd covariance, const Eigen::VectorXd& noise) {
        covariance.diagonal() += noise;
        factor_.compute(covariance);
    }

    /// Whether the covariance is positive definite, but for rounding.
    [[nodiscard]] bool is_proper() const { return factor_.info() == Eigen::Success; }

    /// The mean of the quantities sought is `common` transposed times these.
    [[nodiscard]] Eigen::VectorXd weights(const Eigen::VectorXd& observed) const {
        return factor_.solve(observed);
    }
    /// By how much each quantity sought follows each observed one: of the mean, a row each.
    [[nodiscard]] Eigen::MatrixXd gain(const Eigen::MatrixXd& common) const {
        return factor_.solve(common).transpose();
    }
    /// The product of two of its columns is by how much the quantities' covariance is less than it
    /// was.
    [[nodiscard]] Eigen::MatrixXd explained(const Eigen::MatrixXd& common) const {
        return factor_.matrixL().solve(common);
    }
    /// Of each column of observations, but for a constant.
    [[nodiscard]] Eigen::VectorXd log_likelihoods(Eigen::MatrixXd observed) const {
        factor_.matrixL().solveInPlace(observed);
        return -0.5 * observed.colwise().squaredNorm().transpose().array() -
               factor_.matrixLLT().diagonal().array().log().sum();
    }

private:
    Eigen::LLT<Eigen::MatrixXd> factor_;
};

}  // namespace kdvfs::inline v0_3::solve
