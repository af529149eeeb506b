// SPDX-License-Identifier: MIT
#pragma once

#include <bench/fit_gpt3_xl/model_parameters.hpp>
#include <bench/fit_gpt3_xl/targets.hpp>
#include <examples/gpt3_iteration/published_table.hpp>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace gpt3_fit {

inline constexpr int kernel_count = static_cast<int>(gpt3::published_table.size());
inline constexpr int forward_kernels = 16;  // entries 0 to 15 weigh as forward

/// Cauchy's loss: an outlier beyond a few weights pulls less and less. `loss` is the cost,
/// `root_weight` multiplies residual and Jacobian row.
struct Robust {
    static constexpr double scale = 2.5;
    static double loss(double r) { return scale * scale * std::log1p(r * r / (scale * scale)); }
    static double root_weight(double r) { return 1 / std::sqrt(1 + r * r / (scale * scale)); }
};

/// The joint fit: one vector of unknowns, six per kernel, then the board's.
class JointFit {
public:
    JointFit(kdvfs::Megahertz core_max, double pass_weight, std::uint32_t seed)
        : unfitted_{unfitted_board(core_max)}, pass_weight_{pass_weight}, random_{seed} {
        x_.resize(kernel_size * kernel_count + board_size());
        for (int k = 0; k < kernel_count; ++k) {
            for (int j = 0; j < kernel_size; ++j) {
                x_[kernel_size * k + j] = kernel_unknowns[static_cast<std::size_t>(j)].start;
            }
        }
        for (int j = 0; j < board_size(); ++j) {
            x_[board_begin() + j] = board_unknowns()[static_cast<std::size_t>(j)].start;
        }
    }

    [[nodiscard]] static int board_size() { return static_cast<int>(board_unknowns().size()); }
    [[nodiscard]] static int board_begin() { return kernel_size * kernel_count; }
    [[nodiscard]] int parameters() const { return static_cast<int>(x_.size()); }

    [[nodiscard]] Board board() const { return board_of(x_); }
    [[nodiscard]] KernelModel kernel(int k) const {
        return kernel_from(x_.segment(kernel_size * k, kernel_size), published(k));
    }
    [[nodiscard]] double cost() const { return cost_of(residuals(x_)); }
    [[nodiscard]] const Eigen::VectorXd& unknowns() const { return x_; }

    /// Starts each kernel anew from random places, the board held, and keeps what is better.
    void restart_kernels(int starts) {
        for (int k = 0; k < kernel_count; ++k) {
            double best = fit_one_kernel(k, x_);
            for (int start = 0; start < starts; ++start) {
                Eigen::VectorXd trial = x_;
                for (int j = 0; j < kernel_size; ++j) {
                    const Unknown& unknown = kernel_unknowns[static_cast<std::size_t>(j)];
                    trial[kernel_size * k + j] =
                        unknown.start + unknown.spread * (2 * uniform() - 1);
                }
                const double cost = fit_one_kernel(k, trial);
                if (cost < best) {
                    best = cost;
                    x_ = trial;
                }
            }
        }
    }

    /// Levenberg-Marquardt over all unknowns; returns the cost.
    double improve(int steps) {
        double damping = 1e-3;
        Eigen::VectorXd r = residuals(x_);
        double cost = cost_of(r);
        for (int step = 0; step < steps && damping < 1e8; ++step) {
            const Eigen::MatrixXd J = jacobian(x_, r);
            const auto [normal, gradient] = weighted_normal(J, r);
            for (; damping < 1e8; damping *= 4) {
                const Eigen::VectorXd trial = x_ - solve(normal, gradient, damping);
                const Eigen::VectorXd trial_r = residuals(trial);
                const double trial_cost = cost_of(trial_r);
                if (!(trial_cost < cost)) continue;
                const bool converged = cost - trial_cost < 1e-7 * cost;
                x_ = trial;
                r = trial_r;
                cost = trial_cost;
                damping = std::max(damping / 10, 1e-9);
                if (converged) return cost;
                break;
            }
        }
        return cost;
    }

