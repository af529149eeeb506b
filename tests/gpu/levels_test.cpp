// SPDX-License-Identifier: MIT
#include <kdvfs/detail/gpu/meter_inputs.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/report.hpp>
#include <tests/gpu/rig.hpp>

#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace rig;

struct Forward : Kernel<"forward"> {};
struct Backward : Kernel<"backward"> {};
struct Layer : Kernel<"layer"> {};
using Phases = PolicyRegistry<Bind<"slow", CapClock<800_MHz>>, Default<AutoClock>>;

/// Training steps whose kernels run in the same order and for as long each time: a layer's two
/// kernels forward, then others backward. The counter moves every 7 ms, a step takes about 30.
class Levels : public OnSimulatedGpu {
protected:
    Levels() : OnSimulatedGpu{device_options(7ms, {5e-3})} {}

    template <class BoundGpu>
    void step(const BoundGpu& gpu) {
        {
            FrequencyScope<Forward> forward{gpu, stream};
            for (int i = 0; i < 3; ++i) {
                FrequencyScope<Layer> layer{gpu, stream};
                launch<Free>(gpu, stream, [&] { device.launch(stream, work(2)); });
                launch<Slow>(gpu, stream, [&] { device.launch(stream, work(1)); });
            }
        }
        const double before = device.true_energy().count;
        device.synchronize(stream);
        forward_joules += device.true_energy().count - before;
        {
            FrequencyScope<Backward> backward{gpu, stream};
            for (int i = 0; i < 3; ++i) {
                launch<Middle>(gpu, stream, [&] { device.launch(stream, work(4)); });
            }
        }
        const double between = device.true_energy().count;
        device.synchronize(stream);
        backward_joules += device.true_energy().count - between;
        device.advance(2ms);  // the host makes the next batch
        ++steps;
    }
    template <class BoundGpu>
    void one(const BoundGpu& gpu) {
        gpu.next_iteration();
        const double before = device.true_energy().count;
        {
            FrequencyScope<Backward> backward{gpu, stream};
            launch<Middle>(gpu, stream, [&] { device.launch(stream, work(20)); });
            launch<Free>(gpu, stream, [&] { device.launch(stream, work(10)); });
        }
        device.synchronize(stream);
        backward_joules += device.true_energy().count - before;
        ++steps;
    }
    static const measure::EnergyLevel& level(const measure::Report& report,
                                             const std::string& name) {
        for (const auto& level : report.levels) {
            if (level.iteration ? name == "iteration" : level.scope.name == name) return level;
        }
        throw std::runtime_error("no level " + name);
    }
    static void expect_holds(const measure::EnergyEstimate& energy, double truth) {
        ASSERT_TRUE(energy.resolved);
        EXPECT_NEAR(energy.joules.count, truth, energy.half_width.count + 1e-4 * truth);
        EXPECT_LT(energy.half_width.count, 0.03 * truth);
    }

    double forward_joules = 0;
    double backward_joules = 0;
    int steps = 0;
};

TEST_F(Levels, IterationAndPhasesAreToldAndCountedOnce) {
    GpuOptions options = gpu_options();
    const auto gpu = simulated::open(device, options).with<Phases>();
    const double before = device.true_energy().count;
    const TimePoint began = device.now();
    for (int i = 0; i < 80; ++i) {
        gpu.next_iteration();
        step(gpu);
    }
    const double all = device.true_energy().count - before;
    const Seconds took = device.now() - began;
    gpu.next_iteration();
    step(gpu);  // so that the last of them has ended
    device.advance(10ms);
    const auto report = gpu.report();
    const auto& iteration = level(report, "iteration");
    EXPECT_EQ(iteration.runs, 80U);
    EXPECT_NEAR(iteration.time.count(), took.count(), 1e-3 * took.count());
    expect_holds(iteration.per_run(), all / 80);
    const auto& forward = level(report, "forward");
    const auto& backward = level(report, "backward");
    const auto& layer = level(report, "layer");
    EXPECT_EQ(forward.runs, 81U);
    EXPECT_EQ(layer.runs, 243U);
    expect_holds(forward.per_run(), forward_joules / steps);
    expect_holds(backward.per_run(), backward_joules / steps);
    EXPECT_NEAR(3 * layer.per_run().joules.count, forward.per_run().joules.count,
                0.01 * forward_joules / steps);
    // Nothing is in two of the phases, or in a level twice.
    const auto& totals = report.totals;
    EXPECT_NEAR((forward.counted_time + backward.counted_time + totals.idle_time).count(),
                totals.counted_time.count(), 1e-6);
    EXPECT_LE(layer.counted_time, forward.counted_time);
    std::ostringstream text;
    text << report;
    EXPECT_NE(text.str().find("\niteration: "), std::string::npos);
    EXPECT_NE(text.str().find("\nscope forward: "), std::string::npos);
    std::ostringstream json;
    measure::write_json(json, report);
    EXPECT_NE(json.str().find(R"("level":"iteration")"), std::string::npos);
}

