// SPDX-License-Identifier: MIT
#pragma once

#include <bench/fit_gpt3_xl/model_parameters.hpp>
#include <bench/fit_gpt3_xl/robust_least_squares.hpp>
#include <bench/fit_gpt3_xl/targets.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <examples/gpt3_xl/published_table.hpp>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

namespace gpt3_fit {

inline constexpr int kernel_count = static_cast<int>(gpt3::kernel_count);

/// The joint fit of all kernels and the board. One vector of unknowns: six per kernel, then the
/// board's. Rows: nine targets per kernel, the sums, a prior per unknown.
class JointFit {
public:
    JointFit(kdvfs::Megahertz core_max, double pass_weight, std::uint32_t seed)
        : unfitted_{unfitted_board(core_max)}, pass_weight_{pass_weight}, random_{seed} {
        x_.resize(board_begin() + board_size());
        for (int i = 0; i < x_.size(); ++i) x_[i] = unknown(i).start;
    }

    [[nodiscard]] static int board_size() { return static_cast<int>(board_unknowns().size()); }
    [[nodiscard]] int parameters() const { return static_cast<int>(x_.size()); }

    [[nodiscard]] Board board() const { return board_of(x_); }
    [[nodiscard]] KernelModel kernel(int k) const { return kernel_from(own(x_, k), published(k)); }
    [[nodiscard]] double cost() const { return cost_of(residuals(x_)); }
    [[nodiscard]] Eigen::VectorXd fitted_board_numbers() const { return x_.tail(board_size()); }

    /// Starts each kernel anew from random places, the board held, and keeps what is better: single
    /// starts end in local minima.
    void restart_kernels(int starts) {
        const Board board = board_of(x_);
        const double price = price_of_time(x_.tail(board_size()));
        for (int k = 0; k < kernel_count; ++k) {
            Eigen::VectorXd best = own(x_, k);
            double best_cost = fit_kernel(board, price, k, best);
            for (int start = 0; start < starts; ++start) {
                Eigen::VectorXd trial(kernel_size);
                for (int j = 0; j < kernel_size; ++j) {
                    trial[j] = unknown(j).start + unknown(j).spread * (2 * uniform() - 1);
                }
                const double cost = fit_kernel(board, price, k, trial);
                if (cost < best_cost) {
                    best_cost = cost;
                    best = trial;
                }
            }
            x_.segment(kernel_size * k, kernel_size) = best;
        }
    }

    /// Improves all unknowns together; returns the cost.
    double improve(int steps) {
        return minimise(
            x_, [this](const auto& x) { return residuals(x); },
            [this](const auto& x, const auto& r) { return jacobian(x, r); }, {steps, 1e-7});
    }

    /// Standard deviations of the board's unknowns, the kernels' being free: where one is near its
    /// prior's spread, the table does not determine it.
    [[nodiscard]] Eigen::VectorXd board_uncertainty() const {
        const Eigen::VectorXd r = residuals(x_);
        const NormalEquations normal{jacobian(x_, r), r};
        const Eigen::MatrixXd board_columns =
            Eigen::MatrixXd::Identity(x_.size(), x_.size()).rightCols(board_size());
        const Eigen::MatrixXd covariance = normal.matrix.ldlt().solve(board_columns);
        return covariance.bottomRows(board_size()).diagonal().cwiseSqrt();
    }

private:
    static constexpr double difference = 1e-5;  // of an unknown, for derivatives

    static const gpt3::PublishedKernel& published(int k) {
        return gpt3::published_table[static_cast<std::size_t>(k)];
    }
    static int board_begin() { return kernel_size * kernel_count; }
    static int sums_begin() { return targets_per_kernel * kernel_count; }
    static int prior_begin() { return sums_begin() + sum_targets; }

    static const Unknown& unknown(int i) {
        return i < board_begin() ? kernel_unknowns[static_cast<std::size_t>(i % kernel_size)]
                                 : board_unknowns()[static_cast<std::size_t>(i - board_begin())];
    }
    static double prior(int i, double x) { return (x - unknown(i).start) / unknown(i).spread; }

    static Eigen::VectorXd own(const Eigen::VectorXd& x, int k) {
        return x.segment(kernel_size * k, kernel_size);
    }

    // By hand, because std::uniform_real_distribution differs between standard libraries.
    double uniform() { return static_cast<double>(random_()) / 4294967296.0; }

