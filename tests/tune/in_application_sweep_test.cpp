// SPDX-License-Identifier: MIT
#include <bench/in_application/in_application_case.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/sweep.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <tuple>

namespace kdvfs::tune {
namespace {

using namespace std::chrono_literals;
using namespace kdvfs::literals;

struct Gemm : Kernel<"gemm"> {};
struct Copy : Kernel<"copy"> {};
struct Kept : Kernel<"kept"> {};
using Policies = PolicyRegistry<Bind<"gemm", AutoClock>, Bind<"copy", CapClock<800_MHz>>,
                                Bind<"kept", KeepClock>>;

/// Points of one core clock in a hundred MHz each, down to half of the highest.
std::vector<ClockPoint> few_points() {
    std::vector<ClockPoint> points{ClockPoint{}};
    for (std::uint32_t core = 800; core <= 1700; core += 150)
        points.push_back({{core}, auto_clock});
    return points;
}

SweepOptions quick() {
    SweepOptions options;
    options.points = few_points();
    options.block.settle = 40ms;
    options.block.switch_latency = 2ms;
    options.block.measured = 40ms;
    options.block.counter_rows = 40;
    options.max_slowdown = 0.1;
    return options;
}

/// A small training loop on a simulated MI210 whose clocks follow after 2 ms.
class InApplication : public ::testing::Test {
protected:
    template <class View>
    void iterate(const View& view, bool wait = true) {
        for (int layer = 0; layer < 3; ++layer) {
            launch<Gemm>(view, stream, [&] { device.launch(stream, gemm); });
            launch<Copy>(view, stream, variant(static_cast<std::uint32_t>(layer % 2)),
                         [&] { device.launch(stream, copy); });
        }
        launch<Kept>(view, stream, [&] { device.launch(stream, copy); });
        if (wait) device.synchronize(stream);
    }
    template <class View>
    std::uint64_t run(const View& sweep, int wait_every = 1) {
        for (std::uint64_t i = 1; i < 100'000; ++i) {
            sweep.next_iteration();
            iterate(sweep, i % static_cast<std::uint64_t>(wait_every) == 0);
            if (sweep.done()) return i;
        }
        ADD_FAILURE() << "the sweep did not end: " << to_string(sweep.progress());
        return 0;
    }
    /// What one launch costs between its markers.
    [[nodiscard]] Cost truth(const simulated::KernelModel& kernel, ClockPoint clock) const {
        const auto point = simulated::operate(device.board(), kernel, clock);
        return {point.time, point.power * point.time};
    }
    void expect_true(const Profile& profile, const KernelKey& key,
                     const simulated::KernelModel& kernel) const {
        for (const KernelProfile& measured : profile.kernels()) {
            if (measured.key != key) continue;
            for (const ProfilePoint& point : measured.points) {
                const Cost real = truth(kernel, point.clock);
                EXPECT_NEAR(point.mean().time / real.time, 1, 0.01)
                    << to_string(key) << " at " << to_string(point.clock);
                EXPECT_NEAR(point.mean().energy / real.energy, 1, 0.03)
                    << to_string(key) << " at " << to_string(point.clock);
            }
            for (const ProfilePoint& point : measured.points) {
                const auto real = simulated::operate(device.board(), kernel, point.clock);
                for (const ProfileSample& sample : point.samples) {
                    EXPECT_NEAR(static_cast<double>(sample.held.count) / real.core.count, 1, 0.01)
                        << to_string(key) << " at " << to_string(point.clock);
                    // Power that is near the limit may be held back by it.
                    if (real.power_limited ||
                        real.power.count < 0.95 * device.board().power_cap.count) {
                        EXPECT_EQ(sample.at_limit, real.power_limited)
                            << to_string(key) << " at " << to_string(point.clock);
                    }
                }
            }
            return;
        }
        ADD_FAILURE() << to_string(key) << " is not in the profile";
    }