TEST_F(Levels, OfSampledIterationsThoseAreCountedThatWereMetered) {
    GpuOptions options = gpu_options();
    options.meter_every = 3;
    const auto gpu = simulated::open(device, options).with<Phases>();
    for (int i = 0; i < 90; ++i) {
        gpu.next_iteration();
        step(gpu);
    }
    gpu.next_iteration();
    device.advance(10ms);
    const auto report = gpu.report();
    const auto& iteration = level(report, "iteration");
    EXPECT_EQ(iteration.runs, 30U);
    // From its first marker to its last: what the host does behind that is not in it.
    expect_holds(iteration.per_run(), (forward_joules + backward_joules) / steps);
    expect_holds(level(report, "forward").per_run(), forward_joules / steps);
}

/// The host runs ahead, and waits for the GPU just before each metered iteration: all timestamps of
/// the one before are read then. What ran between the two is none of theirs.
TEST_F(Levels, WhatRanBetweenMeteredIterationsIsInNone) {
    GpuOptions options = gpu_options();
    options.meter_every = 4;
    const auto gpu = simulated::open(device, options).with<Phases>();
    constexpr unsigned iterations = 160;
    const double before = device.true_energy().count;
    const TimePoint began = device.now();
    for (unsigned i = 0; i < iterations; ++i) {
        gpu.next_iteration();
        launch<Middle>(gpu, stream, [&] { device.launch(stream, work(20)); });
        launch<Free>(gpu, stream, [&] { device.launch(stream, work(10)); });
        if (kdvfs::is_metered_iteration(i + 1, 4)) device.synchronize(stream);
    }
    device.synchronize(stream);
    const double joules = device.true_energy().count - before;
    const Seconds took = device.now() - began;
    gpu.next_iteration();
    device.advance(10ms);
    const auto report = gpu.report();
    const auto& iteration = level(report, "iteration");
    EXPECT_EQ(iteration.runs, 40U);
    EXPECT_NEAR(iteration.time.count() / 40, took.count() / iterations, 1e-3 * 0.03);
    expect_holds(iteration.per_run(), joules / iterations);
    EXPECT_LT(report.totals.idle_time, 1ms);
}

/// What a program does before its loop is no iteration, however many scopes it has.
TEST_F(Levels, WhatRanBeforeTheFirstIterationIsNone) {
    for (const unsigned every : {1U, 4U}) {
        simulated::Device fresh{simulated::mi210(), device_options(7ms, {5e-3})};
        auto* const its_stream = fresh.create_stream();
        GpuOptions options = gpu_options();
        options.meter_every = every;
        const auto gpu = simulated::open(fresh, options).with<Phases>();
        for (int i = 0; i < 50; ++i) {
            launch<Middle>(gpu, its_stream, [&] { fresh.launch(its_stream, work(20)); });
        }
        FrequencyScope<Forward> around_the_loop{gpu, its_stream};
        fresh.synchronize(its_stream);
        const double before = fresh.true_energy().count;
        for (int i = 0; i < 80; ++i) {
            gpu.next_iteration();
            launch<Free>(gpu, its_stream, [&] { fresh.launch(its_stream, work(30)); });
            fresh.synchronize(its_stream);
        }
        const double joules = fresh.true_energy().count - before;
        gpu.next_iteration();
        launch<Free>(gpu, its_stream, [&] { fresh.launch(its_stream, work(30)); });
        fresh.synchronize(its_stream);
        const auto report = gpu.report();
        EXPECT_EQ(level(report, "iteration").runs, 80U / every);
        expect_holds(level(report, "iteration").per_run(), joules / 80);
    }
}

/// Training whose every n-th iteration is another: validation, or accumulation.
struct Alternating {
    int every;
    int place;

    [[nodiscard]] bool is_heavy(int iteration) const { return iteration % every == place; }
};

