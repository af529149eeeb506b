// SPDX-License-Identifier: MIT
// Steps of an engine on the simulated GPU: their clocks, their joules, what they cost the host.
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/serve/step_scope.hpp>

#include <tests/gpu/rig.hpp>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace {
std::atomic<std::uint64_t> allocations{0};
}

// Counted, to show that a step allocates nothing. Not inlined: the compiler would take `free` for
// a mistake where it sees it behind its own `new`.
[[gnu::noinline]] void* operator new(std::size_t size) {
    ++allocations;
    if (void* memory = std::malloc(size)) return memory;
    throw std::bad_alloc{};
}
// What std::stable_sort allocates by, and frees by the operators below.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    ++allocations;
    return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace kdvfs::serve {
namespace {

using namespace rig;

constexpr Seconds forever{std::numeric_limits<double>::infinity()};
constexpr ClockPoint at_1700{.core = {1700}};

/// Steps whose prompts follow the core clock and whose decode does not: 30 ms and 10 ms.
StepPlan plan_of_steps(StepPolicy policy) {
    std::vector<StepRow> rows;
    for (const std::uint32_t mhz : {800U, 1100U, 1700U}) {
        const double speed = mhz / 1700.0;
        for (const std::uint32_t tokens : {1U, 512U})
            rows.push_back({Phase::prefill,
                            1,
                            tokens,
                            {mhz},
                            {Seconds{tokens * 6e-5 / speed}, Joules{0.01 * tokens * (1 + speed)}}});
        for (const std::uint32_t sequences : {1U, 64U})
            for (const std::uint32_t context : {1U, 4096U})
                rows.push_back(
                    {Phase::decode, sequences, context, {mhz}, {Seconds{0.01}, Joules{1 + speed}}});
    }
    StepLoad load{StepBuckets{}};
    for (int phase = 0; phase < 10; ++phase) {
        for (int step = 0; step < 10; ++step) load.add({512, 8, 1000}, Seconds{0.04});
        for (int step = 0; step < 40; ++step) load.add({0, 8, 1000}, Seconds{0.01});
    }
    StepTargets targets;
    targets.policy = policy;
    StepPlan plan = make_step_plan(StepTable{rows}, load, targets);
    EXPECT_EQ(plan.reason(), "");
    EXPECT_EQ(plan.idle_clock(), Megahertz{800});
    return plan;
}

class StepScopes : public OnSimulatedGpu {
protected:
    void open(StepPolicy policy = StepPolicy::no_harm) {
        gpu.emplace(simulated::open(device, gpu_options()), plan_of_steps(policy));
    }
    void step(StepShape shape, Seconds slack = forever, double milliseconds = 10) {
        const StepScope scope{*gpu, stream, shape, slack};
        run(stream, milliseconds);
    }

    static constexpr StepShape decode{0, 8, 1000};
    static constexpr StepShape prompts{512, 8, 1000};
    std::optional<PlannedGpu> gpu;
};

TEST_F(StepScopes, TheClockFollowsThePhaseAndStaysBetweenStepsAlike) {
    open();
    for (int i = 0; i < 3; ++i) step(decode);
    for (int i = 0; i < 2; ++i) step(prompts);
    step(decode);
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{slow, slow, slow, at_1700, at_1700, slow}));
    device.advance(20ms);
    EXPECT_EQ(device.effective_clocks(), slow) << "held while the engine thinks";
    const measure::Report report = gpu->report();
    EXPECT_EQ(report.scopes.switches, 3U);
    EXPECT_EQ(report.scopes.followed, 3U) << "they asked for what was held";
    EXPECT_EQ(sum(report.scopes), report.scopes.scopes);
    gpu.reset();
    device.advance(1ms);
    EXPECT_EQ(device.effective_clocks(), as_found);
}

/// As a sweep's blocks and a raised floor decide: not always alike for steps that are.
TEST_F(StepScopes, AStepRunsAtTheClockDecidedForIt) {
    open();
    StepDecision decision = gpu->plan().decide(decode, forever);
    for (const Megahertz clock : {Megahertz{1700}, Megahertz{800}, Megahertz{1700}}) {
        decision.clock = clock;
        const StepScope scope{*gpu, stream, decode, decision};
        run(stream, 10);
    }
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{at_1700, slow, at_1700}));
}