    [[nodiscard]] Board board_of(const Eigen::VectorXd& x) const {
        Board board = unfitted_;
        fill_board(board, x.tail(board_size()));
        return board;
    }

    [[nodiscard]] std::array<Sweep, gpt3::kernel_count> sweeps(const Eigen::VectorXd& x) const {
        const Board board = board_of(x);
        std::array<Sweep, gpt3::kernel_count> all;
        for (int k = 0; k < kernel_count; ++k) {
            all[static_cast<std::size_t>(k)] = sweep(board, kernel_from(own(x, k), published(k)));
        }
        return all;
    }

    [[nodiscard]] Eigen::VectorXd residuals(const Eigen::VectorXd& x) const {
        const double price = price_of_time(x.tail(board_size()));
        const auto all = sweeps(x);
        Eigen::VectorXd r(prior_begin() + x.size());
        for (int k = 0; k < kernel_count; ++k) {
            r.segment(targets_per_kernel * k, targets_per_kernel) =
                kernel_residuals(all[static_cast<std::size_t>(k)], published(k), price);
        }
        r.segment(sums_begin(), sum_targets) = sum_residuals(Sums{all}, pass_weight_);
        for (int i = 0; i < x.size(); ++i) r[prior_begin() + i] = prior(i, x[i]);
        return r;
    }

    [[nodiscard]] Eigen::MatrixXd jacobian(const Eigen::VectorXd& x,
                                           const Eigen::VectorXd& r) const {
        Eigen::MatrixXd J = Eigen::MatrixXd::Zero(r.size(), x.size());
        fill_kernel_columns(J, x, r);
        for (int i = board_begin(); i < x.size(); ++i) {
            Eigen::VectorXd moved = x;
            moved[i] += difference;
            J.col(i) = (residuals(moved) - r) / difference;
        }
        for (int i = 0; i < x.size(); ++i) J(prior_begin() + i, i) = 1 / unknown(i).spread;
        return J;
    }

    /// A kernel's unknowns reach its own rows and the sums only.
    void fill_kernel_columns(Eigen::MatrixXd& J, const Eigen::VectorXd& x,
                             const Eigen::VectorXd& r) const {
        const Board board = board_of(x);
        const double price = price_of_time(x.tail(board_size()));
        const auto all = sweeps(x);
        const Sums sums{all};
        for (int i = 0; i < board_begin(); ++i) {
            const int k = i / kernel_size;
            const int row = targets_per_kernel * k;
            Eigen::VectorXd moved = own(x, k);
            moved[i % kernel_size] += difference;
            const Sweep changed = sweep(board, kernel_from(moved, published(k)));
            J.block(row, i, targets_per_kernel, 1) =
                (kernel_residuals(changed, published(k), price) -
                 r.segment(row, targets_per_kernel)) /
                difference;
            Sums changed_sums = sums;
            changed_sums.add(changed, static_cast<std::size_t>(k), 1);
            changed_sums.add(all[static_cast<std::size_t>(k)], static_cast<std::size_t>(k), -1);
            J.block(sums_begin(), i, sum_targets, 1) =
                (sum_residuals(changed_sums, pass_weight_) - r.segment(sums_begin(), sum_targets)) /
                difference;
        }
    }

    /// Fits the six numbers of one kernel; returns that kernel's cost.
    static double fit_kernel(const Board& board, double price, int k, Eigen::VectorXd& x) {
        const auto rows = [&](const Eigen::VectorXd& trial) {
            Eigen::VectorXd r(targets_per_kernel + kernel_size);
            r.head(targets_per_kernel) = kernel_residuals(
                sweep(board, kernel_from(trial, published(k))), published(k), price);
            for (int j = 0; j < kernel_size; ++j) r[targets_per_kernel + j] = prior(j, trial[j]);
            return r;
        };
        const auto derivatives = [&](const Eigen::VectorXd& at, const Eigen::VectorXd& r) {
            Eigen::MatrixXd J(r.size(), kernel_size);
            for (int j = 0; j < kernel_size; ++j) {
                Eigen::VectorXd moved = at;
                moved[j] += difference;
                J.col(j) = (rows(moved) - r) / difference;
            }
            return J;
        };
        return minimise(x, rows, derivatives, {40, 1e-5});
    }

    Board unfitted_;
    double pass_weight_;
    std::mt19937 random_;
    Eigen::VectorXd x_;
};

}  // namespace gpt3_fit
