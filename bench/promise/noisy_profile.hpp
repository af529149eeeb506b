// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/boards.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>

namespace kdvfs::tune {

/// What one GPT-3-XL iteration costs on a simulated board, without noise.
inline CostTable simulated_truth(std::string_view preset = "rtx_3080_ti") {
    const gpt3::Case board = *gpt3::find_case(preset);
    std::array<std::uint32_t, gpt3::kernel_count> counts{};
    for (const std::size_t entry : gpt3::launch_sequence()) ++counts[entry];
    Profile profile{board.board.name};
    for (std::size_t k = 0; k < gpt3::kernel_count; ++k) {
        for (const ClockPoint clock : board.points) {
            const auto point = simulated::operate(board.board, board.kernels[k], clock);
            profile.add({{"kernel" + std::to_string(k), {}},
                         clock,
                         {point.time, point.power * point.time},
                         "",
                         counts[k]});
        }
    }
    return mean_costs(profile);
}

/// The kernels of one GPT-3-XL iteration by themselves at every clock point of a simulated board,
/// with independent normal noise on time and energy.
inline Profile measured_grid(std::string_view preset, double noise, std::uint32_t samples,
                             std::uint64_t seed) {
    const gpt3::Case board = *gpt3::find_case(preset);
    std::mt19937_64 random{seed};
    std::normal_distribution<double> normal{1, noise};
    Profile profile{"simulated " + board.board.name};
    for (std::size_t k = 0; k < gpt3::kernel_count; ++k) {
        const auto& published = gpt3::published_table[k];
        for (const ClockPoint clock : board.points) {
            const auto point = simulated::operate(board.board, board.kernels[k], clock);
            for (std::uint32_t sample = 0; sample < samples; ++sample) {
                const double time = noise > 0 ? normal(random) : 1;
                const double energy = noise > 0 ? normal(random) : 1;
                profile.add({{std::string{published.name}, {}},
                             clock,
                             {point.time * time, point.power * point.time * energy},
                             std::string{gpt3::pass_of(k)},
                             static_cast<std::uint32_t>(published.repeats),
                             sample,
                             clock.is_auto()});
            }
        }
    }
    return profile;
}

/// The truth as a measurement would see it: independent factors on time and on energy, each one
/// plus what `noise` draws; factors below a twentieth are drawn again.
template <class Noise>
Profile noisy_profile(const CostTable& truth, Noise noise, std::uint32_t samples,
                      std::uint64_t seed) {
    std::mt19937_64 random{seed};
    const auto factor = [&] {
        for (;;)
            if (const double drawn = 1 + noise(random); drawn > 0.05) return drawn;
    };
    Profile profile{truth.gpu};
    for (const KernelCosts& kernel : truth.kernels) {
        for (const PointCost& point : kernel.points) {
            for (std::uint32_t s = 0; s < samples; ++s) {
                const double time = point.cost.time.count() * factor();
                const double energy = point.cost.energy.count * factor();
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

/// Normal noise.
inline Profile noisy_profile(const CostTable& truth, double deviation, std::uint32_t samples,
                             std::uint64_t seed) {
    return noisy_profile(truth, std::normal_distribution<double>{0, deviation}, samples, seed);
}

/// Noise as boards have it: Student's t of three degrees of freedom.
inline Profile heavy_tailed_profile(const CostTable& truth, double scale, std::uint32_t samples,
                                    std::uint64_t seed) {
    std::student_t_distribution<double> tails{3};
    return noisy_profile(
        truth, [scale, tails](auto& random) mutable { return scale * tails(random); }, samples,
        seed);
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
