// SPDX-License-Identifier: MIT
#include <tests/gpu/rig.hpp>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace rig;

struct A : Kernel<"a"> {};
struct B : Kernel<"b"> {};
struct C : Kernel<"c"> {};
struct D : Kernel<"d"> {};
struct Foreign : Kernel<"foreign"> {};

using Own = PolicyRegistry<Bind<"slow", CapClock<800_MHz>>, Bind<"a", CapClock<800_MHz>>,
                           Default<AutoClock>>;

/// a b on auto, c c slow, d middle.
PlannedSequence abccd() {
    PlannedSequence plan;
    for (const char* name : {"a", "b", "c", "d"}) plan.kernels.push_back({{name, {}}, 1ms});
    plan.launches = {0, 1, 2, 2, 3};
    plan.boundaries = {{0, as_found}, {2, slow}, {4, middle}};
    return plan;
}

class FollowingGpu : public OnSimulatedGpu {
protected:
    BoundGpu<Own> open(GpuOptions options = unmetered(), PlannedSequence sequence = abccd()) {
        auto plan = std::make_shared<PlanTable>();
        plan->follow(std::move(sequence));
        return simulated::open(device, options).with<Own>(plan);
    }
    static GpuOptions unmetered() {
        GpuOptions options = gpu_options();
        options.meter_every = 1'000'000;
        return options;
    }

    template <class... Kernels>
    void launch_all(const BoundGpu<Own>& gpu, simulated::Stream* on) {
        (launch<Kernels>(gpu, on, [&] { run(on, 1); }), ...);
    }
    void iteration(const BoundGpu<Own>& gpu) {
        gpu.next_iteration();
        launch_all<A, B, C, C, D>(gpu, stream);
    }
    Clocks take_probed() {
        device.synchronize();
        return std::exchange(probed, {});
    }

    const Clocks as_planned{as_found, as_found, slow, slow, middle};
};

TEST_F(FollowingGpu, EachBoundaryAsksForThePlansClockAndPoliciesAreNotAsked) {
    const auto gpu = open();
    for (int i = 0; i < 3; ++i) {
        const std::uint64_t markers = device.markers();
        iteration(gpu);
        EXPECT_EQ(take_probed(), as_planned) << "a's own policy asks for less";
        EXPECT_EQ(device.markers() - markers, 3U);
    }
    const auto report = gpu.report();
    EXPECT_EQ(report.scopes.scopes, 15U);
    EXPECT_EQ(report.scopes.followed, 6U);
    EXPECT_EQ(sum(report.scopes), 15U);
    ASSERT_TRUE(report.followed);
    EXPECT_EQ(report.followed->share(), 1);
    EXPECT_EQ(report.followed->launches, 15U);
}

TEST_F(FollowingGpu, IterationsNeedNotBeToldApart) {
    const auto gpu = open();
    for (int i = 0; i < 3; ++i) {
        launch_all<A, B, C, C, D>(gpu, stream);
        EXPECT_EQ(take_probed(), as_planned);
    }
}

TEST_F(FollowingGpu, ScopesOfOtherStreamsVoteAsEver) {
    const auto gpu = open();
    simulated::Stream* other = device.create_stream();
    iteration(gpu);
    launch_all<C, C>(gpu, stream);  // the plan is left here, at auto
    take_probed();
    gpu.next_iteration();
    launch_all<A, B, C>(gpu, stream);
    EXPECT_EQ(take_probed().back(), slow);
    launch<Middle>(gpu, other, [&] { run(other, 1); });
    EXPECT_EQ(take_probed().back(), as_found) << "its own policy is auto, and the highest wins";
    launch<Slow>(gpu, other, [&] { run(other, 1); });
    EXPECT_EQ(take_probed().back(), slow);
}

