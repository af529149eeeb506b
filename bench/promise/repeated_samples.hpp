// SPDX-License-Identifier: MIT
#pragma once

#include <bench/promise/noisy_profile.hpp>
#include <examples/gpt3_xl/boards.hpp>
#include <kdvfs/detail/tune/shrunk_costs.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

/// Kernels and noise drawn from ranges, as repeated sweeps of one board have them: samples of a
/// sweep share luck with each other.
namespace kdvfs::tune {

/// Noise of one quantity, as standard deviations of its log.
struct RepeatedNoise {
    double own = 0;     ///< of each sample, Student's t of 4 degrees
    double block = 0;   ///< common to all kernels at a clock point of a sweep
    double drift = 0;   ///< of a kernel along the clocks of a sweep, an autoregression
    double board = 0;   ///< likewise, common to all kernels
    double level = 0;   ///< of a kernel in a sweep, common to all of its clocks
    double memory = 1;  ///< correlation of drift between neighbouring clocks
};

inline double draw_uniform(std::mt19937_64& random, double low, double high) {
    return std::uniform_real_distribution<double>{low, high}(random);
}
inline double draw_log(std::mt19937_64& random, double low, double high) {
    return std::exp(draw_uniform(random, std::log(low), std::log(high)));
}

/// @param scale of the noise of own luck, the middle of its range
inline RepeatedNoise draw_noise(std::mt19937_64& random, double scale) {
    return {draw_log(random, scale / 3, scale * 3), draw_uniform(random, 0, scale),
            draw_uniform(random, 0, scale),         draw_uniform(random, 0, scale),
            draw_uniform(random, 0, 6 * scale),     draw_uniform(random, 0.8, 0.98)};
}

/// Kernels of random work on a simulated board at many core clocks, and what its model misses: each
/// point has a deviation of its own that comes again with every sample.
inline CostTable draw_kernels(std::string_view preset, std::mt19937_64& random) {
    const simulated::Board board = gpt3::find_case(preset)->board;
    const auto kernels = std::uniform_int_distribution<int>{12, 40}(random);
    const auto clocks = std::uniform_int_distribution<int>{20, 140}(random);
    const double highest = board.clocks.core.listed.back().count;
    const double lowest = draw_uniform(random, 0.25, 0.5) * highest;
    const double texture = draw_uniform(random, 0, 0.003);
    std::normal_distribution<double> normal;
    Profile profile{std::string{board.name}};
    for (int k = 0; k < kernels; ++k) {
        const double flops = draw_log(random, 1e9, 1e12);
        const double bytes = flops / draw_log(random, 5, 2000);
        const bool on_vectors = draw_uniform(random, 0, 1) < 0.5;
        simulated::KernelModel model =
            simulated::roofline(board, {on_vectors ? 0 : flops, on_vectors ? flops / 8 : 0, bytes});
        model.overlap = draw_uniform(random, 1.5, 8);
        const auto count = std::uniform_int_distribution<std::uint32_t>{1, 8}(random);
        for (int c = 0; c < clocks; ++c) {
            const double core = lowest + (highest - lowest) * c / (clocks - 1);
            const ClockPoint clock{{static_cast<std::uint32_t>(std::lround(core))}, auto_clock};
            const auto point = simulated::operate(board, model, clock);
            const double time = std::exp(texture * normal(random));
            const double energy = std::exp(texture * normal(random));
            profile.add({{"kernel" + std::to_string(k), {}},
                         clock,
                         {point.time * time, point.power * point.time * energy},
                         "",
                         count});
        }
    }
    return mean_costs(profile);
}

/// Factors of one quantity by kernel and point, of one sweep.
inline std::vector<std::vector<double>> draw_luck(const CostTable& truth,
                                                  const RepeatedNoise& noise,
                                                  std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    std::student_t_distribution<double> tails{4};
    const std::size_t points = truth.kernels.front().points.size();
    const auto walk = [&](double scale) {
        std::vector<double> at(points);
        double now = normal(random);
        for (double& one : at) {
            one = scale * now;
            now = noise.memory * now + std::sqrt(1 - noise.memory * noise.memory) * normal(random);
        }
        return at;
    };
    std::vector<double> common = walk(noise.board);
    for (double& one : common) one += noise.block * normal(random);
    std::vector<std::vector<double>> factors;
    for (std::size_t k = 0; k < truth.kernels.size(); ++k) {
        const std::vector<double> drift = walk(noise.drift);
        const double level = noise.level * normal(random);
        auto& row = factors.emplace_back();
        for (std::size_t p = 0; p < truth.kernels[k].points.size(); ++p)
            row.push_back(std::exp(common[p] + drift[p] + level + noise.own * tails(random)));
    }
    return factors;
}

/// Sweeps of one board: what each kernel took at each point, by sweep.
struct RepeatedSweeps {
    CostTable truth;
    std::vector<CostTable> sweeps;

