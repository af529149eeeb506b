// SPDX-License-Identifier: MIT
#include <tests/gpu/rig.hpp>

#include <optional>

namespace {

using namespace rig;

class Graphs : public OnSimulatedGpu {
protected:
    BoundGpu<Policies> gpu = simulated::open(device, gpu_options()).with<Policies>();

    simulated::Graph nested() {
        device.begin_capture(stream);
        {
            FrequencyScope<Slow> outer{gpu, stream};
            run(stream, 1);
            FrequencyScope<Middle> inner{gpu, stream};
            run(stream, 1);
        }
        run(stream, 1);
        return device.end_capture(stream);
    }
};

TEST_F(Graphs, WriteTheirLevelsAtEveryReplay) {
    const simulated::Graph graph = nested();
    device.synchronize(stream);
    EXPECT_TRUE(probed.empty()) << "the capture ran";
    for (int replay = 0; replay < 5; ++replay) {
        device.launch(stream, graph);
        device.synchronize(stream);
        EXPECT_EQ(probed, (Clocks{slow, middle, as_found})) << "replay " << replay;
        probed.clear();
    }
    const auto counts = gpu.report().scopes;
    EXPECT_EQ(counts.captured, 2u);
    EXPECT_EQ(counts.scopes, 2u);
    EXPECT_EQ(sum(counts), 2u);
}

TEST_F(Graphs, ReplayedBackToBackGoDownEachTime) {
    const simulated::Graph graph = nested();
    for (int replay = 0; replay < 3; ++replay) device.launch(stream, graph);
    device.synchronize(stream);
    EXPECT_EQ(probed,
              (Clocks{slow, middle, as_found, slow, middle, as_found, slow, middle, as_found}));
}

TEST_F(Graphs, ReplayedAtOnceEndTooHighRatherThanStuckLow) {
    const simulated::Graph graph = nested();
    simulated::Stream* other = device.create_stream();
    device.launch(stream, graph);
    device.launch(other, work(0.7));
    device.launch(other, graph);
    device.synchronize();
    EXPECT_TRUE(device.effective_clocks().is_auto());
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

TEST_F(Graphs, AreNotElidedAgainstTheLiveTrack) {
    simulated::Graph graph;
    {
        FrequencyScope<Slow> live{gpu, stream};
        run(stream, 1);
        // A capture's stack starts empty: its scope asks although the live one asks the same.
        device.begin_capture(stream);
        {
            FrequencyScope<Slow> captured{gpu, stream};
            run(stream, 1);
        }
        graph = device.end_capture(stream);
    }
    device.synchronize(stream);
    probed.clear();
    device.launch(stream, graph);
    device.synchronize(stream);
    EXPECT_EQ(probed, (Clocks{slow}));
    EXPECT_EQ(gpu.report().scopes.captured, 1u);
}

TEST_F(Graphs, AScopeAcrossACapturesBeginIsAnErrorAndNothingSticks) {
    device.launch(stream, work(1));
    auto scope = std::make_optional<FrequencyScope<Slow>>(gpu, stream);
    run(stream, 1);
    device.begin_capture(stream);
    try {
        scope->close();
        FAIL() << "closed inside the capture";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_input);
        EXPECT_NE(error.text().action.find("before a capture"), std::string::npos) << error.what();
    }
    const auto graph = device.end_capture(stream);
    run(stream, 1);
    device.synchronize(stream);
    EXPECT_EQ(probed.back(), as_found) << "stuck low";
    EXPECT_EQ(device.read_clock_state(), ClockState{});
    device.launch(stream, graph);
    device.synchronize(stream);
    EXPECT_EQ(device.read_clock_state(), ClockState{});
    EXPECT_EQ(sum(gpu.report().scopes), 1u);
}

TEST_F(Graphs, AScopeAcrossACapturesEndIsAnErrorAndNothingSticks) {
    device.begin_capture(stream);
    auto scope = std::make_optional<FrequencyScope<Slow>>(gpu, stream);
    run(stream, 1);
    const auto graph = device.end_capture(stream);
    scope.reset();  // never throws
    EXPECT_THROW(gpu.check(), Error);
    for (int replay = 0; replay < 3; ++replay) {
        device.launch(stream, graph);
        run(stream, 1);
        device.synchronize(stream);
        EXPECT_EQ(probed.back(), as_found) << "stuck low";
    }
    EXPECT_EQ(device.read_clock_state(), ClockState{});
    // The stream's live scopes are as good as before, and so are their times.
    probed.clear();
    for (int i = 0; i < 20; ++i) launch<Middle>(gpu, stream, [&] { run(stream, 2); });
    device.synchronize(stream);
    EXPECT_EQ(probed.back(), middle);
    device.advance(5ms);
    EXPECT_EQ(row(gpu.report(), "middle").metered_calls, 20u);
}

TEST_F(Graphs, AFaultInACaptureDoesNotLeaveTheClockLowAtEachReplay) {
    device.begin_capture(stream);
    {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 1);
        device.faults().inject(simulated::Call::put_marker, simulated::Fault::refused);
    }
    const auto graph = device.end_capture(stream);
    EXPECT_THROW(gpu.check(), Error);
    device.launch(stream, graph);
    run(stream, 1);
    device.synchronize(stream);
    EXPECT_EQ(probed.back(), as_found);
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

TEST_F(Graphs, AreMeteredAtEachReplay) {
    const simulated::Graph graph = nested();
    for (int replay = 0; replay < 30; ++replay) device.launch(stream, graph);
    device.synchronize(stream);
    device.advance(5ms);
    const auto report = gpu.report();
    EXPECT_EQ(row(report, "slow").metered_calls, 30u);
    EXPECT_EQ(row(report, "middle").metered_calls, 30u);
    const double truth = device.true_energy().count;
    EXPECT_NEAR(report.totals.counter.count + report.totals.outside.count, truth, 0.02 * truth);
    EXPECT_EQ(report.totals.outside.count, 0);
}

TEST_F(Graphs, AloneAreMeteredOneIterationInN) {
    gpu.close();
    GpuOptions options = gpu_options();
    options.meter_every = 4;
    gpu = simulated::open(device, options).with<Policies>();
    const simulated::Graph graph = nested();
    for (int iteration = 0; iteration < 40; ++iteration) {
        for (int i = 0; i < 5; ++i) device.launch(stream, graph);
        device.synchronize(stream);
        gpu.next_iteration();
    }
    device.advance(5ms);
    const auto totals = gpu.report().totals;
    EXPECT_NEAR(totals.counter / (totals.counter + totals.outside), 0.25, 0.05);
}

}  // namespace
