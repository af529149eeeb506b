// SPDX-License-Identifier: MIT
// How long planning takes, and the gap that is left: kernels with a roofline time and a convex
// power curve, as many and as different as asked for.
#include <kdvfs/detail/tune/shrunk_costs.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>

namespace {

using namespace kdvfs;
using namespace kdvfs::tune;

/// A kernel with compute and memory time in seconds at full clocks, `core` x `memory` points.
KernelCosts make_kernel(std::mt19937_64& random, std::size_t index, std::uint32_t cores,
                        std::uint32_t memories) {
    std::uniform_real_distribution<double> uniform{0, 1};
    const double scale = std::pow(10, -5 + 3.5 * uniform(random));
    const double compute = scale * uniform(random);
    const double memory = scale - compute;
    KernelCosts kernel{
        {"kernel" + std::to_string(index), {}}, index % 3 ? "forward" : "backward", 24, {}, 0};
    for (std::uint32_t c = 1; c <= cores; ++c) {
        for (std::uint32_t m = 1; m <= memories; ++m) {
            const double f = (c + 2.0) / (cores + 2.0);
            const double g = (m + 0.5) / (memories + 0.5);
            const double noise = 1 + 0.01 * (uniform(random) - 0.5);
            const double time = std::pow(std::pow(compute / f, 5) + std::pow(memory / g, 5), 0.2);
            const double volts = f < 0.55 ? 1 : 1 + (f - 0.55);
            const double power =
                60 + 40 * g + 80 * f * volts * volts + 150 * scale / time * volts * volts;
            kernel.points.push_back(
                {{{100 * c}, {1000 * m}}, {Seconds{time * noise}, Joules{power * time * noise}}});
        }
    }
    kernel.baseline = kernel.points.size() - 1;
    return kernel;
}

CostTable make_table(std::size_t kernels, std::uint32_t cores, std::uint32_t memories) {
    std::mt19937_64 random{1};
    CostTable table{"roofline", {{100 * cores}, {1000 * memories}}, {}};
    for (std::size_t k = 0; k < kernels; ++k)
        table.kernels.push_back(make_kernel(random, k, cores, memories));
    return table;
}

void report(benchmark::State& state, const Plan& plan) {
    state.counters["time_pct"] = plan.time_pct();
    state.counters["energy_pct"] = plan.energy_pct();
    state.counters["gap_pct"] = plan.gap_pct;
}

/// 46 kernels x 66 points; the argument is the tolerated slowdown in hundredths of a percent.
void plan_an_iteration(benchmark::State& state) {
    const CostTable table = make_table(46, 11, 6);
    const Objective objective = relaxed_waste(static_cast<double>(state.range(0)) * 1e-4);
    for (auto _ : state) benchmark::DoNotOptimize(make_plan(table, objective, Aggregate::global));
    report(state, make_plan(table, objective, Aggregate::global));
}
BENCHMARK(plan_an_iteration)->Arg(0)->Arg(10)->Arg(100)->Arg(500)->Unit(benchmark::kMillisecond);

void plan_an_iteration_in_every_way(benchmark::State& state) {
    const CostTable table = make_table(46, 11, 6);
    for (auto _ : state) benchmark::DoNotOptimize(make_plans(table, strict_waste()));
    report(state, make_plans(table, strict_waste()).global);
}
BENCHMARK(plan_an_iteration_in_every_way)->Unit(benchmark::kMillisecond);

void plan_an_iteration_for_energy_delay(benchmark::State& state) {
    const CostTable table = make_table(46, 11, 6);
    for (auto _ : state)
        benchmark::DoNotOptimize(make_plan(table, energy_delay(), Aggregate::global));
    report(state, make_plan(table, energy_delay(), Aggregate::global));
}
BENCHMARK(plan_an_iteration_for_energy_delay)->Unit(benchmark::kMillisecond);

/// 10^5 entries x 128 points.
void plan_a_hundred_thousand_kernels(benchmark::State& state) {
    const CostTable table = make_table(100'000, 32, 4);
    const Objective objective = relaxed_waste(static_cast<double>(state.range(0)) * 1e-4);
    Plan plan;
    for (auto _ : state) plan = make_plan(table, objective, Aggregate::global);
    report(state, plan);
}
BENCHMARK(plan_a_hundred_thousand_kernels)
    ->Arg(0)
    ->Arg(100)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

/// Three samples a point, each off by Student's t of 1 % scale.
Profile measure(const CostTable& truth) {
    std::mt19937_64 random{1};
    std::student_t_distribution<double> tails{3};
    const auto factor = [&] { return std::exp(0.01 * tails(random)); };
    Profile profile{truth.gpu};
    for (const KernelCosts& kernel : truth.kernels)
        for (const PointCost& point : kernel.points)
            for (std::uint32_t s = 0; s < 3; ++s)
                profile.add({kernel.key,
                             point.clock,
                             {point.cost.time * factor(), point.cost.energy * factor()},
                             kernel.group,
                             kernel.count,
                             s});
    return profile;
}

/// Estimates and plan of 1000 kernels x 128 points x 3 samples.
void shrink_and_plan_a_thousand_kernels(benchmark::State& state) {
    const Profile profile = measure(make_table(1000, 32, 4));
    Plan plan;
    for (auto _ : state)
        plan = make_plan(shrunk_costs(profile), relaxed_waste(0.01), Aggregate::global);
    report(state, plan);
}
BENCHMARK(shrink_and_plan_a_thousand_kernels)->Unit(benchmark::kMillisecond)->Iterations(3);

}  // namespace
