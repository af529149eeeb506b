// SPDX-License-Identifier: MIT
#include <kdvfs/detail/gpu/meter_inputs.hpp>
#include <kdvfs/report.hpp>
#include <tests/gpu/rig.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <sstream>

namespace {

using namespace rig;

class Metering : public OnSimulatedGpu {
protected:
    void open(unsigned meter_every) {
        GpuOptions options = gpu_options();
        options.meter_every = meter_every;
        gpu =
            std::make_unique<BoundGpu<Policies>>(simulated::open(device, options).with<Policies>());
    }
    [[nodiscard]] Watts power_of(double milliseconds, ClockPoint cap) const {
        return operate(device.board(), work(milliseconds), cap).power;
    }
    /// Everything that the counter grew by is somewhere, once.
    static void expect_balance(const measure::EnergyTotals& totals) {
        EXPECT_NEAR(totals.together.joules.count + totals.unexplained.count, totals.counter.count,
                    1e-9 * totals.counter.count);
    }

    std::unique_ptr<BoundGpu<Policies>> gpu;
};

TEST_F(Metering, GivesEachKernelItsJoules) {
    open(1);
    for (int i = 0; i < 40; ++i) {
        launch<Slow>(*gpu, stream, [&] { device.launch(stream, work(2 + 0.1 * (i % 7))); });
        launch<Free>(*gpu, stream, [&] { device.launch(stream, work(3 - 0.1 * (i % 5))); });
        if (i % 4 == 0) {
            device.synchronize(stream);
            device.advance(3ms);
        }
    }
    device.synchronize(stream);
    device.advance(5ms);
    const auto report = gpu->report();
    for (const auto& [name, cap] : {std::pair{"slow", slow}, std::pair{"free", as_found}}) {
        const auto& line = row(report, name);
        EXPECT_EQ(line.calls, 40u);
        EXPECT_EQ(line.metered_calls, 40u);
        ASSERT_TRUE(line.energy.resolved) << name;
        const double truth = power_of(2, cap).count * line.counted_time.count();
        EXPECT_NEAR(line.energy.joules.count, truth, 0.01 * truth + line.energy.half_width.count);
        EXPECT_EQ(line.applied, cap);
        EXPECT_NEAR(line.held.count, cap == slow ? 800 : 1700, 10) << name;
    }
    expect_balance(report.totals);
    EXPECT_LT(std::abs(report.totals.unexplained.count), 0.01 * report.totals.counter.count);
}

TEST_F(Metering, OneIterationInNKeepsTheOthersJoulesApart) {
    open(4);
    double metered_seconds = 0;
    std::uint64_t metered = 0;
    for (unsigned iteration = 0; iteration < 40; ++iteration) {
        const TimePoint began = device.now();
        for (int i = 0; i < 5; ++i) {
            launch<Slow>(*gpu, stream, [&] { device.launch(stream, work(2)); });
            launch<Free>(*gpu, stream, [&] { device.launch(stream, work(1 + 0.2 * i)); });
        }
        device.synchronize(stream);
        // What runs before the first iteration is metered, too.
        if (iteration == 0 || kdvfs::is_metered_iteration(iteration - 1, 4)) {
            ++metered;
            metered_seconds += Seconds{device.now() - began}.count();
        }
        gpu->next_iteration();
    }
    device.advance(5ms);
    const auto report = gpu->report();
    EXPECT_EQ(row(report, "slow").calls, 200u);
    EXPECT_EQ(metered, 11u) << "one of each block, and the first";
    EXPECT_EQ(row(report, "slow").metered_calls, 5 * metered);
    EXPECT_EQ(report.scopes.unmetered, 400u - 10 * metered);
    const auto& totals = report.totals;
    expect_balance(totals);
    EXPECT_LE(totals.counted_time.count(), metered_seconds + 1e-3);
    EXPECT_GE(totals.counted_time.count(), 0.85 * metered_seconds);
    const double truth = device.true_energy().count;
    EXPECT_NEAR(totals.counter.count + totals.outside.count, truth, 0.02 * truth);
    EXPECT_NEAR(totals.counter.count / truth, 0.25, 0.05);
    ASSERT_TRUE(row(report, "slow").energy.resolved);
    const auto& line = row(report, "slow");
    EXPECT_NEAR(line.energy.joules.count / line.counted_time.count(), power_of(2, slow).count,
                0.02 * power_of(2, slow).count + line.energy.half_width.count);
}

/// A load of 40 W from outside that never rests, on a board whose driver shows it, or does not.
TEST(OutsideLoad, LeavesNoKernelResolvedWhereTheDriverShowsIt) {
    for (const bool listed : {true, false}) {
        simulated::DeviceOptions options = device_options();
        options.sensors.emplace();
        options.sensors->load = {
            .outside = {40}, .outside_every = 0ns, .outside_is_listed = listed};
        simulated::Device device{simulated::mi210(), options};
        simulated::Stream* const stream = device.create_stream();
        const auto gpu = simulated::open(device, gpu_options()).with<Policies>();
        for (int i = 0; i < 3000; ++i) {
            launch<Slow>(gpu, stream, [&] { device.launch(stream, work(2 + 0.1 * (i % 7))); });
            launch<Free>(gpu, stream, [&] { device.launch(stream, work(3 - 0.1 * (i % 5))); });
            device.synchronize(stream);
            gpu.next_iteration();
        }
        const auto report = gpu.report();
        EXPECT_EQ(row(report, "slow").energy.resolved, !listed);
        EXPECT_GT(report.totals.counter.count, 0);
        const auto says = [&](const char* words) {
            return std::any_of(report.notes.begin(), report.notes.end(), [&](const auto& note) {
                return note.find(words) != std::string::npos;
            });
        };
        EXPECT_EQ(says("a simulated process (2) worked on this GPU"), listed);
        EXPECT_EQ(says("a load that never rests would pass for idle power"), !listed);
        if (listed) continue;
        // The same, on a board that was left alone for a second: 40 W more than its kind draws.
        device.advance(2s);
        for (int i = 0; i < 3000; ++i) {
            launch<Slow>(gpu, stream, [&] { device.launch(stream, work(2)); });
            launch<Free>(gpu, stream, [&] { device.launch(stream, work(3)); });
            device.synchronize(stream);
            gpu.next_iteration();
        }
        const auto rested = gpu.report();
        EXPECT_FALSE(row(rested, "slow").energy.resolved);
        EXPECT_TRUE(std::any_of(rested.notes.begin(), rested.notes.end(), [](const auto& note) {
            return note.find("others of its kind at most") != std::string::npos;
        }));
    }
}

TEST_F(Metering, KernelsThatWereNeverMeteredAreListedWithTheirCalls) {
    open(100);
    gpu->next_iteration();
    launch<Middle>(*gpu, stream, [&] { device.launch(stream, work(1)); });
    device.synchronize(stream);
    const auto report = gpu->report();
    EXPECT_EQ(row(report, "middle").calls, 1u);
    EXPECT_EQ(row(report, "middle").metered_calls, 0u);
    EXPECT_EQ(row(gpu->report(), "middle").calls, 1u) << "counted at each report";
}

TEST_F(Metering, ANestedScopesTimeIsNotTheOuterOnesToo) {
    open(1);
    const TimePoint began = device.now();
    for (int i = 0; i < 50; ++i) {
        FrequencyScope<Free> outer{*gpu, stream};
        device.launch(stream, work(1 + 0.1 * (i % 3)));
        {
            FrequencyScope<Slow> inner{*gpu, stream};
            device.launch(stream, work(2));
        }
        device.launch(stream, work(1));
    }
    device.synchronize(stream);
    const Seconds took = device.now() - began;
    device.advance(5ms);
    const auto report = gpu->report();
    EXPECT_NEAR((row(report, "free").time + row(report, "slow").time).count(), took.count(),
                0.01 * took.count());
    EXPECT_EQ(row(report, "free").calls, 50u);
    const double truth = power_of(2, slow).count * row(report, "slow").counted_time.count();
    ASSERT_TRUE(row(report, "slow").energy.resolved);
    EXPECT_NEAR(row(report, "slow").energy.joules.count, truth, 0.02 * truth);
    expect_balance(report.totals);
}

TEST_F(Metering, StreamsThatOverlapShareTheJoules) {
    open(1);
    simulated::Stream* other = device.create_stream();
    for (int i = 0; i < 40; ++i) {
        launch<Free>(*gpu, stream, [&] { device.launch(stream, work(2)); });
        launch<Middle>(*gpu, other, [&] { device.launch(other, work(3)); });
    }
    device.synchronize();
    device.advance(5ms);
    const auto report = gpu->report();
    expect_balance(report.totals);
    const Seconds counted = row(report, "free").counted_time + row(report, "middle").counted_time +
                            report.totals.idle_time;
    EXPECT_NEAR(counted.count(), report.totals.counted_time.count(), 1e-6);
}

TEST_F(Metering, ALoadThatNoScopeCoversIsInNoKernel) {
    open(1);
    simulated::Stream* other = device.create_stream();
    for (int i = 0; i < 600; ++i) {
        launch<Slow>(*gpu, stream, [&] { device.launch(stream, work(2 + 0.1 * (i % 7))); });
        launch<Free>(*gpu, stream, [&] { device.launch(stream, work(3 - 0.1 * (i % 5))); });
        device.synchronize(stream);
        if (i >= 250 && i < 400) {
            device.launch(other, work(3));
            device.synchronize(other);
        }
        device.advance(3ms);
        gpu->next_iteration();
    }
    device.advance(5ms);
    const auto report = gpu->report();
    expect_balance(report.totals);
    for (const auto& [name, cap] : {std::pair{"slow", slow}, std::pair{"free", as_found}}) {
        const auto& line = row(report, name);
        ASSERT_TRUE(line.energy.resolved) << name;
        const double truth = power_of(2, cap).count * line.counted_time.count();
        EXPECT_NEAR(line.energy.joules.count, truth, 0.01 * truth + line.energy.half_width.count);
    }
}

TEST_F(Metering, ALoadThatNoScopeCoversIsUnexplained) {
    open(1);
    simulated::Stream* other = device.create_stream();
    double external = 0;
    for (int i = 0; i < 600; ++i) {
        launch<Slow>(*gpu, stream, [&] { device.launch(stream, work(2 + 0.1 * (i % 7))); });
        launch<Free>(*gpu, stream, [&] { device.launch(stream, work(3 - 0.1 * (i % 5))); });
        device.synchronize(stream);
        if (i >= 250 && i < 400) {
            const double before = device.true_energy().count;
            const TimePoint began = device.now();
            device.launch(other, work(3));
            device.synchronize(other);
            const double idle =
                idle_power(device.board(), as_found).count * Seconds{device.now() - began}.count();
            external += device.true_energy().count - before - idle;
        }
        device.advance(3ms);
        gpu->next_iteration();
    }
    device.advance(5ms);
    const auto report = gpu->report();
    expect_balance(report.totals);
    EXPECT_NEAR(report.totals.unexplained.count, external, 0.1 * external);
    EXPECT_TRUE(has_note(report, "unexplained"));
    for (const auto& [name, cap] : {std::pair{"slow", slow}, std::pair{"free", as_found}}) {
        const auto& line = row(report, name);
        ASSERT_TRUE(line.energy.resolved) << name;
        const double truth = power_of(2, cap).count * line.counted_time.count();
        EXPECT_NEAR(line.energy.joules.count, truth, 0.01 * truth + line.energy.half_width.count);
    }
    const double idle = idle_power(device.board(), as_found).count;
    EXPECT_NEAR(report.totals.idle.joules.count / report.totals.idle_time.count(), idle,
                0.05 * idle);
}

TEST_F(Metering, FindsThePeriodOfACounterThatDoesNotSayIt) {
    for (const Duration claimed : {Duration{0ns}, Duration{1ms}}) {
        simulated::DeviceOptions unknown = device_options();
        unknown.energy_counter->period = 25ms;
        unknown.claimed_counter_period = claimed;
        simulated::Device board{simulated::mi210(), unknown};
        const auto its = simulated::open(board, gpu_options()).with<Policies>();
        board.advance(1s);
        for (int i = 0; i < 10; ++i) {
            launch<Free>(its, nullptr, [&] { board.launch(nullptr, work(700 + i)); });
            board.synchronize();
            board.advance(130ms);
        }
        const auto report = its.report();
        EXPECT_TRUE(has_note(report, "found to be updated every 25.0 ms"));
        ASSERT_TRUE(row(report, "free").direct_power) << "longer than 20 periods";
        const double truth = power_of(700, as_found).count;
        EXPECT_NEAR(row(report, "free").direct_power->count, truth, 0.05 * truth);
        EXPECT_FALSE(row(report, "free").direct_disagrees);
    }
}

/// A noise-free board whose samples are further apart than the counter's updates, and one whose
/// first reading comes after the first launch: nothing is wrong with either.
TEST(Presets, RaiseNoAlarm) {
    int compared = 0;
    for (const auto& board : {simulated::mi210(), simulated::h100(), simulated::rtx_3080_ti()}) {
        simulated::Device fresh{board};
        auto* const its_stream = fresh.create_stream();
        const auto gpu =
            simulated::open(fresh, {.meter_every = 1}).with<PolicyRegistry<Default<AutoClock>>>();
        const auto gemm = roofline(board, {.matrix_flops = 4e13, .memory_bytes = 1e9});
        const auto gelu = roofline(board, {.memory_bytes = 2e11});
        for (int i = 0; i < 20; ++i) {
            gpu.next_iteration();
            launch<Middle>(gpu, its_stream, [&] { fresh.launch(its_stream, gemm); });
            launch<Free>(gpu, its_stream, [&] { fresh.launch(its_stream, gelu); });
        }
        fresh.synchronize(its_stream);
        const auto report = gpu.report();
        EXPECT_FALSE(has_note(report, "came too late")) << board.name;
        EXPECT_FALSE(has_note(report, "disagree")) << board.name;
        compared += row(report, "free").direct_power ? 1 : 0;
    }
    EXPECT_GT(compared, 0) << "with the counter's difference";
}

TEST_F(Metering, KeepClockIsListedAsKept) {
    const auto unmetered = simulated::open(device, gpu_options()).with<UnmeteredPolicies>();
    {
        FrequencyScope<Kept> scope{unmetered, stream};
        device.launch(stream, work(1));
    }
    launch<Slow>(unmetered, stream, [&] { device.launch(stream, work(1)); });
    device.synchronize(stream);
    const auto report = unmetered.report();
    EXPECT_TRUE(row(report, "kept").kept);
    EXPECT_EQ(row(report, "kept").calls, 0u) << "such a scope compiles to nothing";
    EXPECT_EQ(report.scopes.scopes, 1u);
    EXPECT_EQ(row(report, "slow").calls, 1u);
    EXPECT_EQ(row(report, "slow").metered_calls, 0u);
    std::ostringstream text;
    text << report;
    EXPECT_NE(text.str().find("kept"), std::string::npos);
}

TEST_F(Metering, TimestampsThatWereOverwrittenAreToldOf) {
    simulated::DeviceOptions small = device_options();
    small.timestamp_capacity = 16;
    simulated::Device forgetful{simulated::mi210(), small};
    GpuOptions seldom = gpu_options();
    seldom.sampler.period = 500ms;  // nor are timestamps collected in between
    const auto its = simulated::open(forgetful, seldom).with<Policies>();
    for (int i = 0; i < 41; ++i) {
        launch<Slow>(its, nullptr, [&] { forgetful.launch(nullptr, work(1)); });
    }
    forgetful.synchronize();
    const auto report = its.report();
    EXPECT_TRUE(has_note(report, "66 marker timestamps were overwritten"));
    EXPECT_EQ(row(report, "slow").metered_calls, 8u);
    // What comes later is whole again, up to the present.
    for (int i = 0; i < 4; ++i) {
        launch<Middle>(its, nullptr, [&] { forgetful.launch(nullptr, work(1)); });
    }
    forgetful.synchronize();
    forgetful.advance(1s);
    const auto later = its.report();
    EXPECT_EQ(row(later, "middle").metered_calls, 4u);
    EXPECT_GT(later.totals.idle_time, 90ms);
}

TEST_F(Metering, TimestampsAreCollectedWithoutACallFromTheLoop) {
    simulated::DeviceOptions small = device_options();
    small.timestamp_capacity = 256;
    simulated::Device busy{simulated::mi210(), small};
    const auto its = simulated::open(busy, gpu_options()).with<Policies>();
    for (int i = 0; i < 3000; ++i) {
        launch<Slow>(its, nullptr, [&] { busy.launch(nullptr, work(0.1)); });
        launch<Middle>(its, nullptr, [&] { busy.launch(nullptr, work(0.1)); });
        if (i % 10 == 9) busy.synchronize();
    }
    busy.synchronize();
    busy.advance(5ms);
    const auto report = its.report();
    EXPECT_FALSE(has_note(report, "timestamps were overwritten"));
    EXPECT_EQ(row(report, "slow").metered_calls, 3000U);
    EXPECT_EQ(row(report, "middle").metered_calls, 3000U);
    EXPECT_LT(report.totals.idle_time, 50ms) << "the GPU was never idle for long";
}

TEST_F(Metering, LostTimeIsNotIdle) {
    simulated::DeviceOptions small = device_options();
    small.timestamp_capacity = 16;
    simulated::Device forgetful{simulated::mi210(), small};
    GpuOptions options = gpu_options();
    options.sampler.period = 20ms;  // 40 timestamps
    const auto its = simulated::open(forgetful, options).with<Policies>();
    for (int i = 0; i < 500; ++i) {
        launch<Free>(its, nullptr, [&] { forgetful.launch(nullptr, work(1)); });
    }
    forgetful.synchronize();
    const auto report = its.report();
    EXPECT_TRUE(has_note(report, "timestamps were overwritten"));
    EXPECT_LT(row(report, "free").metered_calls, 400U);
    EXPECT_LT(report.totals.idle_time, 20ms) << "what was lost is of unknown content";
}

TEST_F(Metering, TimestampsThatWereOverwrittenGiveNoKernelTheTimeOfOthers) {
    simulated::DeviceOptions few = device_options();
    few.timestamp_capacity = 8;
    simulated::Device small{simulated::mi210(), few};
    GpuOptions seldom = gpu_options();
    seldom.sampler.period = 1s;  // nor are timestamps collected in between
    const auto on_small = simulated::open(small, seldom).with<Policies>();
    auto* const its_stream = small.create_stream();
    {
        FrequencyScope<Free> scope{on_small, its_stream};
        small.synchronize(its_stream);
        static_cast<void>(on_small.report());  // has read that the scope has begun
        small.launch(its_stream, work(1));
    }
    for (int i = 0; i < 100; ++i) {
        FrequencyScope<Slow> scope{on_small, its_stream};
        small.launch(its_stream, work(1));
    }
    small.synchronize(its_stream);
    for (const auto& kernel : on_small.report().rows) {
        if (kernel.kernel.name == "free") {
            EXPECT_LT(kernel.time.count(), 2e-3);
        }
    }
}

TEST_F(Metering, AGpuThatWasFoundCappedSaysSo) {
    simulated::Device capped{simulated::mi210(), device_options()};
    capped.change_clocks_as_other({{1000_MHz}, {}, "manual"});
    const auto on_capped = simulated::open(capped, gpu_options()).with<Policies>();
    auto* const its_stream = capped.create_stream();
    {
        FrequencyScope<Kept> scope{on_capped, its_stream};
        capped.launch(its_stream, work(50));
    }
    capped.synchronize(its_stream);
    const auto report = on_capped.report();
    EXPECT_EQ(row(report, "kept").applied, (ClockPoint{.core = 1000_MHz}));
}

TEST_F(Metering, JoulesOfAPartOfTheTimeSayOfWhichPart) {
    open(1);
    for (int i = 0; i < 300; ++i) {
        {
            FrequencyScope<Free> scope{*gpu, stream};
            device.launch(stream, work(10));
        }
        device.synchronize(stream);
        if (i == 50) device.meter().freeze(true);
    }
    std::ostringstream text;
    text << gpu->report();
    EXPECT_NE(text.str().find(" J +- "), std::string::npos) << text.str();
    EXPECT_NE(text.str().find(" in 0.5"), std::string::npos) << text.str();
    EXPECT_NE(text.str().find("frozen of its reads"), std::string::npos) << text.str();
}

TEST_F(Metering, ASecondTraceOnTheSameStreamEndsTheFirst) {
    open(1);
    std::ostringstream out;
    gpu->trace_to(out);
    gpu->trace_to(out);
    gpu->end_trace();
    const std::string text = out.str();
    EXPECT_LT(text.find("]}"), text.rfind("{\"displayTimeUnit\"")) << text;
}

}  // namespace
