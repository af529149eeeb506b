// SPDX-License-Identifier: MIT
// A plan of segments for one GPT-3-XL iteration, followed by the scopes around its kernels on the
// simulated RTX 3080 Ti.
#include <examples/gpt3_iteration/clock_points.hpp>
#include <examples/gpt3_iteration/fitted_kernels.hpp>
#include <examples/gpt3_iteration/scoped_iteration.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/planned_sequence.hpp>
#include <kdvfs/tune/segment_planner.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

using namespace std::chrono_literals;

constexpr Duration marker_time = 2us;

CostTable simulated_iteration(const simulated::Board& board) {
    Profile profile{board.name};
    for (std::size_t k = 0; k < gpt3::kernel_count; ++k) {
        for (const ClockPoint clock : gpt3::paper_clock_points()) {
            const auto point = simulated::operate(board, gpt3::fitted_kernels[k], clock);
            profile.add({{std::string{gpt3::published_table[k].name}, {}},
                         clock,
                         {point.time, point.power * point.time}});
        }
    }
    return mean_costs(profile);
}

struct Live {
    Cost cost;
    std::uint64_t markers = 0;
    measure::Report report;
};

/// The last of three iterations: by then each begins as the one before it ended.
Live run_live(const simulated::Board& board, std::shared_ptr<const PlanTable> plan,
              Duration latency) {
    simulated::Device device{board,
                             {.clock_switch = simulated::uniform_switch(latency),
                              .energy_counter = simulated::EnergyCounterTraits{.period = 1ms},
                              .marker_time = marker_time}};
    GpuOptions options;
    options.listen_every = Duration{0};
    const auto gpu =
        simulated::open(device, options).with<PolicyRegistry<Default<KeepClock>>>(std::move(plan));
    simulated::Stream* stream = device.create_stream();
    Live live;
    for (int iteration = 0; iteration < 3; ++iteration) {
        gpu.next_iteration();
        const TimePoint began = device.now();
        const Joules before = device.true_energy();
        gpt3::launch_iteration(gpu, stream, [&](std::size_t entry) {
            device.launch(stream, gpt3::fitted_kernels[entry]);
        });
        device.synchronize(stream);
        live.cost = {device.now() - began, device.true_energy() - before};
    }
    live.report = gpu.report();
    gpu.close();
    return live;
}

class FollowLive : public ::testing::TestWithParam<Duration> {};

TEST_P(FollowLive, ScopesAsTheyAreKeepWhatThePlanPromises) {
    const Duration latency = GetParam();
    const simulated::Board board = simulated::rtx_3080_ti();
    const auto sequence = gpt3::launch_sequence();
    SwitchCosts costs = uniform_switch_costs(latency);
    costs.asking = marker_time;
    costs.paused_power = simulated::idle_power(board, {});
    const CostTable table = simulated_iteration(board);
    const std::vector<std::size_t> launches{sequence.begin(), sequence.end()};
    std::vector<std::size_t> indices;
    for (const std::size_t entry : launches) {
        for (std::size_t k = 0; k < table.kernels.size(); ++k)
            if (table.kernels[k].key.name == gpt3::published_table[entry].name) indices.push_back(k);
    }
    const SegmentPlan plan = plan_segments(table, indices, costs, strict_waste());
    auto followed = std::make_shared<PlanTable>();
    followed->follow(to_planned_sequence(plan, table, indices));
    const Live live = run_live(board, followed, latency);
    std::printf(
        "simulated, latency %g ms: %zu segments, promised time %+.3f %% energy %+.3f %%, "
        "live time %+.3f %% energy %+.3f %%, followed %.2f %%\n",
        Seconds{latency}.count() * 1e3, plan.segments.size(), plan.time_pct(), plan.energy_pct(),
        time_percent(live.cost, plan.baseline), energy_percent(live.cost, plan.baseline),
        100 * live.report.followed->share());
    EXPECT_NEAR(energy_percent(live.cost, plan.baseline), plan.energy_pct(), 0.3);
    EXPECT_LE(time_percent(live.cost, plan.baseline), 0.1);
    EXPECT_EQ(live.report.followed->share(), 1);
}

INSTANTIATE_TEST_SUITE_P(Latencies, FollowLive,
                         ::testing::Values(Duration{0}, Duration{1ms}, Duration{6ms},
                                           Duration{150ms}));

}  // namespace
}  // namespace kdvfs::tune
