// SPDX-License-Identifier: MIT
#pragma once

#include <Eigen/Dense>
#include <gsl/assert>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace kdvfs::measure {

/// The x >= 0 that minimises x'Hx / 2 - q'x for a positive definite H: the active-set method of
/// Lawson and Hanson ("Solving Least Squares Problems", 1974, ch. 23) on the normal equations (Bro
/// and de Jong, J. Chemometrics 11, 1997), started from the unconstrained minimum, which for
/// powers is nearly always the answer.
inline Eigen::VectorXd non_negative_minimum(const Eigen::MatrixXd& h, const Eigen::VectorXd& q) {
    Expects(h.rows() == h.cols() && h.rows() == q.size());
    using Eigen::Index;
    const Index n = q.size();
    std::vector<Index> free(static_cast<std::size_t>(n));
    for (Index i = 0; i < n; ++i) free[static_cast<std::size_t>(i)] = i;
    Eigen::VectorXd x = Eigen::VectorXd::Zero(n);
    const auto solve_free = [&] {
        Eigen::VectorXd full = Eigen::VectorXd::Zero(n);
        const Eigen::VectorXd solution = h(free, free).llt().solve(q(free));
        for (std::size_t k = 0; k < free.size(); ++k) {
            full[free[k]] = solution[static_cast<Index>(k)];
        }
        return full;
    };
    bool feasible_start = false;
    for (Index round = 0; round < 3 * n + 3; ++round) {
        Eigen::VectorXd target = solve_free();
        while (target.minCoeff() < 0) {
            if (feasible_start) {
                // Go from x towards the target as far as all stay positive.
                double step = 1;
                for (const Index i : free) {
                    if (target[i] < 0) step = std::min(step, x[i] / (x[i] - target[i]));
                }
                x += step * (target - x);
                std::erase_if(free, [&](Index i) { return target[i] < 0 && x[i] <= 1e-12; });
            } else {
                std::erase_if(free, [&](Index i) { return target[i] < 0; });
            }
            target = solve_free();
        }
        x = target;
        feasible_start = true;
        // Free the bound that would gain most, until none gains beyond rounding.
        Eigen::VectorXd gain = q - h * x;
        for (const Index i : free) gain[i] = 0;
        Index best = 0;
        if (gain.size() == 0 || gain.maxCoeff(&best) <= 1e-10 * q.cwiseAbs().maxCoeff()) break;
        free.push_back(best);
    }
    return x;
}

}  // namespace kdvfs::measure