TEST_F(StepScopes, AnIdleBoardHasThePlansIdleClock) {
    open();
    step(prompts);
    gpu->rest(stream);
    device.synchronize(stream);
    device.advance(1ms);
    EXPECT_EQ(device.effective_clocks(), slow);
}

/// As a sweep's blocks decide: what an idle board draws is known by their clocks, too.
TEST_F(StepScopes, AnIdleBoardHasTheClockDecidedForIt) {
    open();
    step(prompts);
    for (const Megahertz clock : {Megahertz{800}, auto_clock, Megahertz{1700}}) {
        {
            const StepScope idle{*gpu, stream, {}, StepDecision{clock, {}, false}};
            device.synchronize(stream);
        }
        device.advance(1ms);
        EXPECT_EQ(device.effective_clocks(), ClockPoint{.core = clock});
    }
    EXPECT_EQ(gpu->phases(gpu->report()).size(), 1U) << "idle time is no step";
}

TEST_F(StepScopes, AShortSlackGetsTheBoardsOwnClock) {
    open(StepPolicy::by_step);
    // Minutes in which no prompt was near its target; a step without prompts catches up.
    for (int i = 0; i < 6000; ++i) {
        const StepScope scope{*gpu, stream, prompts, forever};
        static_cast<void>(scope);
    }
    step(decode);
    const auto urgent_steps = [&] {
        for (const PhaseReport& phase : gpu->phases(gpu->report()))
            if (phase.phase == Phase::mixed) return phase.urgent_steps;
        return std::uint64_t{0};
    };
    const std::uint64_t before = urgent_steps();
    probed.clear();
    step(prompts, forever);
    step(prompts, Seconds{0});
    step({100'000, 8, 1000}, forever);  // never measured
    device.synchronize(stream);
    ASSERT_GE(probed.size(), 3U);
    const auto* last = &probed[probed.size() - 3];
    EXPECT_LT(last[0].core, Megahertz{1700});
    EXPECT_NE(last[0], as_found);
    EXPECT_EQ(last[1], as_found);
    EXPECT_EQ(last[2], as_found);
    EXPECT_EQ(urgent_steps() - before, 2U);
}

TEST_F(StepScopes, AReplayedGraphRunsAtItsStepsClock) {
    open();
    device.begin_capture(stream);
    run(stream, 5);
    {
        // A clock that is held beyond the scope has no place in a graph.
        EXPECT_THROW(const StepScope scope(*gpu, stream, decode, forever), Error);
    }
    const simulated::Graph graph = device.end_capture(stream);
    for (const StepShape shape : {decode, prompts, decode, decode}) {
        const StepScope scope{*gpu, stream, shape, forever};
        device.launch(stream, graph);
    }
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{slow, at_1700, slow, slow}));
}

TEST_F(StepScopes, JoulesGoToTheTokensOfTheStep) {
    open();
    for (int round = 0; round < 30; ++round) {
        for (int i = 0; i < 6; ++i) step(decode, forever, 9 + 0.3 * (round % 7));
        step(prompts, forever, 30 + 0.5 * (round % 5));
        device.synchronize(stream);
        device.advance(3ms);
    }
    const auto phases = gpu->phases(gpu->report());
    ASSERT_EQ(phases.size(), 2U);
    EXPECT_EQ(phases[0].phase, Phase::decode);
    EXPECT_EQ(phases[0].steps, 180U);
    EXPECT_EQ(phases[0].tokens, 180U * 8);
    EXPECT_EQ(phases[1].phase, Phase::mixed);
    EXPECT_EQ(phases[1].prompt_tokens, 30U * 512);
    double decode_joules = 0, mixed_joules = 0;
    for (int round = 0; round < 30; ++round) {
        const auto joules = [&](double milliseconds, ClockPoint clock) {
            const auto point = operate(device.board(), work(milliseconds), clock);
            return (point.power * point.time).count;
        };
        decode_joules += 6 * joules(9 + 0.3 * (round % 7), slow);
        mixed_joules += joules(30 + 0.5 * (round % 5), at_1700);
    }
    for (const auto& [phase, truth] : {std::pair{phases[0], decode_joules / (180 * 8)},
                                       std::pair{phases[1], mixed_joules / (30 * 520)}}) {
        ASSERT_TRUE(phase.joules_per_token);
        std::cout << to_string(phase) << "; simulated truth " << truth << '\n';
        EXPECT_NEAR(*phase.joules_per_token, truth, 0.02 * truth);
        EXPECT_GT(phase.resolved_share, 0.99);
    }
}

