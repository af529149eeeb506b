// SPDX-License-Identifier: MIT
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>

namespace gpt3_fit {

/// Cauchy's loss: an outlier beyond a few weights pulls less and less.
struct CauchyLoss {
    static constexpr double scale = 2.5;
    static double of(double r) { return scale * scale * std::log1p(r * r / (scale * scale)); }
    static double root_weight(double r) { return 1 / std::sqrt(1 + r * r / (scale * scale)); }
};

inline double cost_of(const Eigen::VectorXd& residuals) {
    return residuals.unaryExpr(&CauchyLoss::of).sum();
}

/// The reweighted normal equations at one point.
struct NormalEquations {
    NormalEquations(const Eigen::MatrixXd& jacobian, const Eigen::VectorXd& residuals) {
        const Eigen::VectorXd w = residuals.unaryExpr(&CauchyLoss::root_weight);
        const Eigen::MatrixXd weighted = w.asDiagonal() * jacobian;
        matrix = weighted.transpose() * weighted;
        gradient = weighted.transpose() * w.cwiseProduct(residuals);
    }

    [[nodiscard]] Eigen::VectorXd damped_step(double damping) const {
        Eigen::MatrixXd damped = matrix;
        damped.diagonal() *= 1 + damping;
        damped.diagonal().array() += 1e-12;
        return damped.ldlt().solve(-gradient);
    }

    Eigen::MatrixXd matrix;
    Eigen::VectorXd gradient;
};

struct StopAt {
    int steps;
    double relative_gain;  ///< of the cost, in one step
};

/// Levenberg-Marquardt: moves `x` downhill and returns the cost there. `residuals(x)` gives a
/// vector, `jacobian(x, residuals)` its derivatives by columns.
template <class Residuals, class Jacobian>
double minimise(Eigen::VectorXd& x, const Residuals& residuals, const Jacobian& jacobian,
                StopAt stop) {
    constexpr double hopeless = 1e8;
    double damping = 1e-3;
    Eigen::VectorXd r = residuals(x);
    double cost = cost_of(r);
    for (int step = 0; step < stop.steps && damping < hopeless; ++step) {
        const NormalEquations normal{jacobian(x, r), r};
        for (; damping < hopeless; damping *= 4) {
            const Eigen::VectorXd trial = x + normal.damped_step(damping);
            const Eigen::VectorXd trial_r = residuals(trial);
            const double trial_cost = cost_of(trial_r);
            if (!(trial_cost < cost)) continue;
            const bool slow = cost - trial_cost < stop.relative_gain * cost;
            x = trial;
            r = trial_r;
            cost = trial_cost;
            damping = std::max(damping / 10, 1e-9);
            if (slow) return cost;
            break;
        }
    }
    return cost;
}

}  // namespace gpt3_fit