/// The iteration's interval holds how much metered iterations differ. With a fixed place in 8, all
/// metered ones were of one kind.
TEST_F(Levels, IterationsThatAlternateAreAsOftenMeteredAsTheyCome) {
    int programs = 0;
    int held = 0;
    int doubted = 0;
    for (const int period : {2, 3, 4, 8}) {
        for (int place = 0; place < period; ++place) {
            const Alternating program{period, place};
            const int iterations = 240 + 16 * place;
            simulated::Device fresh{simulated::mi210(), device_options(5ms, {5e-3})};
            auto* const its_stream = fresh.create_stream();
            GpuOptions options = gpu_options();
            options.meter_every = 8;
            options.sampler.period = 5ms;
            const auto gpu = simulated::open(fresh, options).with<Phases>();
            const double before = fresh.true_energy().count;
            for (int i = 0; i < iterations; ++i) {
                gpu.next_iteration();
                const double length = program.is_heavy(i) ? 40 : 10;
                launch<Free>(gpu, its_stream, [&] { fresh.launch(its_stream, work(length)); });
                launch<Middle>(gpu, its_stream, [&] { fresh.launch(its_stream, work(5)); });
                fresh.synchronize(its_stream);
            }
            const double truth = (fresh.true_energy().count - before) / iterations;
            gpu.next_iteration();
            fresh.advance(20ms);
            const auto report = gpu.report();
            const auto found = level(report, "iteration").per_run();
            EXPECT_NEAR(found.joules.count, truth, truth) << period << ' ' << place;
            EXPECT_LT(found.half_width.count, 0.5 * truth) << period << ' ' << place;
            ++programs;
            held += std::abs(found.joules.count - truth) <= found.half_width.count ? 1 : 0;
            doubted += has_note(report, "the metered iterations drew") ? 1 : 0;
        }
    }
    EXPECT_EQ(programs, 17);
    EXPECT_GE(held, 15);
    EXPECT_LE(doubted, 1);
}

/// What no drawing finds, the counter does: iterations that are metered do less than others.
TEST_F(Levels, TheCounterSaysWhereMeteredIterationsAreNotLikeOthers) {
    for (const double others : {10.0, 20.0}) {
        simulated::Device fresh{simulated::mi210(), device_options(5ms, {5e-3})};
        auto* const its_stream = fresh.create_stream();
        GpuOptions options = gpu_options();
        options.meter_every = 8;
        options.sampler.period = 5ms;
        const auto gpu = simulated::open(fresh, options).with<Phases>();
        for (std::uint64_t i = 0; i < 240; ++i) {
            gpu.next_iteration();
            const double length = kdvfs::is_metered_iteration(i, 8) ? 10 : others;
            launch<Free>(gpu, its_stream, [&] { fresh.launch(its_stream, work(length)); });
            fresh.synchronize(its_stream);
            fresh.advance(4ms);  // the host makes the next batch
        }
        gpu.next_iteration();
        fresh.advance(20ms);
        EXPECT_EQ(has_note(gpu.report(), "the metered iterations drew"), others > 10) << others;
    }
}

TEST(MeteredIterations, AreOneOfEachBlockInAnyPlace) {
    for (const unsigned every : {1U, 2U, 3U, 16U}) {
        std::vector<int> places(every);
        for (std::uint64_t block = 0; block < 1600; ++block) {
            int metered = 0;
            for (unsigned place = 0; place < every; ++place) {
                if (!kdvfs::is_metered_iteration(block * every + place, every)) continue;
                ++metered;
                ++places[place];
                if (block == 0) {
                    EXPECT_GE(place, every / 2) << "warm-up";
                }
            }
            ASSERT_EQ(metered, 1);
        }
        for (const int count : places) {
            EXPECT_NEAR(count, 1600.0 / every, 3.5 * std::sqrt(1600.0 / every));
        }
    }
    EXPECT_FALSE(kdvfs::is_metered_iteration(0, 0));
}

/// A GPU with ranges as attached programs have them.
struct GpuWithRanges : Gpu {
    using Gpu::Gpu;
    explicit GpuWithRanges(const Gpu& gpu) : Gpu{gpu} {}
    [[nodiscard]] const kdvfs::detail::ScopeKind& range(const char* name) const {
        return service().enclosing_kind(name);
    }
    void leave_unmarked(const kdvfs::detail::ScopeToken& token) const {
        service().leave_unmarked(token);
    }
    void begin_window() const { service().begin_window(); }
    void begin_iteration(bool metered) const { service().begin_iteration(metered); }
};

