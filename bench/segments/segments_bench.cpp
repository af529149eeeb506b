// SPDX-License-Identifier: MIT
// How long switch-aware planning of one GPT-3-XL iteration takes (897 launches, 66 clock points,
// simulated RTX 3080 Ti), and what each switching latency leaves of the saving.
#include <examples/gpt3_iteration/clock_points.hpp>
#include <examples/gpt3_iteration/fitted_kernels.hpp>
#include <examples/gpt3_iteration/iteration.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/tune/segments.hpp>

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

namespace {

using namespace kdvfs;
using namespace kdvfs::tune;

CostTable simulated_iteration() {
    const simulated::Board board = simulated::rtx_3080_ti();
    Profile profile{board.name};
    for (std::size_t k = 0; k < gpt3::kernel_count; ++k) {
        for (const ClockPoint clock : gpt3::paper_clock_points()) {
            const auto point = simulated::operate(board, gpt3::fitted_kernels[k], clock);
            profile.add({{"kernel" + std::to_string(k), {}},
                         clock,
                         {point.time, point.power * point.time}});
        }
    }
    return mean_costs(profile);
}

/// Argument: switching latency in microseconds.
void plan_an_iteration(benchmark::State& state, const Objective& objective) {
    const CostTable table = simulated_iteration();
    const auto sequence = gpt3::launch_sequence();
    const std::vector<std::size_t> launches{sequence.begin(), sequence.end()};
    const SwitchCosts costs =
        uniform_switch_costs(Seconds{static_cast<double>(state.range(0)) * 1e-6});
    SegmentPlan plan;
    for (auto _ : state) plan = plan_segments(table, launches, costs, objective);
    state.counters["time_pct"] = plan.time_pct();
    state.counters["energy_pct"] = plan.energy_pct();
    state.counters["gap_pct"] = plan.gap_pct;
    state.counters["segments"] = static_cast<double>(plan.segments.size());
    state.counters["single_energy_pct"] = energy_percent(plan.single, plan.baseline);
    state.counters["no_latency_energy_pct"] = energy_percent(plan.without_latency, plan.baseline);
}
BENCHMARK_CAPTURE(plan_an_iteration, strict_waste, strict_waste())
    ->Arg(0)
    ->Arg(10)
    ->Arg(100)
    ->Arg(1'000)
    ->Arg(6'000)
    ->Arg(150'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_an_iteration, one_percent, relaxed_waste(0.01))
    ->Arg(1'000)
    ->Arg(6'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_an_iteration, edp, energy_delay())
    ->Arg(1'000)
    ->Arg(6'000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