TEST_F(FollowingGpu, AStreamThatIsLostAsksForAutoUntilItsPlaceIsFound) {
    const auto gpu = open();
    gpu.next_iteration();
    launch_all<A, B, C, Foreign, Foreign, Foreign>(gpu, stream);
    EXPECT_EQ(take_probed(), (Clocks{as_found, as_found, slow, as_found, as_found, as_found}));
    launch_all<B, C, C, D>(gpu, stream);
    EXPECT_EQ(take_probed(), (Clocks{as_found, as_found, slow, middle}));
    iteration(gpu);
    EXPECT_EQ(take_probed(), as_planned);
    const auto report = gpu.report();
    EXPECT_EQ(report.followed->times_lost, 1U);
    EXPECT_LT(report.followed->share(), 1);
    ASSERT_FALSE(report.followed->mismatch.empty());
    EXPECT_EQ(report.followed->mismatch.front().first, "kernels that the plan does not have");
}

class FollowedGraphs : public FollowingGpu, public testing::WithParamInterface<unsigned> {};
INSTANTIATE_TEST_SUITE_P(MeteredAndNot, FollowedGraphs, testing::Values(1U, 1'000'000U));

TEST_P(FollowedGraphs, AreFollowedAtEachReplay) {
    GpuOptions options = gpu_options();
    options.meter_every = GetParam();
    const auto gpu = open(options);
    iteration(gpu);
    take_probed();
    gpu.next_iteration();
    device.begin_capture(stream);
    launch_all<A, B, C, C, D>(gpu, stream);
    const simulated::Graph graph = device.end_capture(stream);
    for (int replay = 0; replay < 3; ++replay) {
        device.launch(stream, graph);
        EXPECT_EQ(take_probed(), as_planned) << "replay " << replay;
        run(stream, 1);
        EXPECT_EQ(take_probed(), Clocks{as_found}) << "behind the graph nothing is left low";
    }
    iteration(gpu);
    EXPECT_EQ(take_probed(), as_planned);
    EXPECT_EQ(sum(gpu.report().scopes), gpu.report().scopes.scopes);
}

TEST_F(FollowingGpu, ALiveSegmentEndsWhereAGraphBeginsAndIsTakenUpAfterIt) {
    PlannedSequence sequence = abccd();
    sequence.boundaries = {{0, slow}};
    const auto gpu = open(unmetered(), sequence);
    iteration(gpu);
    EXPECT_EQ(take_probed(), (Clocks{slow, slow, slow, slow, slow}));
    // The middle of the iteration becomes a graph.
    gpu.next_iteration();
    launch_all<A>(gpu, stream);
    device.begin_capture(stream);
    launch_all<B, C, C>(gpu, stream);
    const simulated::Graph graph = device.end_capture(stream);
    device.launch(stream, graph);
    launch_all<D>(gpu, stream);
    take_probed();
    for (int i = 0; i < 3; ++i) {
        gpu.next_iteration();
        launch_all<A>(gpu, stream);
        EXPECT_EQ(take_probed(), Clocks{slow});
        device.launch(stream, graph);
        const Clocks in_graph = take_probed();
        EXPECT_EQ(in_graph.size(), 3U);
        launch_all<D>(gpu, stream);
        EXPECT_EQ(take_probed(), Clocks{slow}) << "taken up behind the graph, iteration " << i;
    }
    // A graph that ends in the middle of a segment leaves nothing low behind it.
    simulated::Stream* other = device.create_stream();
    gpu.next_iteration();
    device.launch(other, graph);
    device.synchronize();
    take_probed();
    device.launch(stream, graph);
    run(stream, 1);
    EXPECT_EQ(take_probed().back(), as_found);
}