TEST_F(StepScopes, WithoutAStreamTheHostsOrderCounts) {
    open();
    const auto clock_of = [&](StepShape shape) {
        const StepScope scope{*gpu, shape, forever};
        device.advance(1ms);
        return device.effective_clocks();
    };
    EXPECT_EQ(clock_of(decode), slow);
    EXPECT_EQ(clock_of(prompts), at_1700);
    EXPECT_EQ(clock_of(decode), slow);
    step(decode);
    EXPECT_EQ(clock_of(prompts), at_1700);
    gpu->rest();
    device.advance(1ms);
    EXPECT_EQ(device.effective_clocks(), slow);
    EXPECT_EQ(gpu->phases(gpu->report())[0].steps, 3U);
    gpu.reset();
    device.advance(1ms);
    EXPECT_EQ(device.effective_clocks(), as_found);
}

TEST_F(StepScopes, AMeasuredGpuIsCountedAndLeftAlone) {
    GpuOptions options = gpu_options();
    options.on_refused = OnRefused::measure_only;
    device.faults().inject(simulated::Call::apply, simulated::Fault::refused);
    gpu.emplace(simulated::open(device, options), plan_of_steps(StepPolicy::no_harm));
    step(decode);
    step(prompts);
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{as_found, as_found}));
    EXPECT_EQ(gpu->report().scopes.measured, 2U);
}

