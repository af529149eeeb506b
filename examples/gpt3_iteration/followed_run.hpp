// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_iteration/live_run.hpp>
#include <examples/gpt3_xl/boards.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/segments.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

/// The iteration run live by a plan that knows how long switching takes, through the very same
/// scopes.
namespace gpt3 {

/// What such a run was promised, and what it cost.
struct FollowedRun {
    LiveRun run{};
    kdvfs::tune::SegmentPlan plan{};

    /// In percent of the time.
    [[nodiscard]] double followed_pct() const {
        return run.report.followed ? 100 * run.report.followed->share() : 0;
    }
};

/// The iteration's launches as indices into a table of its kernels.
inline std::vector<std::size_t> planned_launches(const kdvfs::tune::CostTable& table) {
    std::vector<kdvfs::KernelKey> keys;
    for (const std::size_t entry : launch_sequence())
        keys.push_back({std::string{published_table[entry].name}, {}});
    return kdvfs::tune::launch_indices(table, keys);
}

/// Plans segments for a board on which switching takes so long, and a request one marker.
inline kdvfs::tune::SegmentPlan plan_segments(const kdvfs::simulated::Board& board,
                                              const kdvfs::tune::CostTable& table,
                                              const kdvfs::tune::Objective& objective,
                                              kdvfs::Duration switch_latency) {
    kdvfs::tune::SwitchCosts costs = kdvfs::tune::uniform_switch_costs(switch_latency);
    costs.asking = kdvfs::simulated::DeviceOptions{}.marker_time;
    costs.paused_power = kdvfs::simulated::idle_power(board, {});
    return kdvfs::tune::plan_segments(table, planned_launches(table), costs, objective);
}

/// The counts of one iteration: those after it, less those before.
inline kdvfs::measure::ScopeCounts operator-(kdvfs::measure::ScopeCounts after,
                                             const kdvfs::measure::ScopeCounts& before) {
    after.scopes -= before.scopes;
    after.switches -= before.switches;
    after.stream_redundant -= before.stream_redundant;
    after.device_redundant -= before.device_redundant;
    after.not_worth_it -= before.not_worth_it;
    after.refused -= before.refused;
    after.kept -= before.kept;
    after.captured -= before.captured;
    after.followed -= before.followed;
    after.unmetered -= before.unmetered;
    return after;
}

/// Several iterations by a plan, of which the last counts: it begins as the one before it ended.
/// None is metered, as most of a training run are not.
template <class Registry>
FollowedRun run_followed(const kdvfs::simulated::Board& board, Models models,
                         kdvfs::tune::SegmentPlan plan, kdvfs::Duration switch_latency) {
    constexpr int iterations = 3;
    auto followed = std::make_shared<kdvfs::PlanTable>();
    followed->follow(plan.sequence);

    kdvfs::simulated::Device device = live_device(board, switch_latency);
    kdvfs::GpuOptions options = live_options(switch_latency);
    options.meter_every = 2 * (1 + iterations);  // of the first so many one of the later half
    const auto gpu = kdvfs::simulated::open(device, options).with<Registry>(std::move(followed));
    kdvfs::simulated::Stream* stream = device.create_stream();
    FollowedRun result{.run = {.switch_latency = switch_latency}, .plan = std::move(plan)};
    kdvfs::measure::ScopeCounts before;
    for (int iteration = 0; iteration < iterations; ++iteration) {
        gpu.next_iteration();
        before = gpu.report().scopes;
        const auto began = device.now();
        const auto energy_before = device.true_energy();
        launch_iteration(gpu, stream,
                         [&](std::size_t entry) { device.launch(stream, models[entry]); });
        device.synchronize(stream);
        result.run.cost = {device.now() - began, device.true_energy() - energy_before};
    }
    result.run.report = gpu.report();
    result.run.report.scopes = result.run.report.scopes - before;
    gpu.close();
    return result;
}

}  // namespace gpt3
