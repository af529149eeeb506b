// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/stream_track.hpp>
#include <tests/gpu/rig.hpp>

#include <optional>
#include <string>

namespace rig {
namespace {

struct Gemm : Kernel<"gemm"> {};
struct Gelu : Kernel<"gelu"> {};
using Scoped = PolicyRegistry<Bind<"gemm", AutoClock>, Bind<"gelu", CapClock<900_MHz>>>;
using UnmeteredScoped =
    PolicyRegistry<Bind<"gemm", AutoClock>, Bind<"gelu", CapClock<900_MHz>>, Unmetered>;
using Planned =
    PolicyRegistry<Bind<"gemm", AutoClock>, Bind<"gelu", Lasting<50'000, CapClock<900_MHz>>>>;
using Plain = PolicyRegistry<Default<KeepClock>>;
using UnmeteredPlain = PolicyRegistry<Default<KeepClock>, Unmetered>;

struct Ran {
    double seconds = 0;
    measure::Report report{};
};

/// Pairs of kernels of so many milliseconds on a board that takes so long to switch; nobody says
/// where an iteration begins.
template <class Registry>
Ran run(Duration latency, double milliseconds, int pairs, std::optional<Duration> given) {
    simulated::Device device{simulated::mi210(),
                             {.clock_switch = simulated::uniform_switch(latency)}};
    GpuOptions options;
    options.switch_latency = given;
    const auto gpu = simulated::open(device, options).with<Registry>();
    auto* const stream = device.create_stream();
    const TimePoint began = device.now();
    for (int i = 0; i < pairs; ++i) {
        launch<Gemm>(gpu, stream, [&] { device.launch(stream, work(milliseconds)); });
        launch<Gelu>(gpu, stream, [&] { device.launch(stream, work(milliseconds)); });
        if (i % 10 == 9) device.synchronize(stream);
    }
    device.synchronize(stream);
    return {Seconds{device.now() - began}.count(), gpu.report()};
}

TEST(CarefulGate, HoldsShortScopesBackWhateverIsKnown) {
    for (const auto given : {std::optional<Duration>{}, std::optional<Duration>{1ms}}) {
        for (const double milliseconds : {0.05, 1.0}) {
            const Ran plain = run<Plain>(1ms, milliseconds, 500, given);
            const Ran scoped = run<Scoped>(1ms, milliseconds, 500, given);
            EXPECT_EQ(scoped.report.scopes.writes, 0u) << milliseconds << " ms";
            EXPECT_EQ(scoped.report.scopes.not_worth_it, 500u);
            EXPECT_EQ(sum(scoped.report.scopes), 1000u);
            EXPECT_LT(scoped.seconds, 1.05 * plain.seconds);
        }
    }
}

TEST(CarefulGate, LetsScopesThatPayThroughOnceTheyHaveBeenSeen) {
    const Ran known = run<Scoped>(1ms, 400, 120, 1ms);
    EXPECT_GE(known.report.scopes.switches, 50u) << "all but those that were enqueued before";
    EXPECT_GT(known.report.scopes.not_worth_it, 0u) << "the first had not been seen";
    EXPECT_FALSE(has_note(known.report, "nothing to gain"));
}

TEST(CarefulGate, MeasuresTheLatencyOnceThatCanCostLittle) {
    const Ran soon = run<Scoped>(1ms, 400, 20, std::nullopt);
    EXPECT_EQ(soon.report.scopes.writes, 0u) << "400 ms would not pay at 150 ms";
    EXPECT_TRUE(has_note(soon.report, "no switching latency is known"));
    const Ran pays = run<Scoped>(1ms, 400, 150, std::nullopt);
    EXPECT_TRUE(has_note(pays.report, "found by a scope of this run: 1.")) << "listener and call";
    EXPECT_GT(pays.report.scopes.switches, 30u) << pays.report;
    const Ran plain = run<Plain>(150ms, 400, 150, std::nullopt);
    const Ran does_not = run<Scoped>(150ms, 400, 150, std::nullopt);
    EXPECT_TRUE(has_note(does_not.report, "found by a scope of this run: 150."));
    EXPECT_TRUE(has_note(does_not.report, "nothing to gain"));
    EXPECT_EQ(row(does_not.report, "gelu").scopes.switched, 1u) << "the trial";
    EXPECT_LT(does_not.seconds, 1.003 * plain.seconds);
}

TEST(CarefulGate, GivesUpATrialThatSaysNothing) {
    // Switches take longer than the scope: it only shows that.
    const Ran longer = run<Scoped>(600ms, 400, 150, std::nullopt);
    EXPECT_EQ(row(longer.report, "gelu").scopes.switched, 1u);
    EXPECT_TRUE(has_note(longer.report, "no switching latency is known"));
}

TEST(CarefulGate, SeesHowLongUnmeteredScopesLast) {
    const Ran pays = run<UnmeteredScoped>(1ms, 400, 120, 1ms);
    EXPECT_GE(pays.report.scopes.switches, 50u);
    EXPECT_TRUE(pays.report.rows.empty() || row(pays.report, "gelu").metered_calls == 0)
        << "their timestamps are of no metered time";
    const Ran does_not = run<UnmeteredScoped>(1ms, 1, 500, 1ms);
    EXPECT_EQ(does_not.report.scopes.writes, 0u);
    EXPECT_TRUE(has_note(does_not.report, "nothing to gain"));
}

TEST(CarefulGate, TrustsAPlanUnlessItKnowsBetter) {
    EXPECT_GT(run<Planned>(10us, 1, 60, std::nullopt).report.scopes.switches, 0u)
        << "the plan was made for a latency";
    EXPECT_EQ(run<Planned>(1ms, 1, 60, 1ms).report.scopes.switches, 0u);
}

TEST(CarefulGate, LetsAllThroughWhereASwitchTakesNoTime) {
    const Ran all = run<Scoped>(0ns, 0.5, 20, 0ns);
    EXPECT_EQ(all.report.scopes.not_worth_it, 0u);
    EXPECT_GT(all.report.scopes.switches, 0u);
}

TEST(CarefulGate, PutsNoMarkersWhereNothingCanPay) {
    simulated::Device device{simulated::mi210()};
    GpuOptions options;
    options.switch_latency = 10ms;
    const auto gpu = simulated::open(device, options).with<UnmeteredScoped>();
    auto* const stream = device.create_stream();
    for (int i = 0; i < 100; ++i) {
        launch<Gemm>(gpu, stream, [&] { device.launch(stream, work(1)); });
        launch<Gelu>(gpu, stream, [&] { device.launch(stream, work(1)); });
        device.synchronize(stream);
    }
    EXPECT_LE(device.markers(), 10u) << "the timestamps of the first five";
    EXPECT_TRUE(has_note(gpu.report(), "nothing to gain"));
    EXPECT_EQ(sum(gpu.report().scopes), 200u);
}

/// Scopes for the highest clocks put no markers until something lowers them.
class UnmarkedScopes : public OnSimulatedGpu {
protected:
    BoundGpu<UnmeteredPolicies> gpu =
        simulated::open(device, gpu_options()).with<UnmeteredPolicies>();
    simulated::Stream* other = device.create_stream();
};

TEST_F(UnmarkedScopes, CostNothing) {
    for (int i = 0; i < 10; ++i) {
        FrequencyScope<Free> scope{gpu, stream};
        run(stream, 1);
    }
    device.synchronize();
    EXPECT_EQ(device.markers(), 0u);
    EXPECT_EQ(sum(gpu.report().scopes), 10u);
    EXPECT_EQ(gpu.report().scopes.stream_redundant, 10u);
}

TEST_F(UnmarkedScopes, KeepTheirClockBesideALowOne) {
    {
        FrequencyScope<Free> scope{gpu, stream};
        run(stream, 5);
        run(stream, 5);
    }
    {
        FrequencyScope<Slow> scope{gpu, other};
        run(other, 1);
        run(other, 20);
    }
    device.synchronize();
    // The low stream's first probe, the two of the high one, the low stream's last.
    EXPECT_EQ(probed, (Clocks{as_found, as_found, as_found, as_found}))
        << "nothing behind the high work says that it is over";
}

TEST_F(UnmarkedScopes, KeepTheirClockWhoeverHasTheirTrackNow) {
    {
        FrequencyScope<Free> scope{gpu, stream};
        run(stream, 5);
        run(stream, 5);
    }
    for (std::size_t i = 0; i < detail::TrackTable::most_at_rest; ++i) {
        gpu.protect(device.create_stream(), {.core = 500_MHz});
    }
    {
        FrequencyScope<Slow> scope{gpu, other};
        run(other, 1);
        run(other, 20);
    }
    device.synchronize();
    EXPECT_EQ(probed, (Clocks{as_found, as_found, as_found, as_found}));
}

TEST_F(UnmarkedScopes, LetTheClockGoOnceTheyAreOver) {
    {
        FrequencyScope<Free> scope{gpu, stream};
        run(stream, 5);
    }
    {
        FrequencyScope<Slow> scope{gpu, other};
        run(other, 3000);  // a queue of two seconds is taken for the longest
        run(other, 1);
    }
    device.synchronize();
    EXPECT_EQ(probed, (Clocks{as_found, slow, slow}));
    probed.clear();
    {
        FrequencyScope<Slow> low{gpu, other};
        FrequencyScope<Free> high{gpu, stream};  // has a marker now
        run(stream, 1);
        device.synchronize();
    }
    EXPECT_EQ(probed, (Clocks{as_found}));
}

TEST_F(UnmarkedScopes, KeepTheirClockAroundALowOne) {
    FrequencyScope<Slow> beside{gpu, other};  // later than the high one in what it asks for
    device.synchronize();
    {
        FrequencyScope<Free> scope{gpu, stream};
        run(stream, 1);
        {
            FrequencyScope<Slow> low{gpu, stream};
            run(stream, 1);
        }
        run(stream, 1);
    }
    device.synchronize();
    EXPECT_EQ(probed, (Clocks{as_found, slow, as_found}));
    EXPECT_EQ(sum(gpu.report().scopes), 3u);
}

TEST_F(UnmarkedScopes, SpeakUpOnceALowOneIsEnteredInThem) {
    {
        FrequencyScope<Free> scope{gpu, stream};
        run(stream, 1);
        {
            FrequencyScope<Slow> low{gpu, stream};
            run(stream, 1);
        }
        device.synchronize();
        FrequencyScope<Middle> beside{gpu, other};
        device.synchronize();
        run(stream, 1);
        device.synchronize();
    }
    device.synchronize();
    EXPECT_EQ(probed, (Clocks{as_found, slow, as_found}));
    EXPECT_EQ(sum(gpu.report().scopes), 3u);
}

TEST_F(UnmarkedScopes, KeepTheirClockBesideARequest) {
    FrequencyScope<Free> scope{gpu, stream};
    run(stream, 1);
    const auto request = gpu.request(800_MHz);
    run(stream, 1);
    device.advance(10s);
    run(stream, 1);
    device.synchronize();
    EXPECT_EQ(probed, (Clocks{as_found, as_found, as_found})) << "it is open";
}

TEST_F(UnmarkedScopes, AreHeldToACeilingThatComesLater) {
    FrequencyScope<Free> scope{gpu, stream};
    run(stream, 1);
    device.synchronize();
    GpuOptions limited = gpu_options();
    limited.controller.never_above = middle;
    const Gpu again = simulated::open(device, limited);
    run(stream, 1);
    device.synchronize();
    EXPECT_EQ(probed, (Clocks{as_found, middle})) << "it is open";
    const FrequencyScope<Free> later{gpu, other};
    device.synchronize();
    EXPECT_GT(device.markers(), 0u);
}

struct Highest : Kernel<"highest"> {};
using ForHighest =
    PolicyRegistry<Bind<"highest", CapClock<1700_MHz>>, Bind<"free", AutoClock>, Unmetered>;

/// A ceiling is below what auto, and the highest listed clock, ask for.
TEST(Ceiling, HoldsForScopesThatAskForNoLessThanTheHighestClock) {
    simulated::Device device{simulated::mi210(), device_options()};
    GpuOptions options = gpu_options();
    options.controller.never_above = middle;
    const auto gpu = simulated::open(device, options).with<ForHighest>();
    auto* const stream = device.create_stream();
    const auto held_in = [&](const auto& scope) {
        static_cast<void>(scope);
        device.synchronize(stream);
        return device.effective_clocks();
    };
    EXPECT_EQ(held_in(FrequencyScope<Free>{gpu, stream}), middle);
    EXPECT_EQ(held_in(FrequencyScope<Highest>{gpu, stream}), middle);
    EXPECT_EQ(gpu.report().scopes.stream_redundant, 0u);
}

}  // namespace
}  // namespace rig