TEST_F(StepScopes, ClocksThatTheDeviceDoesNotListAreRefused) {
    const Gpu plain = simulated::open(device, gpu_options());
    std::vector<StepRow> rows;
    for (const std::uint32_t mhz : {1000U, 99'999U}) {
        rows.push_back({Phase::prefill, 1, 1, {mhz}, {Seconds{1}, Joules{1}}});
        rows.push_back({Phase::decode, 1, 1, {mhz}, {Seconds{1}, Joules{1}}});
    }
    StepLoad load{StepBuckets{}};
    load.add({0, 1, 1}, Seconds{1});
    const StepPlan plan = make_step_plan(StepTable{rows}, load, {});
    EXPECT_THROW((PlannedGpu{plain, plan}), Error);
}

TEST_F(StepScopes, DoNothingInAForkedChild) {
    open();
    step(decode);
    device.synchronize(stream);
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 300; ++i) step(prompts);
        for (const StepShape shape : {prompts, decode}) const StepScope hosted{*gpu, shape};
        gpu->rest();
        gpu.reset();
        device.synchronize(stream);
        _exit(device.effective_clocks() == slow ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

/// Decode steps of 2 ms, one every 10 ms, as the host sets them: the clock of least energy that
/// keeps up with the host, in the steps and in what the GPU waits between them, and in rests.
TEST(StepScope, HostBoundDecodeSavesWhatItsBestClockDoesAtNoDelay) {
    const simulated::Board board = simulated::h100();
    constexpr Duration tick = 10ms;
    simulated::KernelModel kernel;
    kernel.core_time = Seconds{2e-3};
    kernel.core_energy = Joules{0.5};
    const auto at_clock = [&](ClockPoint clock) {
        const auto point = simulated::operate(board, kernel, clock);
        const Seconds waits = std::max(Seconds{tick} - point.time, Seconds{0});
        return StepRow{Phase::decode,
                       1,
                       1,
                       clock.core,
                       {point.time + waits,
                        point.power * point.time + simulated::idle_power(board, clock) * waits}};
    };
    std::vector<StepRow> rows;
    for (const std::uint32_t mhz : {345U, 600U, 900U, 1200U, 1500U, board.core_max.count})
        for (const std::uint32_t sequences : {1U, 64U})
            for (const std::uint32_t context : {1U, 4096U}) {
                rows.push_back(at_clock({.core = {mhz}}));
                rows.back().batch = sequences;
                rows.back().context = context;
            }
    const StepRow top = rows.back();
    double least = top.cost.energy.count;
    for (const StepRow& row : rows)
        if (row.cost.time <= top.cost.time * (1 + 1e-9))
            least = std::min(least, row.cost.energy.count);
    const auto live = [&](bool planned) {
        simulated::Device device{board, {.clock_switch = simulated::uniform_switch(1ms)}};
        simulated::Stream* stream = device.create_stream();
        GpuOptions options;
        options.switch_latency = 1ms;
        options.meter_every = 1'000'000;
        StepLoad load{StepBuckets{}};
        for (int i = 0; i < 100; ++i) load.add({0, 8, 1000}, Seconds{tick});
        StepTargets targets;
        targets.gap = Seconds{10.5e-3};
        const PlannedGpu gpu{
            simulated::open(device, options),
            planned ? make_step_plan(StepTable{rows}, load, targets) : own_clock_plan()};
        Joules before{};
        TimePoint began{};
        for (int i = 0; i < 220; ++i) {
            if (i == 20) before = device.true_energy(), began = device.now();
            const TimePoint next = device.now() + tick;
            {
                const StepScope step{gpu, stream, {0, 8, 1000}};
                device.launch(stream, kernel);
            }
            device.synchronize(stream);
            device.advance(std::max(next - device.now(), Duration{0}));
            if (i % 50 != 49) continue;
            gpu.rest(stream);
            device.advance(100ms);
        }
        return std::pair{Seconds{device.now() - began}, device.true_energy() - before};
    };
    const auto as_found = live(false);
    const auto by_plan = live(true);
    const double saved = 100 * (1 - by_plan.second / as_found.second);
    const double best = 100 * (1 - least / top.cost.energy.count);
    const double slower = 100 * (by_plan.first / as_found.first - 1);
    std::printf(
        "simulated, host-bound decode with rests: saves %.2f %% at %+.3f %% time; the best "
        "clock saves %.2f %% of the steps\n",
        saved, slower, best);
    EXPECT_GT(best, 20);
    EXPECT_GT(saved, 0.9 * best);
    EXPECT_LT(slower, 0.1);
}

TEST(StepScope, DecidesInTwoMicrosecondsAndAllocatesNothing) {
    simulated::Device device{simulated::mi210(), device_options()};
    GpuOptions options = gpu_options();
    options.meter_every = 1'000'000;
    const PlannedGpu gpu{simulated::open(device, options), plan_of_steps(StepPolicy::by_step)};
    simulated::Stream* stream = device.create_stream();
    constexpr std::uint32_t rounds = 20'000;
    const auto steps = [&] {
        for (std::uint32_t i = 0; i < rounds; ++i) {
            FirstTokenSlack slack{gpu.plan(), 8, 1000};
            slack.prompt(400, Seconds{9});
            const StepScope scope{gpu, stream, {0, 1 + i % 60, 500 + i % 3000}, slack.value()};
        }
    };
    gpu.next_iteration();  // the first is always metered
    steps();               // each variant's first step
    const std::uint64_t before = allocations;
    const std::clock_t begin = std::clock();
    steps();
    const double each = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / rounds;
    std::cout << "step scope: " << each * 1e9 << " ns, " << allocations - before
              << " allocations in " << rounds << " steps\n";
    EXPECT_EQ(allocations, before);
    // Without a stream, phase by phase: each decision is another request.
    const auto hosted = [&] {
        for (std::uint32_t i = 0; i < 100; ++i)
            const StepScope scope{gpu, {i % 2 == 0 ? 400U : 0U, 8, 1000}, forever};
    };
    hosted();
    const std::uint64_t hosted_before = allocations;
    hosted();
    EXPECT_EQ(allocations, hosted_before);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(each, 2e-6);
#endif
}

}  // namespace
}  // namespace kdvfs::serve
