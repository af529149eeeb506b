// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_iteration/published_passes.hpp>
#include <examples/gpt3_xl/boards.hpp>
#include <examples/gpt3_xl/carried_kernels.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <examples/gpt3_xl/published_table.hpp>
#include <kdvfs/tune/planner.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

/// What the simulated board says of the paper's other figures: passes by clock, slowdowns up to
/// 80 %, smaller batches and layers that are split over several GPUs.
namespace gpt3 {

/// How far passes are from the published ones: root mean squares over clock points, in percent.
struct PassErrors {
    double time_pct = 0;
    double energy_pct = 0;
    std::size_t points = 0;
};

/// A plan within a slowdown.
struct FrontierPoint {
    double bound_pct = 0;
    kdvfs::tune::Plan local;
    kdvfs::tune::Plan global;
};

/// The plan's clocks for an iteration of another size.
struct ScaledIteration {
    int batch = 40;  ///< sequences
    int split = 1;   ///< GPUs that share each layer
    kdvfs::tune::Cost found;
    kdvfs::tune::Cost planned;
};

struct PaperFigures {
    PassErrors fast_memory;  ///< at 5001 MHz and more
    PassErrors all;
    std::vector<FrontierPoint> frontier;
    std::vector<ScaledIteration> scaled;
};

inline kdvfs::tune::Cost cost_at(const Case& job, const kdvfs::simulated::KernelModel& kernel,
                                 kdvfs::ClockPoint clock) {
    const auto run = operate(job.board, kernel, clock);
    return {run.time, run.power * run.time};
}

inline ScaledIteration scaled_iteration(const Case& job, const kdvfs::tune::Plan& plan, int batch,
                                        int split) {
    ScaledIteration result{batch, split, {}, {}};
    const auto kernels = carried_kernels(batch, split);
    for (std::size_t k = 0; k < kernel_count; ++k) {
        result.found += cost_at(job, kernels[k], {}) * plan.kernels[k].count;
        result.planned += cost_at(job, kernels[k], plan.kernels[k].clock) * plan.kernels[k].count;
    }
    return result;
}

/// @param least_memory clocks below are left out
inline PassErrors pass_errors(const Case& job, kdvfs::Megahertz least_memory) {
    const auto passes_at = [&](kdvfs::ClockPoint clock) {
        std::array<kdvfs::tune::Cost, 2> sums;
        for (std::size_t k = 0; k < kernel_count; ++k)
            sums[pass_of(k) == "forward" ? 0 : 1] +=
                cost_at(job, job.kernels[k], clock) * published_table[k].repeats;
        return sums;
    };
    const auto found = passes_at({});
    PassErrors errors;
    const auto squared = [](double ours_pct, double published_pct) {
        return std::pow(100 * ((100 + ours_pct) / (100 + published_pct) - 1), 2);
    };
    for (const PublishedPass& pass : published_passes) {
        const kdvfs::Megahertz memory = pass.point.memory;
        if (memory != kdvfs::auto_clock && memory < least_memory) continue;
        const auto at = passes_at(pass.point);
        errors.time_pct += squared(time_percent(at[0], found[0]), pass.forward_time_pct) +
                           squared(time_percent(at[1], found[1]), pass.backward_time_pct);
        errors.energy_pct += squared(energy_percent(at[0], found[0]), pass.forward_energy_pct) +
                             squared(energy_percent(at[1], found[1]), pass.backward_energy_pct);
        ++errors.points;
    }
    const double values = 2 * static_cast<double>(errors.points);
    errors.time_pct = std::sqrt(errors.time_pct / values);
    errors.energy_pct = std::sqrt(errors.energy_pct / values);
    return errors;
}

/// @param job  the fitted board
/// @param plan whose clocks are kept at other sizes
inline PaperFigures paper_figures(const Case& job, const kdvfs::tune::CostTable& table,
                                  const kdvfs::tune::Plan& plan) {
    using kdvfs::tune::Aggregate;
    PaperFigures figures{pass_errors(job, {5001}), pass_errors(job, {}), {}, {}};
    for (const double bound : {0.0, 1.0, 5.0, 10.0, 20.0, 40.0, 80.0}) {
        const auto objective = kdvfs::tune::relaxed_waste(bound / 100);
        figures.frontier.push_back({bound, make_plan(table, objective, Aggregate::local),
                                    make_plan(table, objective, Aggregate::global)});
    }
    for (const int batch : {40, 20, 8, 4, 2, 1})
        figures.scaled.push_back(scaled_iteration(job, plan, batch, 1));
    for (const int split : {2, 4, 8, 16})
        figures.scaled.push_back(scaled_iteration(job, plan, 40, split));
    return figures;
}

}  // namespace gpt3
