// SPDX-License-Identifier: MIT
#pragma once

#include <bench/fit_gpt3_xl/model_parameters.hpp>
#include <examples/gpt3_iteration/clock_points.hpp>
#include <examples/gpt3_iteration/published_passes.hpp>
#include <examples/gpt3_iteration/published_table.hpp>
#include <kdvfs/device/simulated/operating_point.hpp>

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

/// Relative errors of one kernel over their weights: auto, best point, extremes, and that the
/// best point minimises energy + price * time.
inline Eigen::VectorXd kernel_residuals(const Sweep& model, const gpt3::PublishedKernel& published,
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
    r << percent(1e3 * t_auto, published.time_auto_ms) / 0.3,
        percent(e_auto, published.energy_auto_j) / 1.0,
        percent(model.seconds[best] / t_auto, t_best / published.time_auto_ms) / 0.3,
        percent(model.joules[best] / e_auto, e_best / published.energy_auto_j) / 0.7,
        percent(1e3 * *t_min, published.time_min_ms) / 0.4,
        percent(1e3 * *t_max, published.time_max_ms) / 3,
        percent(*e_min, published.energy_min_j) / 1.2, percent(*e_max, published.energy_max_j) / 3,
        percent(chosen, cheapest) / 0.5;
    return r;
}

/// Sums over the iteration's launches at every point, forward and backward apart.
struct Sums {
    Eigen::VectorXd values = Eigen::VectorXd::Zero(4 * static_cast<int>(points.size()) + 2);

    void add(const Sweep& model, const gpt3::PublishedKernel& published, bool forward) {
        const auto n = static_cast<int>(points.size());
        const int offset = forward ? 0 : 2 * n;
        for (int i = 0; i < n; ++i) {
            values[offset + i] += published.repeats * model.seconds[static_cast<std::size_t>(i)];
            values[offset + n + i] += published.repeats * model.joules[static_cast<std::size_t>(i)];
        }
        const std::size_t best = index_of(published.best);
        values[4 * n] += published.repeats * model.seconds[best];
        values[4 * n + 1] += published.repeats * model.joules[best];
    }
};

/// The published totals of the iteration, of its best points, and (loosely, see
/// `published_passes`) the passes, over their weights.
inline Eigen::VectorXd sum_residuals(const Sums& sums, double pass_weight) {
    const auto n = static_cast<int>(points.size());
    const int last = n - 1;
    const auto& v = sums.values;
    const double seconds = v[last] + v[2 * n + last];
    const double joules = v[n + last] + v[3 * n + last];
    const auto percent = [](double got, double wanted) { return 100 * std::log(got / wanted); };
    Eigen::VectorXd r(4 + 4 * n);
    r.head(4) << percent(seconds, 5.356) / 0.02, percent(joules, 1815) / 0.02,
        percent(v[4 * n] / seconds, 1) / 0.05, percent(v[4 * n + 1] / joules, 1 - 0.1564) / 0.15;
    for (int i = 0; i < n; ++i) {
        const gpt3::PublishedPass& pass = gpt3::published_passes[static_cast<std::size_t>(i)];
        const double wanted[4] = {pass.forward_time_pct, pass.forward_energy_pct,
                                  pass.backward_time_pct, pass.backward_energy_pct};
        for (int part = 0; part < 4; ++part) {
            const double got = v[part * n + i] / v[part * n + last];
            r[4 + part * n + i] = pass_weight * percent(got, 1 + wanted[part] / 100);
        }
    }
    return r;
}

}  // namespace gpt3_fit
