// SPDX-License-Identifier: MIT
// Gaps of an iteration as positions of a plan: what an oracle would save, what the plan promises,
// and what the scopes of a program keep of it on the simulated H100.
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/segments.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <tuple>
#include <vector>

namespace kdvfs::tune {
namespace {

using namespace std::chrono_literals;

struct Step : Kernel<"step"> {};
using Registry = PolicyRegistry<Bind<"step", FromPlan<AutoClock>>>;

/// Compute-bound: each lower clock is slower.
simulated::KernelModel step_of(Seconds time) {
    simulated::KernelModel kernel;
    kernel.core_time = time;
    kernel.core_energy = Watts{250} * time;
    return kernel;
}

std::vector<ClockPoint> clocks() {
    std::vector<ClockPoint> points{ClockPoint{}};
    for (const std::uint32_t mhz : {345U, 600U, 900U, 1200U, 1500U, 1740U})
        points.push_back({{mhz}, auto_clock});
    return points;
}

CostTable table_of(const simulated::Board& board, const simulated::KernelModel& kernel) {
    Profile profile{"simulated " + board.name};
    for (const ClockPoint clock : clocks()) {
        const auto point = simulated::operate(board, kernel, clock);
        profile.add({{"step", {}}, clock, {point.time, point.power * point.time}});
    }
    return mean_costs(profile);
}

GapModel gaps_of(const simulated::Board& board) {
    GapModel gaps;
    gaps.idle_power = [board](ClockPoint clock) { return simulated::idle_power(board, clock); };
    return gaps;
}

/// The host: when it launches, in an iteration.
struct Program {
    int launches = 1;
    Duration gap{0};   ///< behind the iteration's last launch, after it was waited for
    Duration tick{0};  ///< if not 0, launches come so far apart, whatever kernels take
    int iterations = 6;
};

/// What an iteration costs as found, or by a plan; the first two are left out.
Cost run_live(const simulated::Board& board, const simulated::KernelModel& kernel,
              const Program& program, Duration latency, const SegmentPlan* plan) {
    simulated::Device device{board,
                             {.clock_switch = simulated::uniform_switch(latency),
                              .energy_counter = simulated::EnergyCounterTraits{.period = 1ms}}};
    GpuOptions options;
    options.switch_latency = latency;
    options.meter_every = 1'000'000;
    auto table = std::make_shared<PlanTable>();
    if (plan != nullptr) table->follow(plan->sequence);
    const auto gpu = simulated::open(device, options).with<Registry>(table);
    simulated::Stream* stream = device.create_stream();
    TimePoint began{};
    Joules before{};
    const int warm = program.tick > 0ns ? 8 : 3;  // until the first requests have arrived
    for (int iteration = 0; iteration < warm + program.iterations; ++iteration) {
        if (iteration == warm) began = device.now(), before = device.true_energy();
        gpu.next_iteration();
        for (int launch = 0; launch < program.launches; ++launch) {
            const TimePoint next = device.now() + program.tick;
            {
                FrequencyScope<Step> scope{gpu, stream};
                device.launch(stream, kernel);
            }
            if (program.tick > 0ns) device.advance(next - device.now());
        }
        if (program.tick > 0ns) continue;
        device.synchronize(stream);
        device.advance(program.gap);
    }
    const Cost cost{Seconds{device.now() - began} / program.iterations,
                    (device.true_energy() - before) * (1.0 / program.iterations)};
    gpu.close();
    return cost;
}

double saved_pct(const Cost& cost, const Cost& base) {
    return 100 * (1 - cost.energy / base.energy);
}

/// Kernels of 1 ms, a gap behind ten of them, and how long a switch takes.
class LongGaps : public ::testing::TestWithParam<std::tuple<Duration, Duration>> {};

TEST_P(LongGaps, SaveWhatAnOracleDoesAtNoSlowdown) {
    const auto [gap, latency] = GetParam();
    const simulated::Board board = simulated::h100();
    const simulated::KernelModel kernel = step_of(Seconds{1e-3});
    constexpr int launches = 10;
    const CostTable table = table_of(board, kernel);
    ProgramLaunches program{std::vector<std::size_t>(launches, 0), {}, {}};
    program.gaps.assign(launches, Seconds{0});
    program.gaps.front() = gap;
    SwitchCosts costs = uniform_switch_costs(latency);
    costs.asking = simulated::DeviceOptions{}.marker_time;
    costs.paused_power = simulated::idle_power(board, {});
    const SegmentPlan plan =
        plan_segments(table, program, costs, relaxed_waste(1e-3), gaps_of(board));

    // The oracle: a request at a time of its own, one at a time, and none that arrives in a kernel.
    // The low clock holds from its arrival to the gap's end.
    const Seconds work = launches * simulated::operate(board, kernel, {}).time;
    const Seconds late = std::max(Seconds{latency} - work, Seconds{0});
    const bool possible = Seconds{gap} - Seconds{latency} >=
                          std::max(Seconds{0}, late);  // the raise is asked for once it holds
    const Seconds low = possible ? Seconds{gap} - late : Seconds{0};
    const Watts idle = simulated::idle_power(board, {});
    const Joules whole = simulated::operate(board, kernel, {}).power * work + idle * Seconds{gap};
    const double oracle_pct =
        100 * ((idle - simulated::idle_power(board, {{345}, auto_clock})) * low / whole);

    const Program host{launches, gap, 0ns, 6};
    const Cost base = run_live(board, kernel, host, latency, nullptr);
    const Cost live = run_live(board, kernel, host, latency, &plan);
    std::printf(
        "simulated, gap %g ms, latency %g ms: oracle %.3f %%, plan %.3f %%, live %.3f %% "
        "energy at %+.3f %% time, %zu segments\n",
        Seconds{gap}.count() * 1e3, Seconds{latency}.count() * 1e3, oracle_pct, -plan.energy_pct(),
        saved_pct(live, base), time_percent(live, base), plan.segments.size());
    EXPECT_GE(-plan.energy_pct(), 0.9 * oracle_pct);
    EXPECT_GE(saved_pct(live, base), 0.9 * oracle_pct - 1e-9);
    EXPECT_LE(time_percent(live, base), 0.1);
}

INSTANTIATE_TEST_SUITE_P(All, LongGaps,
                         ::testing::Combine(::testing::Values(Duration{5ms}, Duration{20ms},
                                                              Duration{80ms}, Duration{200ms}),
                                            ::testing::Values(Duration{1ms}, Duration{10ms},
                                                              Duration{50ms})));

/// Kernels of 10 us, one each 100 us, whatever they take.
class HostBound : public ::testing::TestWithParam<Duration> {};

TEST_P(HostBound, KernelsAreSlowerByWhatTheyAreWaitedFor) {
    const Duration latency = GetParam();
    const simulated::Board board = simulated::h100();
    const simulated::KernelModel kernel = step_of(Seconds{10e-6});
    constexpr int launches = 200;
    const Seconds tick{100e-6};
    const CostTable table = table_of(board, kernel);
    const Seconds fast = simulated::operate(board, kernel, {}).time;
    ProgramLaunches program{
        std::vector<std::size_t>(launches, 0), std::vector<Seconds>(launches, tick - fast), {}};
    // Two recordings tell that the host sets the times.
    const ClockPoint slow_clock{{900}, auto_clock};
    const Seconds slow = simulated::operate(board, kernel, slow_clock).time;
    GapModel gaps = gaps_of(board);
    gaps.host_bound = host_bound_gaps(program.gaps, std::vector<Seconds>(launches, tick - slow),
                                      std::vector<Seconds>(launches, slow - fast));
    EXPECT_EQ(std::count(gaps.host_bound.begin(), gaps.host_bound.end(), true), launches);
    const SegmentPlan plan =
        plan_segments(table, program, uniform_switch_costs(latency), relaxed_waste(1e-3), gaps);

    Joules best = simulated::idle_power(board, {}) * tick + Joules{1e9};
    Joules whole{};
    for (const ClockPoint clock : clocks()) {
        const auto point = simulated::operate(board, kernel, clock);
        const Joules joules =
            point.power * point.time + simulated::idle_power(board, clock) * (tick - point.time);
        if (clock == ClockPoint{}) whole = joules;
        if (point.time <= tick) best = std::min(best, joules);
    }
    const double oracle_pct = 100 * (1 - best / whole);
    const Program host{launches, 0ns, 100us, 10};
    const Cost base = run_live(board, kernel, host, latency, nullptr);
    const Cost live = run_live(board, kernel, host, latency, &plan);
    std::printf(
        "simulated, kernels of 10 us, gaps of 90 us, latency %g ms: oracle %.3f %%, plan "
        "%.3f %%, live %.3f %% energy at %+.3f %% time\n",
        Seconds{latency}.count() * 1e3, oracle_pct, -plan.energy_pct(), saved_pct(live, base),
        time_percent(live, base));
    EXPECT_GE(-plan.energy_pct(), 0.9 * oracle_pct);
    EXPECT_GE(saved_pct(live, base), 0.9 * oracle_pct - 1e-9);
    EXPECT_LE(time_percent(live, base), 0.1);
}

INSTANTIATE_TEST_SUITE_P(All, HostBound,
                         ::testing::Values(Duration{1ms}, Duration{10ms}, Duration{50ms}));

TEST(Gaps, OfAProgramThatWaitsForItsKernelsAreNotHostBound) {
    const std::vector<Seconds> gaps(8, Seconds{90e-6});
    const std::vector<Seconds> slower(8, Seconds{12e-6});
    const auto bound = host_bound_gaps(gaps, gaps, slower);
    EXPECT_EQ(std::count(bound.begin(), bound.end(), true), 0);
    EXPECT_THROW(host_bound_gaps(gaps, gaps, {}), Error);
}

TEST(Gaps, ABurstSharesTheSlackOfTheGapBehindIt) {
    const simulated::Board board = simulated::h100();
    const simulated::KernelModel kernel = step_of(Seconds{100e-6});
    // Eight launches of 100 us, then the host comes after 1.2 ms.
    ProgramLaunches program{std::vector<std::size_t>(8, 0), {}, {}};
    program.gaps.assign(8, Seconds{0});
    program.gaps.front() = Seconds{1.2e-3} - 8 * simulated::operate(board, kernel, {}).time;
    GapModel gaps = gaps_of(board);
    gaps.host_bound.assign(8, false);
    gaps.host_bound.front() = true;
    gaps.shortest = Seconds{1};
    const CostTable table = table_of(board, kernel);
    const SegmentPlan plan =
        plan_segments(table, program, uniform_switch_costs(Seconds{1}), strict_waste(), gaps);
    // 1.5 times as long is 1320 MHz: of those measured, 1500 is in time, 1200 is not.
    ASSERT_EQ(plan.segments.size(), 1U);
    EXPECT_EQ(plan.segments.front().clock, (ClockPoint{{1500}, auto_clock}));
    EXPECT_NEAR(plan.baseline.time.count(), 1.2e-3, 1e-9);
}

TEST(Gaps, IdlePowerIsReadByClock) {
    std::istringstream file{"core_mhz,idle_w\n210,44.5\n1410,67.5\n810,46\n"};
    const auto idle = read_idle_power(file, "idle.csv");
    const auto at = [&](std::uint32_t mhz) { return idle({{mhz}, {1215}}).count; };
    EXPECT_DOUBLE_EQ(at(100), 44.5);
    EXPECT_DOUBLE_EQ(at(810), 46);
    EXPECT_DOUBLE_EQ(at(1110), 56.75);
    EXPECT_DOUBLE_EQ(at(2000), 67.5);
    EXPECT_DOUBLE_EQ(idle({}).count, 67.5);
    std::istringstream twice{"core_mhz,idle_w\n210,44.5\n210,67.5\n"};
    EXPECT_THROW(read_idle_power(twice, "idle.csv"), Error);
    std::istringstream negative{"core_mhz,idle_w\n210,-1\n"};
    EXPECT_THROW(read_idle_power(negative, "idle.csv"), Error);
}

}  // namespace
}  // namespace kdvfs::tune