    /// Standard deviations of the board's unknowns, the kernels' being free: where one is near its
    /// prior's spread, the table does not determine it.
    [[nodiscard]] Eigen::VectorXd board_uncertainty() const {
        const Eigen::VectorXd r = residuals(x_);
        const Normal normal = weighted_normal(jacobian(x_, r), r);
        const Eigen::MatrixXd board_columns =
            Eigen::MatrixXd::Identity(x_.size(), x_.size()).rightCols(board_size());
        const Eigen::MatrixXd covariance = normal.matrix.ldlt().solve(board_columns);
        return covariance.bottomRows(board_size()).diagonal().cwiseSqrt();
    }

private:
    struct Normal {
        Eigen::MatrixXd matrix;
        Eigen::VectorXd gradient;
    };

    static const gpt3::PublishedKernel& published(int k) {
        return gpt3::published_table[static_cast<std::size_t>(k)];
    }

    [[nodiscard]] Board board_of(const Eigen::VectorXd& x) const {
        Board board = unfitted_;
        fill_board(board, x.tail(board_size()));
        return board;
    }

    double uniform() { return static_cast<double>(random_()) / 4294967296.0; }

    static double cost_of(const Eigen::VectorXd& r) {
        double sum = 0;
        for (const double value : r) sum += Robust::loss(value);
        return sum;
    }

    static Eigen::VectorXd prior(const Eigen::VectorXd& x) {
        Eigen::VectorXd r(x.size());
        for (int i = 0; i < x.size(); ++i) {
            const Unknown& unknown =
                i < board_begin() ? kernel_unknowns[static_cast<std::size_t>(i % kernel_size)]
                                  : board_unknowns()[static_cast<std::size_t>(i - board_begin())];
            r[i] = (x[i] - unknown.start) / unknown.spread;
        }
        return r;
    }

    static int sum_rows() { return 4 + 4 * static_cast<int>(points.size()); }
    static int sum_begin() { return targets_per_kernel * kernel_count; }
    static int prior_begin() { return sum_begin() + sum_rows(); }

    [[nodiscard]] Eigen::VectorXd residuals(const Eigen::VectorXd& x) const {
        const Board board = board_of(x);
        const double price = price_of_time(x.tail(board_size()));
        Eigen::VectorXd r(prior_begin() + x.size());
        Sums sums;
        for (int k = 0; k < kernel_count; ++k) {
            const Sweep model =
                sweep(board, kernel_from(x.segment(kernel_size * k, kernel_size), published(k)));
            sums.add(model, published(k), k < forward_kernels);
            r.segment(targets_per_kernel * k, targets_per_kernel) =
                kernel_residuals(model, published(k), price);
        }
        r.segment(sum_begin(), sum_rows()) = sum_residuals(sums, pass_weight_);
        r.tail(x.size()) = prior(x);
        return r;
    }

    /// Forward differences; a kernel's unknowns reach its own rows and the sums only.
    [[nodiscard]] Eigen::MatrixXd jacobian(const Eigen::VectorXd& x,
                                           const Eigen::VectorXd& r) const {
        constexpr double h = 1e-5;
        Eigen::MatrixXd J = Eigen::MatrixXd::Zero(r.size(), x.size());
        const Board board = board_of(x);
        const double price = price_of_time(x.tail(board_size()));
        Sums sums;
        std::vector<Sweep> sweeps;
        for (int k = 0; k < kernel_count; ++k) {
            sweeps.push_back(
                sweep(board, kernel_from(x.segment(kernel_size * k, kernel_size), published(k))));
            sums.add(sweeps.back(), published(k), k < forward_kernels);
        }
        for (int i = 0; i < board_begin(); ++i) {
            const int k = i / kernel_size;
            Eigen::VectorXd own = x.segment(kernel_size * k, kernel_size);
            own[i % kernel_size] += h;
            const Sweep moved = sweep(board, kernel_from(own, published(k)));
            const int row = targets_per_kernel * k;
            J.block(row, i, targets_per_kernel, 1) = (kernel_residuals(moved, published(k), price) -
                                                      r.segment(row, targets_per_kernel)) /
                                                     h;
            Sums before;
            Sums after;
            before.add(sweeps[static_cast<std::size_t>(k)], published(k), k < forward_kernels);
            after.add(moved, published(k), k < forward_kernels);
            after.values += sums.values - before.values;
            J.block(sum_begin(), i, sum_rows(), 1) =
                (sum_residuals(after, pass_weight_) - r.segment(sum_begin(), sum_rows())) / h;
        }
        for (int i = board_begin(); i < x.size(); ++i) {
            Eigen::VectorXd moved = x;
            moved[i] += h;
            J.col(i) = (residuals(moved) - r) / h;
        }
        for (int i = 0; i < x.size(); ++i) {
            J.block(prior_begin(), i, x.size(), 1).setZero();
            const Unknown& unknown =
                i < board_begin() ? kernel_unknowns[static_cast<std::size_t>(i % kernel_size)]
                                  : board_unknowns()[static_cast<std::size_t>(i - board_begin())];
            J(prior_begin() + i, i) = 1 / unknown.spread;
        }
        return J;
    }

