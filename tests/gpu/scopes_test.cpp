// SPDX-License-Identifier: MIT
#include <tests/gpu/rig.hpp>

#include <optional>
#include <sstream>
#include <stdexcept>
#include <type_traits>

namespace {

using namespace rig;

static_assert(!std::is_move_constructible_v<FrequencyScope<Slow>>, "a scope stays where it began");
static_assert(std::is_nothrow_destructible_v<FrequencyScope<Slow>>, "leaving never throws");

class Scopes : public OnSimulatedGpu {
protected:
    BoundGpu<Policies> gpu = simulated::open(device, gpu_options()).with<Policies>();
};

TEST_F(Scopes, AskWhenTheStreamGetsThereAndTheHostNeverWaits) {
    run(stream, 1);
    {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 1);
    }
    run(stream, 1);
    EXPECT_EQ(device.now(), TimePoint{}) << "the host has waited";
    EXPECT_TRUE(device.effective_clocks().is_auto()) << "asked for before the stream got there";
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{as_found, slow, as_found}));
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

TEST_F(Scopes, GiveBackTheEnclosingScopesClock) {
    {
        FrequencyScope<Slow> outer{gpu, stream};
        run(stream, 1);
        {
            FrequencyScope<Middle> inner{gpu, stream};
            run(stream, 1);
            FrequencyScope<Kept> kept{gpu, stream};
            run(stream, 1);
        }
        run(stream, 1);
        {
            FrequencyScope<Free> inner{gpu, stream};
            run(stream, 1);
        }
        run(stream, 1);
    }
    run(stream, 1);
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{slow, middle, middle, slow, as_found, slow, as_found}));
}

TEST_F(Scopes, MayBeLeftInAnyOrder) {
    auto first = std::make_unique<FrequencyScope<Slow>>(gpu, stream);
    auto second = std::make_unique<FrequencyScope<Middle>>(gpu, stream);
    run(stream, 1);
    first.reset();
    run(stream, 1);
    second.reset();
    run(stream, 1);
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{middle, middle, as_found}));
    device.advance(5ms);
    const auto report = gpu.report();
    EXPECT_EQ(row(report, "slow").metered_calls, 1u);
    EXPECT_EQ(row(report, "middle").metered_calls, 1u);
}

TEST_F(Scopes, OfSeveralStreamsAreArbitratedHighestFirst) {
    simulated::Stream* other = device.create_stream();
    {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 4);
    }
    device.launch(other, work(1));
    {
        FrequencyScope<Middle> scope{gpu, other};
        run(other, 1);
    }
    device.launch(other, work(0.5));
    probe(other);
    device.synchronize();
    // The other stream's probes come first: within its scope, behind it, then the long one's end.
    EXPECT_EQ(probed, (Clocks{middle, slow, slow}));
}

TEST_F(Scopes, NeverSlowAProtectedStream) {
    simulated::Stream* other = device.create_stream();
    gpu.protect(other);
    {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 1);
    }
    device.synchronize();
    EXPECT_EQ(probed, (Clocks{as_found}));
}

TEST_F(Scopes, ThatRaiseInsideALowOneAreAlwaysWorthIt) {
    GpuOptions gated = gpu_options();
    gated.switch_latency = 10ms;
    simulated::Device other{simulated::mi210(), device_options()};
    const auto on_other = simulated::open(other, gated).with<Policies>();
    auto* const its_stream = other.create_stream();
    for (int i = 0; i < 5; ++i) {
        FrequencyScope<Slow> low{on_other, its_stream};
        other.launch(its_stream, work(5000));  // worth a switch of 10 ms
        {
            FrequencyScope<Free> high{on_other, its_stream};
            other.launch(its_stream, work(5));
        }
        other.synchronize(its_stream);
    }
    const auto report = on_other.report();
    EXPECT_EQ(row(report, "free").scopes.not_worth_it, 0u);
    EXPECT_GT(row(report, "free").scopes.switched, 0u);
}

