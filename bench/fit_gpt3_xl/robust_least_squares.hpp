// SPDX-License-Identifier: MIT
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <Eigen/QR>
#include <unsupported/Eigen/NonLinearOptimization>

#include <cmath>

namespace gpt3_fit {

/// Cauchy's loss: an outlier beyond a few weights pulls less and less.
struct CauchyLoss {
    static constexpr double scale = 2.5;

    /// The residual whose square is the loss.
    static double root(double r) {
        return std::copysign(scale * std::sqrt(std::log1p(r * r / (scale * scale))), r);
    }
    /// Its derivative by `r`.
    static double root_slope(double r) {
        const double q = r * r / (scale * scale);
        return q < 1e-12 ? 1 : std::sqrt(q / std::log1p(q)) / (1 + q);
    }
    /// By which squares are weighed where the loss is taken for one.
    static double root_weight(double r) { return 1 / std::sqrt(1 + r * r / (scale * scale)); }
};

inline double cost_of(const Eigen::VectorXd& residuals) {
    return residuals.unaryExpr(&CauchyLoss::root).squaredNorm();
}

/// The reweighted normal matrix at one point: what the data determine.
inline Eigen::MatrixXd normal_matrix(const Eigen::MatrixXd& jacobian,
                                     const Eigen::VectorXd& residuals) {
    const Eigen::VectorXd w = residuals.unaryExpr(&CauchyLoss::root_weight);
    const Eigen::MatrixXd weighted = w.asDiagonal() * jacobian;
    return weighted.transpose() * weighted;
}

/// A problem as Eigen's Levenberg-Marquardt (MINPACK's lmder) wants it. `residuals(x)` gives a
/// vector, `jacobian(x, residuals)` its derivatives by columns.
template <class Residuals, class Jacobian>
class RobustProblem {
public:
    RobustProblem(const Residuals& residuals, const Jacobian& jacobian, Eigen::Index values)
        : residuals_{residuals}, jacobian_{jacobian}, values_{static_cast<int>(values)} {}

    [[nodiscard]] int values() const { return values_; }
    int operator()(const Eigen::VectorXd& x, Eigen::VectorXd& loss) const {
        loss = residuals_(x).unaryExpr(&CauchyLoss::root);
        return 0;
    }
    int df(const Eigen::VectorXd& x, Eigen::MatrixXd& slopes) const {
        const Eigen::VectorXd r = residuals_(x);
        slopes = r.unaryExpr(&CauchyLoss::root_slope).asDiagonal() * jacobian_(x, r);
        return 0;
    }

private:
    const Residuals& residuals_;
    const Jacobian& jacobian_;
    int values_;
};

struct StopAt {
    int evaluations;
    double relative_gain;  ///< of the cost, in one step
};

/// Moves `x` downhill and returns the cost there.
template <class Residuals, class Jacobian>
double minimise(Eigen::VectorXd& x, const Residuals& residuals, const Jacobian& jacobian,
                StopAt stop) {
    RobustProblem<Residuals, Jacobian> problem{residuals, jacobian, residuals(x).size()};
    Eigen::LevenbergMarquardt<RobustProblem<Residuals, Jacobian>> search{problem};
    search.parameters.maxfev = stop.evaluations;
    search.parameters.ftol = stop.relative_gain;
    search.parameters.factor = 1;  // times as far as the start is from zero, in the first step
    search.minimize(x);
    return search.fvec.squaredNorm();
}

}  // namespace gpt3_fit