/// A range is the sum of the scopes in it: the time between them is idle, and none of its own.
TEST_F(Levels, ARangeIsTheSumOfItsScopes) {
    const GpuWithRanges ranges{simulated::open(device, gpu_options())};
    const auto gpu = ranges.with<Phases>();
    auto& sink = ranges.scope_sink();
    double joules = 0;
    for (int i = 0; i < 60; ++i) {
        const auto whole = sink.enter(stream, ranges.range("step"));
        for (int part = 0; part < 2; ++part) {
            const auto half = sink.enter(stream, ranges.range(part == 0 ? "step/a" : "step/b"));
            const double before = device.true_energy().count;
            launch<Free>(gpu, stream, [&] { device.launch(stream, work(part == 0 ? 2 : 5)); });
            device.synchronize(stream);
            if (part == 0) joules += device.true_energy().count - before;
            device.advance(3ms);  // the host does something else
            launch<Slow>(gpu, stream, [&] { device.launch(stream, work(1)); });
            sink.leave(half);
        }
        sink.leave(whole);
        device.synchronize(stream);
        gpu.next_iteration();
    }
    device.advance(10ms);
    const auto report = gpu.report();
    ASSERT_EQ(report.rows.size(), 2U) << "ranges have no rows";
    const auto& whole = level(report, "step");
    const auto& a = level(report, "step/a");
    const auto& b = level(report, "step/b");
    EXPECT_EQ(whole.runs, 60U);
    EXPECT_EQ(a.runs, 60U);
    double kernels = 0;
    double time = 0;
    for (const auto& row : report.rows) {
        kernels += row.energy.joules.count;
        time += row.time.count();
    }
    EXPECT_NEAR(whole.time.count(), time, 1e-6 * time) << "without the gaps";
    EXPECT_NEAR(whole.energy.joules.count, kernels, 1e-6 * kernels);
    EXPECT_NEAR(a.energy.joules.count + b.energy.joules.count, kernels, 1e-6 * kernels);
    EXPECT_GT(report.totals.idle_time.count(), 60 * 2 * 3e-3);
    // All but the slow kernel's, which takes longer than 1 ms.
    EXPECT_GT(a.energy.joules.count, joules);
    EXPECT_LT(a.energy.joules.count, 1.6 * joules);
}

TEST_F(Levels, ARangeThatIsNotMeteredHasNoRow) {
    GpuOptions options = gpu_options();
    options.meter_every = 100;
    const GpuWithRanges ranges{simulated::open(device, options)};
    const auto gpu = ranges.with<Phases>();
    gpu.next_iteration();
    for (int i = 0; i < 5; ++i) {
        const auto token = ranges.scope_sink().enter(stream, ranges.range("range"));
        launch<Free>(gpu, stream, [&] { device.launch(stream, work(2)); });
        ranges.scope_sink().leave(token);
    }
    device.synchronize(stream);
    const auto report = gpu.report();
    ASSERT_EQ(report.rows.size(), 1U);
    EXPECT_EQ(report.rows.front().kernel.name, "free");
}

/// Every other run of the scope has more timestamps than fit: the time of what is left of it is not
/// that of the next one.
TEST_F(Levels, ARunWhoseEndWasLostIsNotInTheNextOne) {
    simulated::DeviceOptions few = device_options();
    few.timestamp_capacity = 64;
    simulated::Device small{simulated::mi210(), few};
    auto* const its_stream = small.create_stream();
    GpuOptions options = gpu_options();
    options.sampler.period = 5ms;  // nor are timestamps collected in between
    const auto gpu = simulated::open(small, options).with<Phases>();
    double joules = 0;
    for (int i = 0; i < 200; ++i) {
        const bool whole = i % 2 == 1;
        const double before = small.true_energy().count;
        {
            FrequencyScope<Forward> forward{gpu, its_stream};
            for (int j = 0; j < (whole ? 20 : 100); ++j) {
                launch<Free>(gpu, its_stream, [&] { small.launch(its_stream, work(0.1)); });
            }
        }
        small.synchronize(its_stream);
        if (whole) joules += small.true_energy().count - before;
        gpu.next_iteration();
        small.advance(3ms);
    }
    small.advance(10ms);
    const auto report = gpu.report();
    EXPECT_TRUE(has_note(report, "timestamps were overwritten"));
    const auto& forward = level(report, "forward");
    EXPECT_EQ(forward.runs, 100U);
    expect_holds(forward.per_run(), joules / 100);
}

