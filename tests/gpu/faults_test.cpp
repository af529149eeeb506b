// SPDX-License-Identifier: MIT
#include <tests/gpu/rig.hpp>

#include <memory>
#include <optional>
#include <string>

namespace {

using namespace rig;
using simulated::Call;
using simulated::Fault;

class Faults : public OnSimulatedGpu {
protected:
    /// Scopes and work, long enough for retries.
    void run_iteration() {
        for (int i = 0; i < 4; ++i) {
            {
                FrequencyScope<Slow> scope{gpu, stream};
                run(stream, 40);  // longer than all retries
            }
            run(stream, 1);
        }
        device.synchronize(stream);
    }
    [[nodiscard]] std::optional<Errc> checked() const {
        try {
            gpu.check();
        } catch (const Error& error) {
            return error.code();
        }
        return std::nullopt;
    }

    BoundGpu<Policies> gpu = simulated::open(device, gpu_options()).with<Policies>();
};

/// What a scope does when setting its clock goes wrong in the middle of an iteration.
struct SetterCase {
    Fault fault;
    Errc kept;
};

class SetterFaults : public Faults, public testing::WithParamInterface<SetterCase> {};

TEST_P(SetterFaults, LetTheWorkGoOnKeepTheErrorAndPutTheClocksBack) {
    // The first scope goes well, the second one's change fails, again and again.
    device.faults().inject(Call::apply, GetParam().fault, 1, simulated::FaultPlan::always);
    run_iteration();
    EXPECT_EQ(probed.size(), 8u) << "the iteration's work did not go on";
    EXPECT_EQ(probed.front(), slow);
    for (std::size_t i = 1; i < probed.size(); ++i) EXPECT_EQ(probed[i], as_found) << i;
    device.faults().clear();
    if (GetParam().fault != Fault::vanished) {
        EXPECT_EQ(device.read_clock_state(), ClockState{}) << "not as it was found";
    }
    EXPECT_EQ(checked(), GetParam().kept);
    EXPECT_EQ(checked(), std::nullopt) << "told twice";
    const auto counts = gpu.report().scopes;
    EXPECT_EQ(counts.switches, 1u);
    EXPECT_EQ(counts.refused, 3u);
    EXPECT_EQ(sum(counts), 4u);
}

INSTANTIATE_TEST_SUITE_P(EachKind, SetterFaults,
                         testing::Values(SetterCase{Fault::refused, Errc::refused},
                                         SetterCase{Fault::half_done, Errc::refused},
                                         SetterCase{Fault::busy, Errc::busy},
                                         SetterCase{Fault::vanished, Errc::vanished},
                                         SetterCase{Fault::silent_refusal, Errc::refused}));

TEST_F(Faults, ThatPassAreRetried) {
    device.faults().inject(Call::apply, Fault::busy, 1, 2);
    run_iteration();
    EXPECT_EQ(checked(), std::nullopt);
    const auto counts = gpu.report().scopes;
    EXPECT_EQ(counts.switches, 4u);
    EXPECT_EQ(counts.refused, 0u);
}

TEST_F(Faults, AreForgottenAfterRearm) {
    device.faults().inject(Call::apply, Fault::refused);
    run_iteration();
    EXPECT_EQ(checked(), Errc::refused);
    gpu.rearm();
    probed.clear();
    run_iteration();
    EXPECT_EQ(checked(), std::nullopt);
    EXPECT_EQ(probed[0], slow);
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

TEST_F(Faults, OfReadingBackPutTheClocksBack) {
    device.faults().inject(Call::read_clock_state, Fault::refused);
    run_iteration();
    EXPECT_EQ(checked(), Errc::refused);
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

TEST_F(Faults, ThatKeepTheClocksFromGoingBackAreMadeUpForAtTheEnd) {
    device.faults().inject(Call::read_clock_state, Fault::refused, 0, 4);
    run_iteration();
    EXPECT_EQ(checked(), Errc::refused);
    device.faults().clear();
    gpu.close();
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

TEST_F(Faults, OfRestoringAreKept) {
    device.faults().inject(Call::restore, Fault::refused, 0, simulated::FaultPlan::always);
    run_iteration();
    EXPECT_EQ(checked(), Errc::refused);
    EXPECT_EQ(sum(gpu.report().scopes), 4u);
    device.faults().clear();
}

TEST_F(Faults, ARestoreThatIsBusyForLongIsOutlastedAndToldOf) {
    device.faults().inject(Call::restore, Fault::busy, 0, 6);
    {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 40);
    }
    device.synchronize(stream);
    device.advance(5s);
    EXPECT_EQ(device.read_clock_state(), ClockState{});
    EXPECT_EQ(checked(), Errc::busy);
}

TEST_F(Faults, ForeignClocksStay) {
    {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 3000);
        run(stream, 3000);
    }
    const ClockState external{.cap = {.core = {900}}, .floor = {}, .mode = "manual"};
    device.schedule(TimePoint{1s}, [&] { device.change_clocks_as_other(external); });
    device.synchronize(stream);
    EXPECT_EQ(device.read_clock_state(), external);
    EXPECT_EQ(checked(), Errc::external_change);
    gpu.close();
    EXPECT_EQ(device.read_clock_state(), external);
}

TEST_F(Faults, AResetIsAskedOverAgain) {
    {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 4000);
    }
    device.schedule(TimePoint{500ms}, [&] { device.reset_to_defaults(); });
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{slow})) << "the reset was never noticed";
    EXPECT_EQ(checked(), std::nullopt);
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

// Faults of the stream.