    simulated::Device device{simulated::mi210(),
                             {.clock_switch = simulated::uniform_switch(2ms),
                              .energy_counter = simulated::EnergyCounterTraits{
                                  .period = 1ms, .quantum = {1.0 / 65536}, .noise = {1e-4}}}};
    simulated::Stream* stream = device.create_stream();
    simulated::KernelModel gemm = roofline(device.board(), {.matrix_flops = 2e11});
    simulated::KernelModel copy = roofline(device.board(), {.memory_bytes = 2e9});
    GpuOptions options = [] {
        GpuOptions chosen;
        chosen.switch_latency = Duration{0};  // no gate: each scope switches
        chosen.sampler.period = 1ms;
        return chosen;
    }();
};

TEST_F(InApplication, MeasuresWhatTheKernelsCost) {
    const Gpu gpu = simulated::open(device, options);
    const Sweeping<Policies> sweep{gpu, quick()};
    const std::uint64_t iterations = run(sweep);
    const Profile profile = sweep.profile();
    EXPECT_EQ(profile.gpu(), "simulated AMD Instinct MI210");
    ASSERT_EQ(profile.kernels().size(), 3U);  // the one that keeps its clock is not swept
    expect_true(profile, {"gemm", {}}, gemm);
    expect_true(profile, {"copy", {}}, copy);
    expect_true(profile, {"copy", variant(1)}, copy);
    for (const KernelProfile& kernel : profile.kernels()) {
        EXPECT_EQ(kernel.count, kernel.key.name == "gemm"  ? 3U
                                : kernel.key.variant.index ? 1U
                                                           : 2U);
        EXPECT_GE(kernel.find(ClockPoint{})->samples.size(), 2U);
    }
    EXPECT_EQ(sweep.progress().blocks_dropped, 0U);
    std::printf("%llu iterations; %s\n", static_cast<unsigned long long>(iterations),
                to_string(sweep.progress()).c_str());
}

/// Where there is no program yet, a loop of launches is one.
TEST_F(InApplication, MeasuresAKernelByItself) {
    const Gpu gpu = simulated::open(device, options);
    const Sweeping<Policies> sweep{gpu, quick()};
    for (int i = 0; i < 100'000 && !sweep.done(); ++i) {
        sweep.next_iteration();
        for (int repeat = 0; repeat < 20; ++repeat)
            launch<Copy>(sweep, stream, [&] { device.launch(stream, copy); });
        device.synchronize(stream);
    }
    ASSERT_TRUE(sweep.done());
    expect_true(sweep.profile(), {"copy", {}}, copy);
}

/// A latency target is the sweep's own bound: no launch ever takes longer, and clocks at which one
/// might are not tried.
TEST_F(InApplication, KeepsEachLaunchUnderItsTarget) {
    const Gpu gpu = simulated::open(device, options);
    const Seconds limit = truth(gemm, {}).time * 1.5;
    SweepOptions bounded = quick();
    bounded.objective = keep_under(limit);
    bounded.regret_pct = 0.01;
    const Sweeping<Policies> sweep{gpu, bounded};
    Seconds longest{0};
    for (int i = 0; i < 100'000 && !sweep.done(); ++i) {
        sweep.next_iteration();
        const TimePoint began = device.now();
        launch<Gemm>(sweep, stream, [&] { device.launch(stream, gemm); });
        device.synchronize(stream);
        longest = std::max(longest, Seconds{device.now() - began});
        launch<Copy>(sweep, stream, [&] { device.launch(stream, copy); });
        device.synchronize(stream);
    }
    EXPECT_TRUE(sweep.done());
    // Two markers of 2 us stand beside the launch, and one more where the clock changes.
    EXPECT_LE(longest, limit + Seconds{7e-6});
    const Profile profile = sweep.profile();
    std::size_t measured = 0;
    for (const ClockPoint clock : few_points()) {
        const bool within = truth(gemm, clock).time <= limit;
        const bool found = profile.kernels()[0].find(clock) != nullptr;
        EXPECT_TRUE(within || !found) << to_string(clock);
        measured += found ? 1 : 0;
    }
    EXPECT_GE(measured, 3U);
    const Plan plan = make_plan(mean_costs(profile), bounded.objective, Aggregate::local);
    EXPECT_LE(plan.kernels[0].expected.time, limit);
    std::printf("limit %.3f ms, longest launch %.3f ms, %zu points\n", limit.count() * 1e3,
                longest.count() * 1e3, measured);
}

TEST_F(InApplication, KeepsItsSlowdownBelowTheBound) {
    for (const double bound : {0.02, 0.1, 0.5}) {
        const Gpu gpu = simulated::open(device, options);
        SweepOptions bounded = quick();
        bounded.max_slowdown = bound;
        TimePoint began = device.now();
        std::uint64_t iterations = 0;
        {
            const Sweeping<Policies> sweep{gpu, bounded};
            iterations = run(sweep);
        }
        const Seconds swept = device.now() - began;
        began = device.now();
        const auto baseline = gpu.with<PolicyRegistry<Default<AutoClock>>>();
        for (int i = 0; i < 100; ++i) iterate(baseline);
        const Seconds each = Seconds{device.now() - began} / 100;
        const double slowdown = swept / (each * static_cast<double>(iterations)) - 1;
        std::printf("bound %.0f %%: slowed by %.2f %% over %llu iterations\n", 100 * bound,
                    100 * slowdown, static_cast<unsigned long long>(iterations));
        EXPECT_LT(slowdown, bound + 0.002);  // markers of metered iterations
        EXPECT_GT(slowdown, 0);
    }
}

TEST_F(InApplication, WorksWithAHostThatRunsAhead) {
    const Gpu gpu = simulated::open(device, options);
    const Sweeping<Policies> sweep{gpu, quick()};
    run(sweep, 7);
    expect_true(sweep.profile(), {"gemm", {}}, gemm);
    EXPECT_EQ(sweep.progress().blocks_dropped, 0U);
}

TEST_F(InApplication, SharesTheDeviceOutAmongStreams) {
    const Gpu gpu = simulated::open(device, options);
    simulated::Stream* other = device.create_stream();
    const Sweeping<Policies> sweep{gpu, quick()};
    for (int i = 0; i < 100'000 && !sweep.done(); ++i) {
        sweep.next_iteration();
        for (int layer = 0; layer < 5; ++layer) {
            launch<Gemm>(sweep, stream, [&] { device.launch(stream, gemm); });
            launch<Copy>(sweep, other, [&] { device.launch(other, copy); });
        }
        device.synchronize();
    }
    EXPECT_TRUE(sweep.done());
    EXPECT_EQ(sweep.progress().blocks_dropped, 0U);
    const TimePoint began = device.now();
    const Joules before = device.true_energy();
    for (int layer = 0; layer < 5; ++layer) {
        device.launch(stream, gemm);
        device.launch(other, copy);
    }
    device.synchronize();
    const Profile profile = sweep.profile();
    Joules sum;
    for (const KernelProfile& kernel : profile.kernels())
        sum += kernel.find(ClockPoint{})->mean().energy * kernel.count;
    EXPECT_NEAR(sum / (device.true_energy() - before), 1, 0.03);
    EXPECT_GT(device.now(), began);
}

TEST_F(InApplication, FollowsTheRegistryOnceItIsDone) {
    const Gpu gpu = simulated::open(device, options);
    const Sweeping<Policies> sweep{gpu, quick()};
    run(sweep);
    sweep.next_iteration();
    ClockPoint in_copy;
    {
        FrequencyScope<Copy> scope{sweep, stream};
        for (int i = 0; i < 20; ++i) device.launch(stream, copy);
        device.call_back(stream, [&] { in_copy = device.effective_clocks(); });
    }
    device.synchronize(stream);
    device.advance(5ms);
    EXPECT_EQ(in_copy, (ClockPoint{{800}, auto_clock}));
    EXPECT_EQ(device.effective_clocks(), ClockPoint{});
}

/// A stream that was used to the end of the sweep and never again holds no clock of it.
TEST_F(InApplication, LetsGoOfAStreamThatRestsOnceItIsDone) {
    const Gpu gpu = simulated::open(device, options);
    simulated::Stream* other = device.create_stream();
    const Sweeping<Policies> sweep{gpu, quick()};
    for (int i = 0; i < 100'000; ++i) {
        sweep.next_iteration();
        if (sweep.done()) break;
        launch<Kept>(sweep, other, [&] { device.launch(other, copy); });
        iterate(sweep);
        device.synchronize(other);
    }
    ASSERT_TRUE(sweep.done());
    ClockPoint in_copy;
    {
        FrequencyScope<Copy> scope{sweep, stream};
        for (int i = 0; i < 20; ++i) device.launch(stream, copy);
        device.call_back(stream, [&] { in_copy = device.effective_clocks(); });
    }
    device.synchronize(stream);
    device.advance(5ms);
    EXPECT_EQ(in_copy, (ClockPoint{{800}, auto_clock}));
    EXPECT_EQ(device.effective_clocks(), ClockPoint{});
}

TEST_F(InApplication, LeavesTheClocksAsFoundWhenItIsCutShort) {
    const Gpu gpu = simulated::open(device, options);
    {
        const Sweeping<Policies> sweep{gpu, quick()};
        for (int i = 0; i < 200 && device.effective_clocks().is_auto(); ++i) {
            sweep.next_iteration();
            iterate(sweep);
        }
        ASSERT_FALSE(device.effective_clocks().is_auto());
    }
    device.synchronize();
    device.advance(5ms);
    EXPECT_TRUE(device.effective_clocks().is_auto());
    gpu.check();
}

TEST_F(InApplication, GoesOnWhereItsFileEnds) {
    const auto path = std::filesystem::temp_directory_path() /
                      ("kdvfs_in_application_" + std::to_string(::getpid()) + ".csv");
    std::filesystem::remove(path);
    SweepOptions to_file = quick();
    to_file.file = path;
    const Gpu gpu = simulated::open(device, options);
    std::uint64_t whole = 0;
    {
        const Sweeping<Policies> sweep{gpu, to_file};
        for (int i = 0; i < 150; ++i) {
            sweep.next_iteration();
            iterate(sweep);
        }
        ASSERT_FALSE(sweep.done());
        ASSERT_GT(sweep.progress().points_measured, 1U);
    }
    const std::size_t begun = read_profile(path).kernels().front().points.size();
    {
        const Sweeping<Policies> sweep{gpu, to_file};
        whole = run(sweep);
    }
    const Profile profile = read_profile(path);
    EXPECT_GT(profile.kernels().front().points.size(), begun);
    for (const ProfilePoint& point : profile.kernels().front().points) {
        if (!point.clock.is_auto()) {
            EXPECT_EQ(point.samples.size(), 2U) << to_string(point.clock);
        }
    }
    {
        const Sweeping<Policies> sweep{gpu, to_file};
        EXPECT_LT(run(sweep), whole / 2) << "there was nothing left but to warm up";
    }
    std::filesystem::remove(path);
}

TEST_F(InApplication, GivesUpClocksThatDoNotHold) {
    const Gpu gpu = simulated::open(device, options);
    simulated::Stream* other = device.create_stream();
    gpu.protect(other);  // a standing vote for auto
    const Sweeping<Policies> sweep{gpu, quick()};
    run(sweep);
    EXPECT_EQ(sweep.profile().kernels().front().points.size(), 1U);
    EXPECT_GE(sweep.progress().points_given_up, 3U);
}

/// A loop of one kernel on a counter of its own; the sampler reads every 10 ms, as by default.
class EndsOrThrows : public ::testing::TestWithParam<std::tuple<Seconds, Duration>> {};

TEST_P(EndsOrThrows, WithinTwiceTheStatedTime) {
    const auto [iteration, period] = GetParam();
    simulated::Device device{simulated::mi210(),
                             {.clock_switch = simulated::uniform_switch(2ms),
                              .energy_counter = simulated::EnergyCounterTraits{
                                  .period = period, .quantum = {1.0 / 65536}, .noise = {1e-4}}}};
    simulated::Stream* stream = device.create_stream();
    simulated::KernelModel gemm = roofline(device.board(), {.matrix_flops = 1e11});
    const Seconds once = simulated::operate(device.board(), gemm, ClockPoint{}).time;
    gemm = roofline(device.board(), {.matrix_flops = 1e11 * (iteration / once)});
    const Gpu gpu = simulated::open(device);
    SweepOptions stated = quick();
    stated.longest = std::max<Duration>(20s, std::chrono::round<Duration>(iteration * 100));
    stated.longest_without_any = stated.longest / 4;
    const TimePoint began = device.now();
    const Sweeping<Policies> sweep{gpu, stated};
    try {
        while (!sweep.done()) {
            sweep.next_iteration();
            launch<Gemm>(sweep, stream, [&] { device.launch(stream, gemm); });
            device.synchronize(stream);
            ASSERT_LT(device.now() - began, 2 * stated.longest) << to_string(sweep.progress());
        }
        EXPECT_GT(sweep.progress().points_measured, 1U);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::not_supported);
        EXPECT_NE(std::string{error.what()}.find("need about"), std::string::npos) << error.what();
        EXPECT_TRUE(sweep.done());  // the program goes on without
    }
    std::printf("iterations of %g s, a counter of %g s: %s\n", iteration.count(),
                Seconds{period}.count(), to_string(sweep.progress()).c_str());
    // Where a block's rows fit into a tenth of the stated time, there is no excuse.
    if (40 * std::max<Duration>(period, 10ms) * 10 < stated.longest && iteration < Seconds{1}) {
        EXPECT_GT(sweep.progress().points_measured, 1U);
    }
}

INSTANTIATE_TEST_SUITE_P(Iterations, EndsOrThrows,
                         ::testing::Combine(::testing::Values(Seconds{5e-4}, Seconds{8.3e-3},
                                                              Seconds{0.083}, Seconds{5}),
                                            ::testing::Values(Duration{1ms}, Duration{10ms},
                                                              Duration{100ms})));

TEST_F(InApplication, SaysWhatItCouldNotTellOfEnergies) {
    const Gpu gpu = simulated::open(device, options);
    const Sweeping<Policies> sweep{gpu, quick()};
    run(sweep);
    const Profile profile = sweep.profile();
    for (const KernelProfile& kernel : profile.kernels())
        for (const ProfilePoint& point : kernel.points)
            for (const ProfileSample& sample : point.samples) {
                EXPECT_GT(sample.energy_sd.count, 0);
                EXPECT_LE(sample.energy_sd, sample.cost.energy);
                EXPECT_GT(sample.block, 0U);
            }
    // The total of what was measured together, known at least as well as its rows one by one.
    for (const auto& [id, together] : profile.blocks()) {
        double energy = 0;
        double deviations = 0;
        for (const KernelProfile& kernel : profile.kernels())
            for (const ProfileSample& sample : kernel.find(together.clock)->samples) {
                if (sample.block != id) continue;
                energy += kernel.count * sample.cost.energy.count;
                deviations += kernel.count * sample.energy_sd.count;
            }
        EXPECT_NEAR(energy / together.block.energy.count, 1, 1e-9);
        EXPECT_GT(together.block.energy_sd.count, 0);
        EXPECT_LE(together.block.energy_sd.count, deviations);
    }
}

TEST_F(InApplication, RefusesWhatItCannotSweep) {
    const Gpu gpu = simulated::open(device, options);
    const auto code_of = [](auto act) {
        try {
            act();
        } catch (const Error& error) {
            std::printf("%s\n", error.what());
            return error.code();
        }
        return Errc::io;
    };
    SweepOptions bad = quick();
    bad.points.push_back({{5000}, auto_clock});
    EXPECT_EQ(code_of([&] { Sweeping<Policies>(gpu, bad); }), Errc::invalid_input);
    bad = quick();
    bad.max_slowdown = 0;
    EXPECT_EQ(code_of([&] { Sweeping<Policies>(gpu, bad); }), Errc::invalid_input);
    bad = quick();
    bad.samples = 0;
    EXPECT_EQ(code_of([&] { Sweeping<Policies>(gpu, bad); }), Errc::invalid_input);

    const Sweeping<Policies> sweep{gpu, quick()};
    device.begin_capture(stream);
    EXPECT_EQ(code_of([&] { FrequencyScope<Gemm> scope{sweep, stream}; }), Errc::not_supported);
    static_cast<void>(device.end_capture(stream));
}

TEST_F(InApplication, RefusesAGpuThatIsOnlyMeasured) {
    device.faults().inject(simulated::Call::apply, simulated::Fault::refused);
    options.on_refused = OnRefused::measure_only;
    const Gpu gpu = simulated::open(device, options);
    ASSERT_TRUE(gpu.measure_only());
    EXPECT_THROW((Sweeping<Policies>{gpu, quick()}), Error);
}

TEST(InApplicationSweep, IsAsGoodAsTheIsolatedSweepOnMi300x) {
    const InApplicationComparison found = compare_in_application("mi300x", {}, 0.01, 5);
    std::printf(
        "simulated MI300X: isolated %+.2f %% energy at %+.2f %% time, in the application %+.2f %% "
        "at %+.2f %%; %s\n",
        energy_percent(found.isolated, found.baseline),
        time_percent(found.isolated, found.baseline),
        energy_percent(found.application, found.baseline),
        time_percent(found.application, found.baseline), to_string(found.progress).c_str());
    EXPECT_LT(energy_percent(found.application, found.baseline),
              energy_percent(found.isolated, found.baseline) + 1);
    EXPECT_LT(time_percent(found.application, found.baseline), 1.1);
    EXPECT_LT(found.slowdown_pct, 5);
}

}  // namespace
}  // namespace kdvfs::tune
