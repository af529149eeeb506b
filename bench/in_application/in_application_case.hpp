// SPDX-License-Identifier: MIT
#pragma once

#include <bench/promise/noisy_profile.hpp>
#include <examples/gpt3_iteration/live_run.hpp>
#include <examples/gpt3_xl/boards.hpp>
#include <kdvfs/detail/tune/shrunk_costs.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/sweep.hpp>

#include <gsl/assert>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace kdvfs::tune {

/// A GPT-3-XL iteration swept while it runs, on a simulated board, beside its isolated sweep.
struct InApplicationComparison {
    Cost isolated;     ///< an iteration under the plan from the isolated sweep, in truth
    Cost application;  ///< and under the plan from the sweep inside the application
    Cost baseline;
    double promised_energy_pct = 0;  ///< by the latter plan
    double slowdown_pct = 0;         ///< of the swept run, against as many iterations at baseline
    SweepProgress progress;
};

/// What an iteration really costs under a plan whose kernels may come in another order.
inline Cost truth_under(const Plan& plan, const CostTable& truth) {
    Cost sum;
    for (const KernelCosts& kernel : truth.kernels) {
        const auto planned = std::find_if(
            plan.kernels.begin(), plan.kernels.end(),
            [&](const PlannedKernel& candidate) { return candidate.key == kernel.key; });
        const ClockPoint clock =
            planned == plan.kernels.end() ? plan.baseline_clock : planned->clock;
        const auto point =
            std::find_if(kernel.points.begin(), kernel.points.end(),
                         [&](const PointCost& candidate) { return candidate.clock == clock; });
        Expects(point != kernel.points.end());
        sum += point->cost * kernel.count;
    }
    return sum;
}

/// Seconds that `iterations` take in scopes at the board's own clocks.
inline Seconds baseline_time(const gpt3::Case& board, std::uint64_t iterations) {
    simulated::Device device{board.board};
    const auto gpu = simulated::open(device).with<PolicyRegistry<Default<AutoClock>>>();
    simulated::Stream* stream = device.create_stream();
    const auto launch = [&](std::size_t entry) { device.launch(stream, board.kernels[entry]); };
    constexpr std::uint64_t sampled = 3;
    for (std::uint64_t i = 0; i < sampled; ++i) {
        gpu.next_iteration();
        gpt3::launch_iteration(gpu, stream, launch);
        device.synchronize(stream);
    }
    return Seconds{device.now().time_since_epoch()} *
           (static_cast<double>(iterations) / static_cast<double>(sampled));
}

/// Sweeps with the board's own counter, and switches clocks with its own latency, at the points of
/// the isolated sweep.
inline InApplicationComparison compare_in_application(const std::string& preset,
                                                      SweepOptions options, double isolated_noise,
                                                      std::uint32_t isolated_samples) {
    const gpt3::Case board = *gpt3::find_case(preset);
    options.points = board.points;
    const CostTable truth = mean_costs(measured_grid(preset, 0, 1, 1));
    const Profile isolated = measured_grid(preset, isolated_noise, isolated_samples, 5);

    simulated::Device device{board.board};
    const Gpu gpu = simulated::open(device);
    simulated::Stream* stream = device.create_stream();
    const auto launch = [&](std::size_t entry) { device.launch(stream, board.kernels[entry]); };
    InApplicationComparison result;
    Plan plan;
    TimePoint ended{};
    {
        const Sweeping<PolicyRegistry<Default<AutoClock>>> sweep{gpu, options};
        while (!sweep.done()) {
            sweep.next_iteration();
            gpt3::launch_iteration(sweep, stream, launch);
            device.synchronize(stream);
        }
        ended = device.now();
        result.progress = sweep.progress();
        plan = make_plan(shrunk_costs(sweep.profile()), options.objective, Aggregate::global);
    }
    gpu.close();
    const Seconds undisturbed = baseline_time(board, result.progress.iterations);
    result.slowdown_pct =
        percent_change(Seconds{ended.time_since_epoch()} / Seconds{1}, undisturbed / Seconds{1});
    result.promised_energy_pct = plan.energy_pct();
    result.baseline = truth.baseline_cost();
    result.application = truth_under(plan, truth);
    result.isolated =
        truth_under(make_plan(shrunk_costs(isolated), options.objective, Aggregate::global), truth);
    return result;
}

}  // namespace kdvfs::tune