TEST_F(Faults, OfEnteringLeaveNothingBehind) {
    for (const Call call : {Call::track_key, Call::put_marker}) {
        device.faults().inject(call, Fault::refused);
        EXPECT_THROW((void)(FrequencyScope<Slow>{gpu, stream}), Error);
    }
    EXPECT_EQ(gpu.report().scopes.scopes, 0u);
    run_iteration();
    EXPECT_EQ(probed.front(), slow);
    EXPECT_EQ(gpu.report().scopes.switches, 4u);
}

TEST_F(Faults, OfMakingACellAreTriedAgainNextTime) {
    device.faults().inject(Call::make_cell, Fault::refused);
    EXPECT_THROW((void)(FrequencyScope<Slow>{gpu, stream}), Error);
    run_iteration();
    EXPECT_EQ(gpu.report().scopes.switches, 4u);
}

/// Calls whose failure keeps the leaving marker out of the stream.
class LeavingFaults : public Faults, public testing::WithParamInterface<Call> {};

TEST_P(LeavingFaults, AreKeptAndNoClockSticks) {
    device.launch(stream, work(1));
    {
        FrequencyScope<Slow> scope{gpu, stream};  // its marker waits behind the work
        run(stream, 1);
        device.faults().inject(GetParam(), Fault::refused);
    }
    run(stream, 1);
    device.synchronize(stream);
    EXPECT_EQ(checked(), Errc::refused);
    EXPECT_EQ(probed.back(), as_found) << "stuck low";
    EXPECT_EQ(device.read_clock_state(), ClockState{});
    probed.clear();
    run_iteration();
    EXPECT_EQ(probed.front(), slow) << "the track is lost";
    EXPECT_EQ(probed.back(), as_found);
}

TEST_P(LeavingFaults, OfANestedScopeGoBackToTheOuterOne) {
    {
        FrequencyScope<Slow> outer{gpu, stream};
        run(stream, 1);
        {
            FrequencyScope<Middle> inner{gpu, stream};
            run(stream, 1);
            device.faults().inject(GetParam(), Fault::refused);
        }
        run(stream, 1);
    }
    run(stream, 1);
    device.synchronize(stream);
    EXPECT_EQ(probed.at(2), slow);
    EXPECT_EQ(probed.at(3), as_found);
    EXPECT_EQ(checked(), Errc::refused);
}

TEST_P(LeavingFaults, DoNotGiveTheScopeWhatOthersUseLater) {
    {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 1);
        device.faults().inject(GetParam(), Fault::refused);
    }
    device.synchronize(stream);
    EXPECT_EQ(checked(), Errc::refused);
    device.advance(50ms);
    for (int i = 0; i < 20; ++i) launch<Middle>(gpu, stream, [&] { run(stream, 5); });
    device.synchronize(stream);
    device.advance(50ms);
    const auto report = gpu.report();
    EXPECT_EQ(row(report, "middle").metered_calls, 20u);
    for (const auto& line : report.rows) {
        EXPECT_TRUE(line.kernel.name != "slow" || line.metered_calls == 0);
    }
    EXPECT_GT(report.totals.idle_time, 45ms) << "the time after is somebody's";
}

INSTANTIATE_TEST_SUITE_P(EachCall, LeavingFaults,
                         testing::Values(Call::track_key, Call::put_marker));

// The counter's.

TEST_F(Faults, OfTheCounterAreNoJoules) {
    run_iteration();
    device.advance(5ms);
    const Joules before = gpu.report().totals.counter;
    device.faults().inject(Call::read_energy, Fault::refused, 0, simulated::FaultPlan::always);
    run_iteration();
    device.advance(5ms);
    EXPECT_EQ(gpu.report().totals.counter, before);
    EXPECT_EQ(checked(), std::nullopt);
}

TEST_F(Faults, AVanishedCounterEndsTheSampling) {
    device.faults().inject(Call::read_energy, Fault::vanished);
    run_iteration();
    EXPECT_EQ(checked(), Errc::vanished);
    EXPECT_EQ(sum(gpu.report().scopes), 4u);
}

// Who never looks.

TEST(UnreadErrors, ArePrintedOnceAtTheEnd) {
    testing::internal::CaptureStderr();
    {
        simulated::Device device{simulated::mi210(), device_options()};
        auto gpu = std::make_unique<Gpu>(simulated::open(device, gpu_options()));
        const Gpu other = *gpu;
        device.faults().inject(Call::apply, Fault::refused);
        launch<Slow>(gpu->with<Policies>(), nullptr, [&] { device.launch(nullptr, work(1)); });
        device.synchronize();
        gpu.reset();
    }
    const std::string printed = testing::internal::GetCapturedStderr();
    const auto first = printed.find("kdvfs: an error that nobody asked for");
    ASSERT_NE(first, std::string::npos) << printed;
    EXPECT_NE(printed.find("cannot set core 800 MHz"), std::string::npos) << printed;
    EXPECT_EQ(printed.find("kdvfs:", first + 1), std::string::npos) << "printed twice:\n"
                                                                    << printed;
}

TEST(UnreadErrors, ThatWereReadAreNotPrinted) {
    testing::internal::CaptureStderr();
    {
        simulated::Device device{simulated::mi210(), device_options()};
        const Gpu gpu = simulated::open(device, gpu_options());
        device.faults().inject(Call::apply, Fault::refused);
        launch<Slow>(gpu.with<Policies>(), nullptr, [&] { device.launch(nullptr, work(1)); });
        device.synchronize();
        EXPECT_THROW(gpu.close(), Error);
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