TEST_F(Scopes, OfEveryShapeHaveTheirClocksCheckedBeforeTheRun) {
    using Wrong = PolicyRegistry<
        Bind<"slow", ByVariant<OnVariant<3, CapClock<9999_MHz>>, Otherwise<AutoClock>>>>;
    using OtherArch = PolicyRegistry<
        Bind<"slow", ByArch<OnArch<"gfx942", CapClock<9999_MHz>>, Otherwise<AutoClock>>>>;
    const auto other = simulated::open(device, gpu_options());
    EXPECT_THROW(static_cast<void>(other.with<Wrong>()), Error);
    EXPECT_NO_THROW(static_cast<void>(other.with<OtherArch>()));
}

static_assert(!std::is_convertible_v<simulated::Stream**, StreamRef>,
              "a handle's address is not the handle");

TEST(Options, ThatWouldNeverVerifyAreRefused) {
    simulated::Device device{simulated::mi210()};
    GpuOptions never;
    never.controller.verify_every = Duration::zero();
    EXPECT_THROW(static_cast<void>(simulated::open(device, never)), Error);
}

TEST_F(Scopes, AreVerifiedNeverWhereTheOptionsSayTheLongestTime) {
    GpuOptions never = gpu_options();
    for (Duration* time : {&never.controller.verify_every, &never.ack_deadline,
                           &never.controller.first_retry_after, &never.sampler.resting_period}) {
        *time = Duration::max();
    }
    simulated::Device other{simulated::mi210(), device_options()};
    auto* const its_stream = other.create_stream();
    const auto its_gpu = simulated::open(other, never).with<Policies>();
    {
        FrequencyScope<Slow> scope{its_gpu, its_stream};
        other.launch(its_stream, work(1));
        other.advance(100ms);
        EXPECT_EQ(other.read_clock_state().cap, slow);
        other.change_clocks_as_other({.cap = middle, .floor = {}, .mode = "manual"});
        other.advance(10s);
        its_gpu.check();  // nobody has looked
    }
    other.advance(100ms);
}

TEST_F(Scopes, CloseOnce) {
    FrequencyScope<Slow> scope{gpu, stream};
    run(stream, 1);
    scope.close();
    scope.close();
    run(stream, 1);
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{slow, as_found}));
    EXPECT_EQ(gpu.report().scopes.scopes, 1u);
}

TEST_F(Scopes, AreLeftByExceptions) {
    const auto fail = [&] { throw std::runtime_error("user's own"); };
    EXPECT_THROW(launch<Slow>(gpu, stream, fail), std::runtime_error);
    run(stream, 1);
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{as_found}));
    EXPECT_NO_THROW(gpu.check());
    EXPECT_EQ(sum(gpu.report().scopes), 1u);
}

TEST_F(Scopes, LaunchReturnsWhatTheWorkReturns) {
    EXPECT_EQ(launch<Slow>(gpu, stream, variant(2), [] { return 7; }), 7);
}

TEST_F(Scopes, OnAStreamOfAnotherDeviceAreAnError) {
    simulated::Device stranger{simulated::mi210()};
    simulated::Stream* theirs = stranger.create_stream();
    EXPECT_THROW((void)(FrequencyScope<Slow>{gpu, theirs}), Error);
    EXPECT_EQ(gpu.report().scopes.scopes, 0u);
}

TEST_F(Scopes, LeaveTheBoardAsItWasFoundNotOnAuto) {
    gpu.close();
    const ClockState found{.cap = {.core = {1500}}, .floor = {}, .mode = "manual"};
    device.change_clocks_as_other(found);
    GpuOptions options = gpu_options();
    options.controller.may_leave_found_limits = true;
    const auto again = simulated::open(device, options).with<Policies>();
    {
        FrequencyScope<Free> scope{again, stream};
        run(stream, 1);
    }
    run(stream, 1);
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{as_found, found.cap}));
    EXPECT_EQ(device.read_clock_state(), found);
}

