// SPDX-License-Identifier: MIT
// Plans of segments for one GPT-3-XL iteration, run live on the simulated RTX 3080 Ti.
#include <examples/gpt3_xl/clock_points.hpp>
#include <examples/gpt3_xl/fitted_kernels.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/segments.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

using namespace std::chrono_literals;

struct SegmentScope : Kernel<"segment"> {};
using Registry = PolicyRegistry<Bind<"segment", FromPlan<AutoClock>>, Default<KeepClock>>;

constexpr Duration marker_time = 2us;

CostTable simulated_iteration(const simulated::Board& board) {
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

/// The last of three iterations: by then each begins as the one before it ended.
Cost run_live(const simulated::Board& board, const SegmentPlan& plan, Duration latency) {
    const auto launches = gpt3::launch_sequence();
    // Counter reads take no time here: a clock write may wait for one, which no plan can know.
    simulated::Device device{board,
                             {.clock_switch = simulated::uniform_switch(latency),
                              .energy_counter = simulated::EnergyCounterTraits{.period = 1ms},
                              .marker_time = marker_time}};
    GpuOptions options;
    options.listen_every = Duration{0};
    auto table = std::make_shared<PlanTable>();
    for (std::size_t s = 0; s < plan.segments.size(); ++s)
        table->set({"segment", variant(static_cast<std::uint32_t>(s))},
                   {.asks = true, .point = plan.segments[s].clock, .ungated = true});
    const auto gpu = simulated::open(device, options).with<Registry>(table);
    simulated::Stream* stream = device.create_stream();
    Cost cost;
    for (int iteration = 0; iteration < 3; ++iteration) {
        const TimePoint began = device.now();
        const Joules before = device.true_energy();
        for (std::size_t s = 0; s < plan.segments.size(); ++s) {
            FrequencyScope<SegmentScope> scope{gpu, stream, variant(static_cast<std::uint32_t>(s))};
            for (std::size_t i = plan.segments[s].first; i < plan.segments[s].last; ++i)
                device.launch(stream, gpt3::fitted_kernels[launches[i]]);
        }
        device.synchronize(stream);
        cost = {device.now() - began, device.true_energy() - before};
    }
    gpu.close();
    return cost;
}

class SegmentsLive : public ::testing::TestWithParam<Duration> {};

TEST_P(SegmentsLive, KeepWhatThePlanPromises) {
    const Duration latency = GetParam();
    const simulated::Board board = simulated::rtx_3080_ti();
    const auto sequence = gpt3::launch_sequence();
    SwitchCosts costs = uniform_switch_costs(latency);
    costs.asking = 2 * marker_time;
    costs.paused_power = simulated::idle_power(board, {});
    const SegmentPlan plan = plan_segments(
        simulated_iteration(board), {sequence.begin(), sequence.end()}, costs, strict_waste());
    const Cost live = run_live(board, plan, latency);
    std::printf(
        "simulated, latency %g ms: %zu segments, promised time %+.3f %% energy %+.3f %%, "
        "live time %+.3f %% energy %+.3f %%, one clock energy %+.3f %%, gap %.4f\n",
        Seconds{latency}.count() * 1e3, plan.segments.size(), plan.time_pct(), plan.energy_pct(),
        time_percent(live, plan.baseline), energy_percent(live, plan.baseline),
        energy_percent(plan.single, plan.baseline), plan.gap_pct);
    EXPECT_NEAR(energy_percent(live, plan.baseline), plan.energy_pct(), 0.5);
    EXPECT_LE(time_percent(live, plan.baseline), 0.005);
    EXPECT_LT(plan.energy_pct(), energy_percent(plan.single, plan.baseline));
}

INSTANTIATE_TEST_SUITE_P(Latencies, SegmentsLive,
                         ::testing::Values(Duration{0}, Duration{1ms}, Duration{6ms},
                                           Duration{150ms}));

}  // namespace
}  // namespace kdvfs::tune
