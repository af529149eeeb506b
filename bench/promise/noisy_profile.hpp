// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_iteration/clock_points.hpp>
#include <examples/gpt3_iteration/fitted_kernels.hpp>
#include <examples/gpt3_iteration/iteration.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>

namespace kdvfs::tune {

/// What one GPT-3-XL iteration costs on the simulated RTX 3080 Ti, without noise.
inline CostTable simulated_truth() {
    const simulated::Board board = simulated::rtx_3080_ti();
    std::array<std::uint32_t, gpt3::kernel_count> counts{};
    for (const std::size_t entry : gpt3::launch_sequence()) ++counts[entry];
    Profile profile{board.name};
    for (std::size_t k = 0; k < gpt3::kernel_count; ++k) {
        for (const ClockPoint clock : gpt3::paper_clock_points()) {
            const auto point = simulated::operate(board, gpt3::fitted_kernels[k], clock);
            profile.add({{"kernel" + std::to_string(k), {}},
                         clock,
                         {point.time, point.power * point.time},
                         "",
                         counts[k]});
        }
    }
    return mean_costs(profile);
}

/// The truth as a measurement would see it: independent noise on time and on energy.
inline Profile noisy_profile(const CostTable& truth, double noise, std::uint32_t samples,
                             std::uint64_t seed) {
    std::mt19937_64 random{seed};
    std::normal_distribution<double> normal{1, noise};
    Profile profile{truth.gpu};
    for (const KernelCosts& kernel : truth.kernels) {
        for (const PointCost& point : kernel.points) {
            for (std::uint32_t s = 0; s < samples; ++s) {
                const double time = point.cost.time.count() * normal(random);
                const double energy = point.cost.energy.count * normal(random);
                profile.add({kernel.key,
                             point.clock,
                             {Seconds{time}, Joules{energy}},
                             kernel.group,
                             kernel.count,
                             s});
            }
        }
    }
    return profile;
}

/// What an iteration really costs under a plan.
inline Cost cost_under(const Plan& plan, const CostTable& truth) {
    Cost sum;
    for (std::size_t k = 0; k < plan.kernels.size(); ++k) {
        const KernelCosts& kernel = truth.kernels[k];
        const auto point = std::find_if(
            kernel.points.begin(), kernel.points.end(),
            [&](const PointCost& candidate) { return candidate.clock == plan.kernels[k].clock; });
        sum += point->cost * kernel.count;
    }
    return sum;
}

}  // namespace kdvfs::tune
