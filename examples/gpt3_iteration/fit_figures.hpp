// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/clock_points.hpp>
#include <examples/gpt3_xl/published_table.hpp>
#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace gpt3 {

/// How far constants are from the published table: root mean squares over the kernels of the
/// relative errors, in percent. "best" compares the best point's effect, that is, best over auto.
struct FitErrors {
    double time_auto_pct = 0, time_best_pct = 0, time_min_pct = 0, time_max_pct = 0;
    double energy_auto_pct = 0, energy_best_pct = 0, energy_min_pct = 0, energy_max_pct = 0;

    /// Over all published times: auto, best, least, most.
    [[nodiscard]] double rms_time_pct() const {
        return std::sqrt((time_auto_pct * time_auto_pct + time_best_pct * time_best_pct +
                          time_min_pct * time_min_pct + time_max_pct * time_max_pct) /
                         4);
    }
    /// Over all published energies: auto, best, least, most.
    [[nodiscard]] double rms_energy_pct() const {
        return std::sqrt((energy_auto_pct * energy_auto_pct + energy_best_pct * energy_best_pct +
                          energy_min_pct * energy_min_pct + energy_max_pct * energy_max_pct) /
                         4);
    }
};

/// Published measurements that a fit is held against: per kernel time and energy at auto, at the
/// best point, and their extremes.
inline constexpr int fit_measurements = 8 * static_cast<int>(published_table.size());
/// With the choice of the best point, which is no measurement.
inline constexpr int fit_data_points = fit_measurements + static_cast<int>(published_table.size());

namespace fit_parts {

struct Extremes {
    double least;
    double most;

    void widen(double value) {
        least = std::min(least, value);
        most = std::max(most, value);
    }
};

inline void add_squared_errors(FitErrors& sum, const kdvfs::simulated::Board& board,
                               const kdvfs::simulated::KernelModel& kernel,
                               const PublishedKernel& published) {
    const auto joules = [](const kdvfs::simulated::OperatingPoint& run) {
        return (run.power * run.time).count;
    };
    const auto base = kdvfs::simulated::operate(board, kernel, kdvfs::ClockPoint{});
    const auto best = kdvfs::simulated::operate(board, kernel, published.best);
    Extremes ms{1e3 * base.time.count(), 1e3 * base.time.count()};
    Extremes energy{joules(base), joules(base)};
    for (const kdvfs::ClockPoint point : paper_clock_points()) {
        const auto run = kdvfs::simulated::operate(board, kernel, point);
        ms.widen(1e3 * run.time.count());
        energy.widen(joules(run));
    }
    const auto squared = [](double got, double wanted) {
        const double error = 100 * (got / wanted - 1);
        return error * error;
    };
    sum.time_auto_pct += squared(1e3 * base.time.count(), published.time_auto_ms);
    sum.time_best_pct += squared(best.time / base.time, 1 + published.best_time_pct / 100);
    sum.time_min_pct += squared(ms.least, published.time_min_ms);
    sum.time_max_pct += squared(ms.most, published.time_max_ms);
    sum.energy_auto_pct += squared(joules(base), published.energy_auto_j);
    sum.energy_best_pct +=
        squared(joules(best) / joules(base), 1 + published.best_energy_pct / 100);
    sum.energy_min_pct += squared(energy.least, published.energy_min_j);
    sum.energy_max_pct += squared(energy.most, published.energy_max_j);
}

}  // namespace fit_parts

/// The errors of a board and one model per entry of `published_table`.
inline FitErrors fit_errors(
    const kdvfs::simulated::Board& board,
    std::span<const kdvfs::simulated::KernelModel, published_table.size()> kernels) {
    FitErrors errors;
    for (std::size_t k = 0; k < kernels.size(); ++k) {
        fit_parts::add_squared_errors(errors, board, kernels[k], published_table[k]);
    }
    for (double* part : {&errors.time_auto_pct, &errors.time_best_pct, &errors.time_min_pct,
                         &errors.time_max_pct, &errors.energy_auto_pct, &errors.energy_best_pct,
                         &errors.energy_min_pct, &errors.energy_max_pct}) {
        *part = std::sqrt(*part / static_cast<double>(kernels.size()));
    }
    return errors;
}

}  // namespace gpt3
