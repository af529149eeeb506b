// SPDX-License-Identifier: MIT
#pragma once

#include <bench/fit_gpt3_xl/model_parameters.hpp>
#include <examples/gpt3_iteration/published_passes.hpp>
#include <examples/gpt3_xl/clock_points.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <examples/gpt3_xl/published_table.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

/// What the fit is held against, in units of each target's weight.
namespace gpt3_fit {

inline constexpr auto points = gpt3::paper_clock_points();
inline constexpr std::size_t baseline = points.size() - 1;

/// A kernel at all clock points.
struct Sweep {
    std::array<double, points.size()> seconds;
    std::array<double, points.size()> joules;
};

inline Sweep sweep(const Board& board, const KernelModel& kernel) {
    Sweep result{};
    for (std::size_t i = 0; i < points.size(); ++i) {
        const auto run = kdvfs::simulated::operate(board, kernel, points[i]);
        result.seconds[i] = run.time.count();
        result.joules[i] = (run.power * run.time).count;
    }
    return result;
}

inline std::size_t index_of(kdvfs::ClockPoint point) {
    return static_cast<std::size_t>(std::find(points.begin(), points.end(), point) -
                                    points.begin());
}

inline constexpr int targets_per_kernel = 9;
inline constexpr std::array<const char*, targets_per_kernel> target_names{
    "time under auto",
    "energy under auto",
    "time at the best point",
    "energy at the best point",
    "least time",
    "most time",
    "least energy",
    "most energy",
    "choice of the best point"};

/// What of them is told by the published best point: its time, its energy, and that it was chosen.
inline constexpr std::array<int, 3> best_point_targets{2, 3, 8};

/// Percent that count as one: how well each number was published, and how far it matters to a
/// plan. The extremes of slow clocks are read off a drawing and far from where anybody would run.
inline constexpr std::array<double, targets_per_kernel> target_weights{0.3, 1.0, 0.3, 0.7, 0.4,
                                                                       3.0, 1.2, 3.0, 0.5};

/// Errors of one kernel in percent, in the order of `target_names`; the last is by how much the
/// published best point fails to minimise energy + price * time.
inline Eigen::VectorXd kernel_errors(const Sweep& model, const gpt3::PublishedKernel& published,
                                     double price) {
    const double t_auto = model.seconds[baseline];
    const double e_auto = model.joules[baseline];
    const std::size_t best = index_of(published.best);
    const double t_best = published.time_auto_ms * (1 + published.best_time_pct / 100);
    const double e_best = published.energy_auto_j * (1 + published.best_energy_pct / 100);
    const auto [t_min, t_max] = std::minmax_element(model.seconds.begin(), model.seconds.end());
    const auto [e_min, e_max] = std::minmax_element(model.joules.begin(), model.joules.end());
    double cheapest = model.joules[best] + price * model.seconds[best];
    const double chosen = cheapest;
    for (std::size_t i = 0; i < points.size(); ++i) {
        cheapest = std::min(cheapest, model.joules[i] + price * model.seconds[i]);
    }
    const auto percent = [](double got, double wanted) { return 100 * std::log(got / wanted); };
    Eigen::VectorXd r(targets_per_kernel);
    r << percent(1e3 * t_auto, published.time_auto_ms), percent(e_auto, published.energy_auto_j),
        percent(model.seconds[best] / t_auto, t_best / published.time_auto_ms),
        percent(model.joules[best] / e_auto, e_best / published.energy_auto_j),
        percent(1e3 * *t_min, published.time_min_ms), percent(1e3 * *t_max, published.time_max_ms),
        percent(*e_min, published.energy_min_j), percent(*e_max, published.energy_max_j),
        percent(chosen, cheapest);
    return r;
}

/// The same over their weights.
inline Eigen::VectorXd kernel_residuals(const Sweep& model, const gpt3::PublishedKernel& published,
                                        double price) {
    Eigen::VectorXd r = kernel_errors(model, published, price);
    for (int i = 0; i < targets_per_kernel; ++i)
        r[i] /= target_weights[static_cast<std::size_t>(i)];
    return r;
}

/// Sums over the iteration's launches at every point, forward and backward apart.
struct Sums {
    explicit Sums(const std::array<Sweep, gpt3::kernel_count>& sweeps) {
        for (std::size_t k = 0; k < sweeps.size(); ++k) add(sweeps[k], k, 1);
    }

    /// Adds all launches of entry `k`; `sign` -1 takes them away.
    void add(const Sweep& sweep, std::size_t k, int sign) {
        const gpt3::PublishedKernel& published = gpt3::published_table[k];
        const double launches = sign * published.repeats;
        Sweep& pass = gpt3::pass_of(k) == "forward" ? forward : backward;
        for (std::size_t i = 0; i < points.size(); ++i) {
            pass.seconds[i] += launches * sweep.seconds[i];
            pass.joules[i] += launches * sweep.joules[i];
        }
        const std::size_t best = index_of(published.best);
        best_seconds += launches * sweep.seconds[best];
        best_joules += launches * sweep.joules[best];
    }

    [[nodiscard]] double auto_seconds() const {
        return forward.seconds[baseline] + backward.seconds[baseline];
    }
    [[nodiscard]] double auto_joules() const {
        return forward.joules[baseline] + backward.joules[baseline];
    }

    Sweep forward{};
    Sweep backward{};
    double best_seconds = 0;  ///< every kernel at its published best point
    double best_joules = 0;
};

/// Relative error of the passes in percent: forward time and energy, then backward, each at all
/// points in their order.
inline Eigen::VectorXd pass_errors(const Sums& sums) {
    constexpr auto n = static_cast<int>(points.size());
    Eigen::VectorXd errors(4 * n);
    const auto error = [](const std::array<double, points.size()>& got, std::size_t i,
                          double wanted_pct) {
        return 100 * std::log(got[i] / got[baseline] / (1 + wanted_pct / 100));
    };
    for (int row = 0; row < n; ++row) {
        const auto i = static_cast<std::size_t>(row);
        const gpt3::PublishedPass& pass = gpt3::published_passes[i];
        errors[row] = error(sums.forward.seconds, i, pass.forward_time_pct);
        errors[n + row] = error(sums.forward.joules, i, pass.forward_energy_pct);
        errors[2 * n + row] = error(sums.backward.seconds, i, pass.backward_time_pct);
        errors[3 * n + row] = error(sums.backward.joules, i, pass.backward_energy_pct);
    }
    return errors;
}

inline constexpr int sum_targets = 4 + 4 * static_cast<int>(points.size());

/// The published totals of the iteration and of its best points over their weights, and the passes
/// times theirs (0: left out, see `published_passes` for why).
inline Eigen::VectorXd sum_residuals(const Sums& sums, double pass_weight) {
    const auto percent = [](double got, double wanted) { return 100 * std::log(got / wanted); };
    Eigen::VectorXd r(sum_targets);
    r.head(4) << percent(sums.auto_seconds(), 5.356) / 0.02,
        percent(sums.auto_joules(), 1815) / 0.02,
        percent(sums.best_seconds / sums.auto_seconds(), 1) / 0.05,
        percent(sums.best_joules / sums.auto_joules(), 1 - 0.1564) / 0.15;
    r.tail(sum_targets - 4) = pass_weight * pass_errors(sums);
    return r;
}

}  // namespace gpt3_fit