    RepeatedSweeps(CostTable costs, const RepeatedNoise& time, const RepeatedNoise& energy,
                   std::size_t samples, std::mt19937_64& random)
        : truth{std::move(costs)} {
        for (std::size_t s = 0; s < samples; ++s) {
            CostTable& sweep = sweeps.emplace_back(truth);
            const auto times = draw_luck(truth, time, random);
            const auto energies = draw_luck(truth, energy, random);
            for (std::size_t k = 0; k < truth.kernels.size(); ++k)
                for (std::size_t p = 0; p < truth.kernels[k].points.size(); ++p) {
                    Cost& cost = sweep.kernels[k].points[p].cost;
                    cost.time *= times[k][p];
                    cost.energy.count *= energies[k][p];
                }
        }
    }

    /// Of some of the sweeps, as they would be measured.
    [[nodiscard]] Profile profile(const std::vector<std::size_t>& chosen) const {
        Profile found{truth.gpu};
        for (std::size_t k = 0; k < truth.kernels.size(); ++k) {
            const KernelCosts& kernel = truth.kernels[k];
            for (std::size_t p = 0; p < kernel.points.size(); ++p)
                for (std::size_t s = 0; s < chosen.size(); ++s) {
                    const PointCost& point = sweeps[chosen[s]].kernels[k].points[p];
                    found.add({kernel.key, point.clock, point.cost, kernel.group, kernel.count,
                               static_cast<std::uint32_t>(s), p == kernel.baseline});
                }
        }
        return found;
    }
};

/// Five sweeps of a program drawn for a board.
/// @param time_scale, energy_scale middles of the noise's ranges, as fractions
inline RepeatedSweeps draw_sweeps(std::string_view board, double time_scale, double energy_scale,
                                  std::mt19937_64& random) {
    CostTable truth = draw_kernels(board, random);
    const RepeatedNoise time = draw_noise(random, time_scale);
    const RepeatedNoise energy = draw_noise(random, energy_scale);
    return {std::move(truth), time, energy, 5, random};
}

inline constexpr std::array repeated_bounds{0.0, 0.005, 0.01, 0.02, 0.05};

/// Of plans at one bound; percent of the baseline.
struct RepeatedTally {
    std::vector<double> off;       ///< promised less kept, as judged
    std::vector<double> slowdown;  ///< beyond the bound, as judged
    std::vector<double> slower;    ///< likewise, in truth
    std::vector<double> off_truth;
    double kept = 0;
    double kept_truth = 0;
    double oracle = 0;        ///< plans made of the judging samples
    double oracle_truth = 0;  ///< plans made of the truth
};

/// Plans on three sweeps, and judges the plans by the other two and by the truth.
inline void judge(const RepeatedSweeps& sweeps, std::vector<RepeatedTally>& tallies) {
    const CostTable judging = mean_costs(sweeps.profile({3, 4}));
    const CostTable table = shrunk_costs(sweeps.profile({0, 1, 2}));
    for (std::size_t b = 0; b < repeated_bounds.size(); ++b) {
        RepeatedTally& tally = tallies[b];
        const auto objective = relaxed_waste(repeated_bounds[b]);
        const Plan plan = make_plan(table, objective, Aggregate::global);
        const auto energy_of = [](const Plan& one, const CostTable& costs) {
            return energy_percent(cost_under(one, costs), costs.baseline_cost());
        };
        const auto time_of = [](const Plan& one, const CostTable& costs) {
            return time_percent(cost_under(one, costs), costs.baseline_cost());
        };
        const kdvfs::detail::KnapsackEffort little{1e-4, 1000};
        tally.off.push_back(plan.energy_pct() - energy_of(plan, judging));
        tally.off_truth.push_back(plan.energy_pct() - energy_of(plan, sweeps.truth));
        tally.slowdown.push_back(time_of(plan, judging) - 100 * repeated_bounds[b]);
        tally.slower.push_back(time_of(plan, sweeps.truth) - 100 * repeated_bounds[b]);
        tally.kept += energy_of(plan, judging);
        tally.kept_truth += energy_of(plan, sweeps.truth);
        tally.oracle += make_plan(judging, objective, Aggregate::global, little).energy_pct();
        tally.oracle_truth +=
            make_plan(sweeps.truth, objective, Aggregate::global, little).energy_pct();
    }
}

}  // namespace kdvfs::tune
