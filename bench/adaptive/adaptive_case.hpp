// SPDX-License-Identifier: MIT
#pragma once

#include <bench/promise/noisy_profile.hpp>
#include <kdvfs/detail/tune/kernel_bench.hpp>
#include <kdvfs/detail/tune/shrinkage.hpp>
#include <kdvfs/tune/planner.hpp>
#include <tools/cli/measured_gpu.hpp>

#include <cstdint>
#include <filesystem>
#include <string>

#include <unistd.h>

namespace kdvfs::tune {

/// What the full grid and an adaptive sweep lead to, by the measured GPU's own truth.
struct AdaptiveComparison {
    double grid_energy_pct = 0;
    double grid_time_pct = 0;
    double adaptive_energy_pct = 0;
    double adaptive_time_pct = 0;
    double share = 0;  ///< of the grid's measurements that the adaptive sweep took
};

inline Profile measured_grid(const cli::MeasuredGpu& gpu, std::uint32_t samples) {
    Profile profile{gpu.name};
    for (std::size_t k = 0; k < gpu.kernels.size(); ++k) {
        for (const ClockPoint clock : gpu.points) {
            for (std::uint32_t sample = 0; sample < samples; ++sample) {
                profile.add({gpu.kernels[k].key, clock, gpu.measure(k, clock), gpu.kernels[k].group,
                             gpu.kernels[k].count, sample, clock == gpu.baseline});
            }
        }
    }
    return profile;
}

/// `device` as the command names it; `noise` and `samples` of each measurement.
inline AdaptiveComparison compare_adaptive(const std::string& device, const Objective& objective,
                                           double noise, std::uint32_t samples) {
    const CostTable truth = mean_costs(measured_grid(cli::open_measured(device, 0, 1), 1));
    const cli::MeasuredGpu gpu = cli::open_measured(device, noise, 5);
    const Plan from_grid =
        make_plan(shrunk_costs(measured_grid(gpu, samples)), objective, Aggregate::global);
    const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                       ("kdvfs_adaptive_" + std::to_string(::getpid()) + ".csv");
    std::filesystem::remove(path);
    AdaptiveComparison result;
    {
        SweepFile file{path, gpu.name, gpu.baseline};
        AdaptiveOptions options;
        options.samples = samples;
        const AdaptiveOutcome outcome =
            sweep_adaptively(file, gpu.kernels, gpu.points, objective, options, gpu.measure,
                             [](std::size_t, std::size_t) {});
        result.share =
            static_cast<double>(outcome.measurements) / static_cast<double>(outcome.grid);
        const Plan plan = make_plan(shrunk_costs(file.profile()), objective, Aggregate::global);
        const Cost kept = cost_under(plan, truth);
        result.adaptive_energy_pct = energy_percent(kept, truth.baseline_cost());
        result.adaptive_time_pct = time_percent(kept, truth.baseline_cost());
    }
    std::filesystem::remove(path);
    const Cost kept = cost_under(from_grid, truth);
    result.grid_energy_pct = energy_percent(kept, truth.baseline_cost());
    result.grid_time_pct = time_percent(kept, truth.baseline_cost());
    return result;
}

}  // namespace kdvfs::tune
