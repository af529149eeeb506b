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
#include <functional>
#include <random>
#include <utility>
#include <vector>

namespace gpt3_fit {

inline constexpr int kernel_count = static_cast<int>(gpt3::kernel_count);

/// What a fit may not use: unknowns that stand still, and kernels whose published best points
/// (time, energy and choice) it does not see. Where any are held out, nor are the sums over best
/// points.
struct FitLimits {
    struct Fixed {
        int unknown;  ///< index into `kernel_unknowns` or `board_unknowns`
        double at;    ///< in the fitted number
    };
    std::vector<Fixed> of_kernels{};
    std::vector<Fixed> of_board{};
    std::function<bool(int kernel)> held_out = [](int) { return false; };
};

/// The joint fit of all kernels and the board. One vector of unknowns: six per kernel, then the
/// board's. Rows: nine targets per kernel, the sums, a prior per unknown.
class JointFit {
public:
    JointFit(kdvfs::Megahertz core_max, double pass_weight, std::uint32_t seed,
             FitLimits limits = {})
        : unfitted_{unfitted_board(core_max)},
          pass_weight_{pass_weight},
          limits_{std::move(limits)},
          random_{seed} {
        x_.resize(board_begin() + board_size());
        for (int i = 0; i < x_.size(); ++i) x_[i] = unknown(i).start;
        std::vector<bool> fixed(static_cast<std::size_t>(x_.size()));
        const auto fix = [&](int i, double at) {
            x_[i] = at;
            fixed[static_cast<std::size_t>(i)] = true;
        };
        for (const FitLimits::Fixed& one : limits_.of_kernels)
            for (int k = 0; k < kernel_count; ++k) fix(kernel_size * k + one.unknown, one.at);
        for (const FitLimits::Fixed& one : limits_.of_board)
            fix(board_begin() + one.unknown, one.at);
        for (int i = 0; i < x_.size(); ++i)
            if (!fixed[static_cast<std::size_t>(i)]) free_.push_back(i);
        for (int j = 0; j < kernel_size; ++j)
            if (!fixed[static_cast<std::size_t>(j)]) free_of_kernel_.push_back(j);
    }

    [[nodiscard]] static int board_size() { return static_cast<int>(board_unknowns().size()); }
    [[nodiscard]] int parameters() const { return static_cast<int>(free_.size()); }

    /// How many of the parameters the data determine; the rest are where their priors are. The
    /// trace of the data's part of the normal matrix over all of it.
    [[nodiscard]] double determined_parameters() const {
        const Eigen::VectorXd r = residuals(x_);
        const Eigen::MatrixXd J = jacobian(x_, r)(Eigen::all, free_);
        const Eigen::MatrixXd whole = normal_matrix(J, r);
        const Eigen::MatrixXd data = normal_matrix(J.topRows(prior_begin()), r.head(prior_begin()));
        return whole.ldlt().solve(data).trace();
    }

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
                Eigen::VectorXd trial = own(x_, k);
                for (const int j : free_of_kernel_)
                    trial[j] = unknown(j).start + unknown(j).spread * (2 * uniform() - 1);
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
    double improve(int evaluations) {
        const auto whole = [this](const Eigen::VectorXd& free) {
            Eigen::VectorXd x = x_;
            x(free_) = free;
            return x;
        };
        Eigen::VectorXd free = x_(free_);
        const double cost = minimise(
            free, [&](const auto& x) { return residuals(whole(x)); },
            [&](const auto& x, const auto& r) -> Eigen::MatrixXd {
                return jacobian(whole(x), r)(Eigen::all, free_);
            },
            {evaluations, 1e-7});
        x_(free_) = free;
        return cost;
    }

    /// Standard deviations of the board's unknowns, the kernels' being free: where one is near its
    /// prior's spread, the table does not determine it.
    [[nodiscard]] Eigen::VectorXd board_uncertainty() const {
        const Eigen::VectorXd r = residuals(x_);
        const Eigen::MatrixXd normal = normal_matrix(jacobian(x_, r), r);
        const Eigen::MatrixXd board_columns =
            Eigen::MatrixXd::Identity(x_.size(), x_.size()).rightCols(board_size());
        const Eigen::MatrixXd covariance = normal.ldlt().solve(board_columns);
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
                seen_residuals(all[static_cast<std::size_t>(k)], k, price);
        }
        r.segment(sums_begin(), sum_targets) = seen_sums(Sums{all});
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
                (seen_residuals(changed, k, price) - r.segment(row, targets_per_kernel)) /
                difference;
            Sums changed_sums = sums;
            changed_sums.add(changed, static_cast<std::size_t>(k), 1);
            changed_sums.add(all[static_cast<std::size_t>(k)], static_cast<std::size_t>(k), -1);
            J.block(sums_begin(), i, sum_targets, 1) =
                (seen_sums(changed_sums) - r.segment(sums_begin(), sum_targets)) / difference;
        }
    }

    /// Fits the six numbers of one kernel; returns that kernel's cost.
    [[nodiscard]] double fit_kernel(const Board& board, double price, int k,
                                    Eigen::VectorXd& x) const {
        const auto rows = [&](const Eigen::VectorXd& free) {
            Eigen::VectorXd trial = x;
            trial(free_of_kernel_) = free;
            Eigen::VectorXd r(targets_per_kernel + kernel_size);
            r.head(targets_per_kernel) =
                seen_residuals(sweep(board, kernel_from(trial, published(k))), k, price);
            for (int j = 0; j < kernel_size; ++j) r[targets_per_kernel + j] = prior(j, trial[j]);
            return r;
        };
        const auto derivatives = [&](const Eigen::VectorXd& at, const Eigen::VectorXd& r) {
            Eigen::MatrixXd J(r.size(), at.size());
            for (Eigen::Index j = 0; j < at.size(); ++j) {
                Eigen::VectorXd moved = at;
                moved[j] += difference;
                J.col(j) = (rows(moved) - r) / difference;
            }
            return J;
        };
        Eigen::VectorXd free = x(free_of_kernel_);
        const double cost = minimise(free, rows, derivatives, {60, 1e-5});
        x(free_of_kernel_) = free;
        return cost;
    }

    /// Without what is held out.
    [[nodiscard]] Eigen::VectorXd seen_residuals(const Sweep& model, int k, double price) const {
        Eigen::VectorXd r = kernel_residuals(model, published(k), price);
        if (limits_.held_out(k))
            for (const int target : best_point_targets) r[target] = 0;
        return r;
    }
    [[nodiscard]] Eigen::VectorXd seen_sums(const Sums& sums) const {
        Eigen::VectorXd r = sum_residuals(sums, pass_weight_);
        bool whole = true;
        for (int k = 0; k < kernel_count; ++k) whole = whole && !limits_.held_out(k);
        if (!whole) r.segment(2, 2).setZero();
        return r;
    }

    Board unfitted_;
    double pass_weight_;
    FitLimits limits_;
    std::mt19937 random_;
    Eigen::VectorXd x_;
    std::vector<int> free_;
    std::vector<int> free_of_kernel_;
};

}  // namespace gpt3_fit