    static Normal weighted_normal(const Eigen::MatrixXd& J, const Eigen::VectorXd& r) {
        const Eigen::VectorXd w = r.unaryExpr(&Robust::root_weight);
        const Eigen::MatrixXd weighted = w.asDiagonal() * J;
        const Eigen::VectorXd weighted_r = w.cwiseProduct(r);
        return {weighted.transpose() * weighted, weighted.transpose() * weighted_r};
    }

    static Eigen::VectorXd solve(const Eigen::MatrixXd& normal, const Eigen::VectorXd& gradient,
                                 double damping) {
        Eigen::MatrixXd damped = normal;
        damped.diagonal() += damping * normal.diagonal();
        damped.diagonal().array() += 1e-12;
        return damped.ldlt().solve(gradient);
    }

    [[nodiscard]] Eigen::VectorXd kernel_cost_rows(const Board& board, double price, int k,
                                                   const Eigen::VectorXd& own) const {
        Eigen::VectorXd r(targets_per_kernel + kernel_size);
        r.head(targets_per_kernel) =
            kernel_residuals(sweep(board, kernel_from(own, published(k))), published(k), price);
        for (int j = 0; j < kernel_size; ++j) {
            const Unknown& unknown = kernel_unknowns[static_cast<std::size_t>(j)];
            r[targets_per_kernel + j] = (own[j] - unknown.start) / unknown.spread;
        }
        return r;
    }

    /// Fits one kernel, the board held; writes into `x` and returns that kernel's cost.
    double fit_one_kernel(int k, Eigen::VectorXd& x) const {
        constexpr double h = 1e-5;
        const Board board = board_of(x);
        const double price = price_of_time(x.tail(board_size()));
        Eigen::VectorXd own = x.segment(kernel_size * k, kernel_size);
        Eigen::VectorXd r = kernel_cost_rows(board, price, k, own);
        double cost = cost_of(r);
        double damping = 1e-2;
        for (int step = 0; step < 40 && damping < 1e6; ++step) {
            Eigen::MatrixXd J(r.size(), kernel_size);
            for (int j = 0; j < kernel_size; ++j) {
                Eigen::VectorXd moved = own;
                moved[j] += h;
                J.col(j) = (kernel_cost_rows(board, price, k, moved) - r) / h;
            }
            const Normal system = weighted_normal(J, r);
            const double before = cost;
            for (; damping < 1e6; damping *= 5) {
                const Eigen::VectorXd trial = own - solve(system.matrix, system.gradient, damping);
                const Eigen::VectorXd trial_r = kernel_cost_rows(board, price, k, trial);
                const double trial_cost = cost_of(trial_r);
                if (!(trial_cost < cost)) continue;
                own = trial;
                r = trial_r;
                cost = trial_cost;
                damping = std::max(damping / 10, 1e-8);
                break;
            }
            if (before - cost < 1e-5 * before) break;
        }
        x.segment(kernel_size * k, kernel_size) = own;
        return cost;
    }

    Board unfitted_;
    double pass_weight_;
    std::mt19937 random_;
    Eigen::VectorXd x_;
};

}  // namespace gpt3_fit