TEST_F(Scopes, PendingInTheStreamEndWithTheGpu) {
    auto mine = std::make_optional(gpu);
    gpu.close();
    mine.reset();
    {
        auto short_lived = simulated::open(device, gpu_options()).with<Policies>();
        {
            FrequencyScope<Slow> scope{short_lived, stream};
            run(stream, 4);
        }
        device.advance(2ms);
        EXPECT_EQ(device.effective_clocks(), slow);
    }
    device.advance(0ns);
    EXPECT_TRUE(device.effective_clocks().is_auto());
    EXPECT_EQ(device.read_clock_state(), ClockState{});
    device.synchronize(stream);  // the leaving marker is still to come
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

TEST_F(Scopes, AfterCloseAreRefusedAndCounted) {
    gpu.close();
    gpu.rearm();
    {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 1);
    }
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{as_found}));
    EXPECT_EQ(gpu.report().scopes.refused, 1u);
    EXPECT_NO_THROW(gpu.close());
}

TEST_F(Scopes, WithOrderingHostWaitAtEachMarker) {
    gpu.close();
    GpuOptions options = gpu_options();
    options.ordering = Ordering::host;
    const auto patient = simulated::open(device, options).with<Policies>();
    device.launch(stream, work(1));
    FrequencyScope<Slow> scope{patient, stream};
    EXPECT_GE(device.now().time_since_epoch(), 1ms);
    EXPECT_EQ(device.effective_clocks(), slow);
}

using UnknownClock = PolicyRegistry<Bind<"slow", CapClock<1800_MHz>>, Default<AutoClock>>;

TEST_F(Scopes, OfAClockThatTheDeviceDoesNotListAreAnErrorBeforeTheyRun) {
    try {
        static_cast<void>(gpu.with<UnknownClock>());
        FAIL() << "1800 MHz was accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_input);
        EXPECT_NE(error.text().action.find("slow"), std::string::npos) << error.what();
        EXPECT_NE(error.text().action.find("1800 MHz"), std::string::npos) << error.what();
        EXPECT_NE(error.text().object.find("MI210"), std::string::npos) << error.what();
        EXPECT_FALSE(error.text().remedy.empty());
    }
}

TEST(Open, TwiceGivesTheSameGpu) {
    simulated::Device device{simulated::mi210(), device_options()};
    const Gpu first = simulated::open(device, gpu_options());
    const Gpu second = simulated::open(device, gpu_options());
    EXPECT_EQ(&first.scope_sink(), &second.scope_sink());
    simulated::Device another{simulated::mi210(), device_options()};
    EXPECT_NE(&simulated::open(another).scope_sink(), &first.scope_sink());
    first.close();
    EXPECT_NE(&simulated::open(device).scope_sink(), &first.scope_sink()) << "closed means closed";
}

TEST(Open, MeasureOnlySaysSoEverywhere) {
    simulated::Device device{simulated::mi210(), device_options()};
    device.faults().inject(simulated::Call::apply, simulated::Fault::refused);
    EXPECT_THROW(static_cast<void>(simulated::open(device)), Error);
    device.faults().inject(simulated::Call::apply, simulated::Fault::refused);
    GpuOptions options = gpu_options();
    options.on_refused = OnRefused::measure_only;
    const auto gpu = simulated::open(device, options).with<Policies>();
    EXPECT_TRUE(gpu.measure_only());
    for (int i = 0; i < 20; ++i) {
        launch<Slow>(gpu, nullptr, [&] { device.launch(nullptr, work(1)); });
    }
    device.synchronize();
    EXPECT_TRUE(device.effective_clocks().is_auto());
    device.advance(5ms);
    const auto report = gpu.report();
    EXPECT_TRUE(report.measure_only);
    EXPECT_EQ(report.scopes.measured, 20u) << "nothing was refused: nothing was asked";
    EXPECT_EQ(report.scopes.refused, 0u);
    EXPECT_EQ(row(report, "slow").metered_calls, 20u) << "it still measures";
    std::ostringstream text;
    text << report;
    EXPECT_NE(text.str().find("MEASURE ONLY"), std::string::npos) << text.str();
    EXPECT_NE(text.str().find("measure only: cannot"), std::string::npos) << text.str();
}

}  // namespace
