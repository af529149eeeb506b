// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_iteration/live_run.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace gpt3 {

/// What the scopes of a plan cost where the clock takes longer to follow than they last, so that
/// none switches: `iterations` of a training loop with the library's default metering, with none,
/// and without scopes.
struct ScopeCosts {
    static constexpr unsigned iterations = 16;  ///< one of them is metered
    static constexpr kdvfs::Duration switch_latency = std::chrono::milliseconds{10};

    kdvfs::tune::Cost unscoped{};
    kdvfs::tune::Cost metered{};
    kdvfs::tune::Cost unmetered{};
    bool says_so = false;  ///< the unmetered run's report has "nothing to gain here"
};

/// Runs `iterations` under a registry that follows the plan. @returns their cost, and the report
template <class Registry>
LiveRun run_iterations(const kdvfs::simulated::Board& board, Models models,
                       std::shared_ptr<const kdvfs::PlanTable> plan) {
    kdvfs::simulated::Device device = live_device(board, ScopeCosts::switch_latency);
    kdvfs::GpuOptions options;
    options.switch_latency = ScopeCosts::switch_latency;
    const auto gpu =
        kdvfs::simulated::open(device, options).template with<Registry>(std::move(plan));
    kdvfs::simulated::Stream* stream = device.create_stream();
    device.synchronize();
    const auto began = device.now();
    const auto energy_before = device.true_energy();
    for (unsigned i = 0; i < ScopeCosts::iterations; ++i) {
        gpu.next_iteration();
        launch_iteration(gpu, stream,
                         [&](std::size_t entry) { device.launch(stream, models[entry]); });
        device.synchronize(stream);
    }
    LiveRun run{.switch_latency = ScopeCosts::switch_latency,
                .cost = {device.now() - began, device.true_energy() - energy_before}};
    run.report = gpu.report();
    gpu.close();
    return run;
}

inline ScopeCosts scope_costs(const kdvfs::simulated::Board& board, Models models,
                              const std::shared_ptr<const kdvfs::PlanTable>& plan) {
    using kdvfs::Default;
    using kdvfs::PolicyRegistry;
    using Plan = Default<kdvfs::FromPlan<kdvfs::AutoClock>>;
    using Unscoped = PolicyRegistry<Default<kdvfs::KeepClock>, kdvfs::Unmetered>;
    const LiveRun unmetered =
        run_iterations<PolicyRegistry<Plan, kdvfs::Unmetered>>(board, models, plan);
    ScopeCosts costs{.unscoped = run_iterations<Unscoped>(board, models, nullptr).cost,
                     .metered = run_iterations<PolicyRegistry<Plan>>(board, models, plan).cost,
                     .unmetered = unmetered.cost};
    for (const std::string& note : unmetered.report.notes)
        costs.says_so = costs.says_so || note.find("nothing to gain here") != std::string::npos;
    return costs;
}

}  // namespace gpt3
