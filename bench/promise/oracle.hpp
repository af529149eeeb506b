// SPDX-License-Identifier: MIT
#pragma once

#include <bench/promise/noisy_profile.hpp>
#include <examples/gpt3_xl/boards.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/tune/cost_table.hpp>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

namespace kdvfs::tune {

/// What nobody can do better than who sees the same samples: an oracle who knows the board, the law
/// by which times and energies follow from clocks, and the law and scale of the noise, and of each
/// kernel all but six numbers (`simulated::KernelModel`). Its estimates are off as much as the
/// Cramer-Rao bound says that any unbiased ones are at least, and it knows by how much.
class PromiseOracle {
public:
    PromiseOracle(std::string_view preset, double scale, std::uint32_t samples)
        : board_{*gpt3::find_case(preset)}, truth_{simulated_truth(preset)} {
        // Fisher's information of one sample of Student's t about its place, by scale^2 (Lange,
        // Little and Taylor 1989): (degrees + 1) / (degrees + 3).
        constexpr double degrees = 3;
        const double information = samples * (degrees + 1) / (degrees + 3) / (scale * scale);
        for (std::size_t k = 0; k < gpt3::kernel_count; ++k) {
            Observed& known = known_.emplace_back();
            const Logs at = logs(k, Unknowns::Zero());
            const Eigen::Index n = at.time.size();
            known.times.resize(n, unknowns);
            known.energies.resize(n, unknowns);
            constexpr double step = 1e-4;
            for (int j = 0; j < unknowns; ++j) {
                const Logs up = logs(k, step * Unknowns::Unit(j));
                const Logs down = logs(k, -step * Unknowns::Unit(j));
                known.times.col(j) = (up.time - down.time) / (2 * step);
                known.energies.col(j) = (up.energy - down.energy) / (2 * step);
            }
            // Where samples say nothing of a number, it is known to a factor of e beforehand.
            Eigen::MatrixXd precision = Eigen::MatrixXd::Identity(unknowns, unknowns);
            precision += information * (known.times.transpose() * known.times +
                                        known.energies.transpose() * known.energies);
            known.deviations = Eigen::MatrixXd{precision.llt().solve(
                                                   Eigen::MatrixXd::Identity(unknowns, unknowns))}
                                   .llt()
                                   .matrixL();
        }
    }

    /// What it takes kernels to cost, having seen one set of samples.
    [[nodiscard]] CostTable estimate(std::uint64_t seed) const {
        std::mt19937_64 random{seed};
        std::normal_distribution<double> normal;
        CostTable table = truth_;
        for (std::size_t k = 0; k < table.kernels.size(); ++k) {
            const Observed& known = known_[k];
            KernelCosts& kernel = table.kernels[k];
            Unknowns drawn;
            for (double& one : drawn) one = normal(random);
            const Unknowns off = known.deviations * drawn;
            const Eigen::MatrixXd errors = known.times * known.deviations;
            const auto base = static_cast<Eigen::Index>(row(kernel.points[kernel.baseline].clock));
            for (PointCost& point : kernel.points) {
                const auto i = static_cast<Eigen::Index>(row(point.clock));
                point.cost.time *= std::exp(known.times.row(i).dot(off));
                point.cost.energy.count *= std::exp(known.energies.row(i).dot(off));
                kernel.time_errors.push_back((errors.row(i) - errors.row(base)).norm());
            }
        }
        return table;
    }

private:
    static constexpr int unknowns = 6;
    using Unknowns = Eigen::Vector<double, unknowns>;
    struct Logs {
        Eigen::VectorXd time;
        Eigen::VectorXd energy;
    };
    /// By clock point: how the logs of a kernel's costs follow the logs of its unknowns.
    struct Observed {
        Eigen::MatrixXd times;
        Eigen::MatrixXd energies;
        Eigen::MatrixXd deviations;
    };

    [[nodiscard]] Logs logs(std::size_t k, const Unknowns& off) const {
        simulated::KernelModel kernel = board_.kernels[k];
        kernel.core_time *= std::exp(off(0));
        kernel.memory_time *= std::exp(off(1));
        kernel.fixed_time *= std::exp(off(2));
        kernel.overlap *= std::exp(off(3));
        kernel.core_energy.count *= std::exp(off(4));
        kernel.memory_energy.count *= std::exp(off(5));
        const auto n = static_cast<Eigen::Index>(board_.points.size());
        Logs found{Eigen::VectorXd(n), Eigen::VectorXd(n)};
        for (Eigen::Index i = 0; i < n; ++i) {
            const auto point = simulated::operate(board_.board, kernel,
                                                  board_.points[static_cast<std::size_t>(i)]);
            found.time(i) = std::log(point.time.count());
            found.energy(i) = std::log((point.power * point.time).count);
        }
        return found;
    }
    [[nodiscard]] std::size_t row(ClockPoint clock) const {
        std::size_t i = 0;
        while (board_.points[i] != clock) ++i;
        return i;
    }

    gpt3::Case board_;
    CostTable truth_;
    std::vector<Observed> known_;
};

}  // namespace kdvfs::tune