TEST_F(FollowingGpu, MeteredIterationsAreRecordedAtThePlansClocks) {
    const auto gpu = open(gpu_options());
    for (int i = 0; i < 20; ++i) {
        iteration(gpu);
        EXPECT_EQ(take_probed(), as_planned);
    }
    device.advance(5ms);
    const auto report = gpu.report();
    EXPECT_EQ(row(report, "a").metered_calls, 20U);
    EXPECT_EQ(row(report, "c").metered_calls, 40U);
    EXPECT_EQ(row(report, "a").asked, as_found);
    EXPECT_EQ(row(report, "c").asked, slow);
    EXPECT_EQ(row(report, "d").asked, middle);
    EXPECT_EQ(sum(report.scopes), 100U);
}

TEST_F(FollowingGpu, APlanOfAnotherProgramIsSaidAndTheClocksStayOnAuto) {
    const auto gpu = open();
    for (int i = 0; i < 4; ++i) {
        gpu.next_iteration();
        launch_all<Foreign, A, Foreign>(gpu, stream);
    }
    try {
        gpu.check();
        FAIL() << "not said";
    } catch (const Error& error) {
        EXPECT_NE(error.text().vendor_words.find("another program"), std::string::npos);
    }
    take_probed();
    iteration(gpu);
    EXPECT_EQ(take_probed(), Clocks(5, as_found));
    EXPECT_TRUE(gpu.report().followed->given_up);
}

TEST_F(FollowingGpu, APlanEndsWithItsLastHandle) {
    const Gpu plain = simulated::open(device, unmetered());
    auto following = std::make_optional(open());
    iteration(*following);
    EXPECT_EQ(take_probed(), as_planned);
    run(stream, 1);
    EXPECT_EQ(take_probed(), Clocks{middle}) << "until the next boundary";
    following.reset();
    run(stream, 1);
    EXPECT_EQ(take_probed(), Clocks{as_found});
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

TEST_F(FollowingGpu, ClocksThatTheDeviceDoesNotListAreRefused) {
    PlannedSequence sequence = abccd();
    sequence.boundaries[1].clock = {.core = {9000}};
    EXPECT_THROW(open(unmetered(), sequence), Error);

    sequence = abccd();
    sequence.kernels[1].own = {.asks = true, .point = middle};
    EXPECT_NO_THROW(open(unmetered(), sequence));
    sequence.kernels[1].own.point = {.core = {9000}};
    EXPECT_THROW(open(unmetered(), sequence), Error) << "a kernel outside of its place";
}

TEST_F(FollowingGpu, APlanOfAnotherGpuIsRefused) {
    PlannedSequence sequence = abccd();
    sequence.gpu = "simulated AMD Instinct MI210";
    EXPECT_EQ(open(unmetered(), sequence).info().name, "AMD Instinct MI210");
    sequence.gpu = "AMD Instinct MI210";
    EXPECT_THROW(open(unmetered(), sequence), Error) << "simulated is simulated everywhere";
}

TEST_F(FollowingGpu, AMarkerThatIsRefusedLeavesNothingLow) {
    const auto gpu = open();
    gpu.next_iteration();
    launch_all<A, B, C>(gpu, stream);
    EXPECT_EQ(take_probed().back(), slow);
    launch_all<C>(gpu, stream);
    device.faults().inject(simulated::Call::put_marker, simulated::Fault::refused);
    EXPECT_THROW(launch_all<D>(gpu, stream), Error);
    run(stream, 1);
    EXPECT_EQ(take_probed().back(), as_found);
    iteration(gpu);
    EXPECT_EQ(take_probed(), as_planned);
}

TEST_F(FollowingGpu, MeasuringOnlyFollowsWithoutMarkers) {
    device.faults().inject(simulated::Call::apply, simulated::Fault::refused);
    GpuOptions options = unmetered();
    options.on_refused = OnRefused::measure_only;
    const auto gpu = open(options);
    for (int i = 0; i < 3; ++i) iteration(gpu);
    EXPECT_EQ(take_probed(), Clocks(15, as_found));
    EXPECT_EQ(gpu.report().followed->share(), 1);
    EXPECT_EQ(sum(gpu.report().scopes), 15U);
}

}  // namespace