TEST_F(Levels, ARunWithoutALeavingMarkerIsNotInTheNextOne) {
    const GpuWithRanges ranges{simulated::open(device, gpu_options())};
    const auto gpu = ranges.with<Phases>();
    double joules = 0;
    for (int i = 0; i < 60; ++i) {
        const double before = device.true_energy().count;
        const auto token = ranges.scope_sink().enter(stream, ranges.range("range"));
        launch<Free>(gpu, stream, [&] { device.launch(stream, work(20)); });
        device.synchronize(stream);
        if (i % 2 == 0) {
            ranges.leave_unmarked(token);
        } else {
            ranges.scope_sink().leave(token);
            joules += device.true_energy().count - before;
        }
    }
    device.synchronize(stream);
    device.advance(10ms);
    const auto report = gpu.report();
    EXPECT_EQ(level(report, "range").runs, 30U);
    expect_holds(level(report, "range").per_run(), joules / 30);
}

/// A scope around a loop of iterations of which one in four is metered, left in one or in another.
class AroundTheLoop : public Levels, public testing::WithParamInterface<int> {};

TEST_P(AroundTheLoop, TakesNoTimeOfWhatWasNotMetered) {
    GpuOptions options = gpu_options();
    options.meter_every = 4;
    const auto gpu = simulated::open(device, options).with<Phases>();
    constexpr int runs = 20;
    for (int i = 0; i < runs; ++i) {
        // Each outer scope is entered in a metered iteration.
        while (i > 0 && steps % 4 != 0) one(gpu);
        FrequencyScope<Forward> loop{gpu, stream};
        for (int j = 0; j < GetParam(); ++j) one(gpu);
    }
    device.synchronize(stream);
    device.advance(10ms);
    const auto report = gpu.report();
    const auto& loop = row(report, "forward");
    EXPECT_EQ(loop.calls, 20U);
    EXPECT_EQ(loop.metered_calls, 0U);
    EXPECT_LT(loop.time.count(), 20 * 3e-6) << "its markers', and no work";
    EXPECT_EQ(level(report, "forward").runs, 0U);
    expect_holds(level(report, "backward").per_run(), backward_joules / steps);
    EXPECT_TRUE(has_note(report, "as a whole have no energy: forward; meter every iteration"));
}

INSTANTIATE_TEST_SUITE_P(Lengths, AroundTheLoop, testing::Values(8, 9, 10));

/// Iterations in windows of their own, as those of a session, are metered all the same.
TEST_F(Levels, AScopeAroundWindowsIsWholeUnlessWhatLiesBetweenThemWasNotMetered) {
    const GpuWithRanges windows{simulated::open(device, gpu_options())};
    const auto gpu = windows.with<Phases>();
    double joules = 0;
    constexpr int runs = 10;
    for (int i = 0; i < runs; ++i) {
        const bool whole = i % 2 == 0;
        const double before = device.true_energy().count;
        {
            FrequencyScope<Forward> loop{gpu, stream};
            for (int j = 0; j < 20; ++j) {
                if (!whole && j == 10) windows.begin_iteration(false);
                windows.begin_window();
                launch<Middle>(gpu, stream, [&] { device.launch(stream, work(5)); });
                device.launch(stream, work(10));
            }
        }
        device.synchronize(stream);
        if (whole) joules += device.true_energy().count - before;
    }
    device.advance(10ms);
    const auto report = gpu.report();
    EXPECT_EQ(row(report, "forward").calls, 10U);
    EXPECT_EQ(row(report, "forward").metered_calls, 5U);
    EXPECT_EQ(level(report, "forward").runs, 5U);
    expect_holds(level(report, "forward").per_run(), joules / 5);
}

TEST_F(Levels, AScopeInItselfIsCountedOnce) {
    const auto gpu = simulated::open(device, gpu_options()).with<Phases>();
    for (int i = 0; i < 60; ++i) {
        FrequencyScope<Forward> outer{gpu, stream};
        FrequencyScope<Forward> inner{gpu, stream};
        launch<Free>(gpu, stream, [&] { device.launch(stream, work(2)); });
    }
    device.synchronize(stream);
    device.advance(10ms);
    const auto report = gpu.report();
    EXPECT_LE(level(report, "forward").counted_time.count(),
              report.totals.counted_time.count() * (1 + 1e-9));
}

}  // namespace
