// SPDX-License-Identifier: MIT
// What a sweep records of a program's launches, and that a plan made of it is followed.
#include <kdvfs/detail/tune/launch_recorder.hpp>
#include <kdvfs/detail/tune/ranks.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/segments.hpp>
#include <kdvfs/tune/session.hpp>
#include <kdvfs/tune/sweep.hpp>
#include <kdvfs/tune/switch_costs.hpp>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

using namespace std::chrono_literals;

std::vector<std::uint32_t> values(const RecordedSequence& sequence) {
    std::vector<std::uint32_t> kernels;
    for (const KernelId kernel : sequence.launches) kernels.push_back(kernel.value);
    return kernels;
}

void iterate(SequenceRecorder& recorder, TrackId track, const std::vector<std::uint32_t>& kernels) {
    for (const std::uint32_t kernel : kernels) recorder.launched(track, {kernel});
    recorder.end_iteration();
}

const auto second = [](KernelId) { return Seconds{1}; };

TEST(SequenceRecorder, KeepsTheMostFrequentSequence) {
    SequenceRecorder recorder;
    recorder.end_iteration();
    iterate(recorder, {0}, {1, 2, 3});
    EXPECT_FALSE(recorder.typical(second)) << "one iteration alone may be the warm-up";
    iterate(recorder, {0}, {1, 2, 2, 3});
    iterate(recorder, {0}, {1, 2, 2, 3});
    iterate(recorder, {0}, {9});
    EXPECT_EQ(values(*recorder.typical(second)), (std::vector<std::uint32_t>{1, 2, 2, 3}));
    for (std::uint32_t rare = 10; rare < 40; ++rare) iterate(recorder, {0}, {rare});
    EXPECT_EQ(values(*recorder.typical(second)), (std::vector<std::uint32_t>{1, 2, 2, 3}));
}

TEST(SequenceRecorder, KeepsTheStreamWithMostTime) {
    SequenceRecorder recorder;
    for (int i = 0; i < 3; ++i) {
        for (const std::uint32_t kernel : {1U, 1U, 1U}) recorder.launched({0}, {kernel});
        for (const std::uint32_t kernel : {7U, 8U}) recorder.launched({1}, {kernel});
        recorder.end_iteration();
    }
    EXPECT_EQ(values(*recorder.typical(second)), (std::vector<std::uint32_t>{1, 1, 1}));
    const auto time = [](KernelId kernel) { return Seconds{kernel.value == 1 ? 0.1 : 1}; };
    EXPECT_EQ(values(*recorder.typical(time)), (std::vector<std::uint32_t>{7, 8}));
}

TEST(SequenceRecorder, AveragesTheGapsOfIterationsThatRanAsRecorded) {
    SequenceRecorder recorder;
    for (int i = 0; i < 2; ++i) iterate(recorder, {0}, {1, 2});
    const auto at = [](int microseconds) { return TimePoint{microseconds * 1us}; };
    const auto interval = [&](std::uint32_t kernel, int start, int end) {
        return KernelInterval{.kernel = {kernel}, .start = at(start), .end = at(end)};
    };
    // 1 runs for 10 us, then a gap of 5; 2 runs for 10 us, then a gap of 20.
    const std::vector<KernelInterval> runs{interval(1, 0, 10), interval(2, 15, 25),
                                           interval(1, 45, 55), interval(2, 60, 70)};
    recorder.ran(runs, 2);
    const auto gaps = recorder.typical(second)->gaps;
    ASSERT_EQ(gaps.size(), 2U);
    EXPECT_NEAR(gaps[0].count(), 20e-6, 1e-9);
    EXPECT_NEAR(gaps[1].count(), 5e-6, 1e-9);
    recorder.ran(std::span{runs}.first(3), 2);  // not whole iterations
    EXPECT_EQ(recorder.typical(second)->gaps, gaps);
}

TEST(LaunchFiles, KeepNamesAndGaps) {
    const auto path = std::filesystem::temp_directory_path() /
                      ("kdvfs_launches_" + std::to_string(::getpid()) + ".csv");
    const LaunchSequence written{{{"gelu", {}}, {"gemm<1,2>", variant(3)}},
                                 {Seconds{0.25}, Seconds{0}}};
    write_launches(path, written);
    const LaunchSequence read = read_launches(path);
    EXPECT_EQ(read.launches, written.launches);
    EXPECT_EQ(read.gaps, written.gaps);
    EXPECT_EQ(read_sequence(path), written.launches);
    write_launches(path, {written.launches, {}});
    EXPECT_TRUE(read_launches(path).gaps.empty());
    std::filesystem::remove(path);
    EXPECT_EQ(sequence_path("folder/profile.csv"), "folder/profile.sequence.csv");
}

struct Layer : Kernel<"layer"> {};
struct Gemm : Kernel<"gemm"> {};
struct Copy : Kernel<"copy"> {};
using Policies = PolicyRegistry<Bind<"layer", KeepClock>, Default<AutoClock>>;

/// A small training loop on a simulated MI210 whose clocks follow after 1 ms.
class RecordedProgram : public ::testing::Test {
protected:
    template <class View>
    void iterate(const View& view) {
        view.next_iteration();
        for (int layer = 0; layer < 3; ++layer) {
            FrequencyScope<Layer> scope{view, stream};
            launch<Gemm>(view, stream, [&] { device.launch(stream, gemm); });
            for (std::uint32_t i = 0; i < 4; ++i)
                launch<Copy>(view, stream, variant(i % 2), [&] { device.launch(stream, copy); });
        }
        device.synchronize(stream);
        device.advance(1ms);  // the host prepares the next batch
    }

    simulated::Device device{simulated::mi210(),
                             {.clock_switch = simulated::uniform_switch(1ms),
                              .energy_counter = simulated::EnergyCounterTraits{
                                  .period = 1ms, .quantum = {1.0 / 65536}, .noise = {1e-4}}}};
    simulated::Stream* stream = device.create_stream();
    simulated::KernelModel gemm = roofline(device.board(), {.matrix_flops = 2e12});
    simulated::KernelModel copy = roofline(device.board(), {.memory_bytes = 8e9});
};

TEST_F(RecordedProgram, IsPlannedAndFollowed) {
    const auto folder =
        std::filesystem::temp_directory_path() / ("kdvfs_recorded_" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    GpuOptions options;
    options.sampler.period = 1ms;
    options.listen_every = Duration{0};
    const Gpu gpu = simulated::open(device, options);
    SweepOptions quick;
    quick.file = folder / "profile.csv";
    for (const std::uint32_t core : {800U, 1100U, 1400U})
        quick.points.push_back({{core}, auto_clock});
    quick.block.settle = 40ms;
    quick.block.switch_latency = 2ms;
    quick.block.measured = 40ms;
    quick.block.counter_rows = 40;
    quick.max_slowdown = 0.5;
    {
        const Session<Policies> session{gpu, parse_session_mode("sweep:" + quick.file.string()),
                                        quick};
        for (int i = 0; i < 20'000 && !session.progress()->done; ++i) iterate(session);
        ASSERT_TRUE(session.progress()->done) << to_string(*session.progress());
    }
    const Profile profile = read_profile(quick.file);
    const LaunchSequence recorded = read_launches(sequence_path(quick.file));
    ASSERT_EQ(recorded.launches.size(), 18U);
    EXPECT_EQ(recorded.launches[0].name, "layer");
    EXPECT_EQ(recorded.launches[1].name, "gemm");
    EXPECT_EQ(recorded.launches[3], (KernelKey{"copy", variant(1)}));
    ASSERT_EQ(recorded.depths.size(), 18U);
    for (std::size_t i = 0; i < 18; ++i) EXPECT_EQ(recorded.depths[i], i % 6 == 0 ? 0U : 1U) << i;

    const CostTable table = mean_costs(profile);
    const ProgramLaunches program = match_launches(table, recorded.launches, recorded.gaps);
    EXPECT_EQ(program.launches.size(), 15U);
    ASSERT_EQ(program.unplanned.size(), 1U);
    EXPECT_EQ(program.unplanned[0].name, "layer");
    SwitchCosts costs = uniform_switch_costs(Seconds{0.001});
    costs.asking = 2us;
    const SegmentPlan plan = plan_segments(table, program, costs, relaxed_waste(0.02));
    EXPECT_GE(plan.segments.size(), 2U);

    const auto run = [&](const auto& view) {
        Cost cost;
        for (int i = 0; i < 4; ++i) {
            const TimePoint began = device.now();
            const Joules before = device.true_energy();
            iterate(view);
            cost = {device.now() - began, device.true_energy() - before};
        }
        return cost;
    };
    const Cost on_auto = run(gpu.with<Policies>());
    EXPECT_EQ(device.read_clock_state(), ClockState{});
    kdvfs::detail::write_file_atomically(folder / "plan.json", to_json(plan));
    ::chmod((folder / "plan.json").c_str(), 0600);
    const Session<Policies> following{
        gpu, parse_session_mode("follow:" + (folder / "plan.json").string())};
    const Cost followed = run(following);
    const auto report = gpu.report();
    std::printf(
        "simulated, recorded by a sweep: %zu segments, promised time %+.2f %% energy "
        "%+.2f %%, followed time %+.2f %% energy %+.2f %%\n",
        plan.segments.size(), plan.time_pct(), plan.energy_pct(), time_percent(followed, on_auto),
        energy_percent(followed, on_auto));
    EXPECT_EQ(report.followed->share(), 1);
    EXPECT_NEAR(energy_percent(followed, on_auto), plan.energy_pct(), 0.5);
    EXPECT_LE(time_percent(followed, on_auto), 2.1);
    std::filesystem::remove_all(folder);
}

/// One of several GPUs of a process, and the program's part on it.
struct Rank {
    simulated::Device device{simulated::mi210(),
                             {.clock_switch = simulated::uniform_switch(1ms),
                              .energy_counter = simulated::EnergyCounterTraits{
                                  .period = 1ms, .quantum = {1.0 / 65536}, .noise = {1e-4}}}};
    simulated::Stream* stream = device.create_stream();
    simulated::KernelModel gemm = roofline(device.board(), {.matrix_flops = 8e12});
    simulated::KernelModel copy = roofline(device.board(), {.memory_bytes = 3.2e10});
    Gpu gpu = [this] {
        GpuOptions options;
        options.sampler.period = 1ms;
        options.listen_every = Duration{0};
        return simulated::open(device, options);
    }();

    template <class View>
    void iterate(const View& view) {
        view.next_iteration();
        launch<Gemm>(view, stream, [&] { device.launch(stream, gemm); });
        launch<Copy>(view, stream, [&] { device.launch(stream, copy); });
        device.synchronize(stream);
    }
    template <class View>
    Cost run(const View& view) {
        iterate(view);
        const TimePoint began = device.now();
        const Joules before = device.true_energy();
        for (int i = 0; i < 3; ++i) iterate(view);
        return {device.now() - began, device.true_energy() - before};
    }
};

TEST(SeveralGpus, EachHasItsSessionAndEqualOnesShareAPlan) {
    const auto folder =
        std::filesystem::temp_directory_path() / ("kdvfs_ranks_live_" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    std::array<Rank, 2> ranks;
    const SessionMode sweep = parse_session_mode("sweep:" + (folder / "profile.csv").string());
    SweepOptions quick;
    quick.points = {{{800}, auto_clock}, {{1400}, auto_clock}};
    quick.block.settle = 20ms;
    quick.block.switch_latency = 1ms;
    quick.block.measured = 20ms;
    quick.block.counter_rows = 20;
    quick.max_slowdown = 1;
    {
        const Session<Policies> one{ranks[0].gpu, sweep.of_rank(0), quick};
        const Session<Policies> other{ranks[1].gpu, sweep.of_rank(1), quick};
        for (int i = 0; i < 20'000 && !(one.done() && other.done()); ++i) {
            ranks[0].iterate(one);
            ranks[1].iterate(other);
        }
        ASSERT_TRUE(one.done() && other.done());
    }
    const auto measured = read_rank_profiles(folder / "profile.csv");
    ASSERT_EQ(measured.size(), 2U);
    const auto groups = equal_ranks(measured);
    ASSERT_EQ(groups.size(), 1U);
    const RankProfile merged = merge_ranks(measured, groups.front());
    const CostTable table = mean_costs(merged.profile);
    const SegmentPlan plan =
        plan_segments(table, match_launches(table, merged.sequence.launches, merged.sequence.gaps),
                      uniform_switch_costs(Seconds{0.001}), relaxed_waste(0.02));
    EXPECT_EQ(plan.segments.size(), 2U);
    kdvfs::detail::write_file_atomically(folder / "plan.json", to_json(plan));
    ::chmod((folder / "plan.json").c_str(), 0600);

    const SessionMode follow = parse_session_mode("follow:" + (folder / "plan.json").string());
    const auto both = [&](const auto& view_of) {
        Cost sum;
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            const Cost cost = ranks[r].run(view_of(r));
            sum = {std::max(sum.time, cost.time), sum.energy + cost.energy};
        }
        return sum;
    };
    const Cost on_auto = both([&](std::size_t r) { return ranks[r].gpu.with<Policies>(); });
    const Cost followed = both([&](std::size_t r) {
        return Session<Policies>{ranks[r].gpu, follow.of_rank(r)};
    });
    std::printf(
        "simulated, two equal GPUs: promised time %+.2f %% energy %+.2f %%, followed time %+.2f %% "
        "energy %+.2f %%\n",
        plan.time_pct(), plan.energy_pct(), time_percent(followed, on_auto),
        energy_percent(followed, on_auto));
    EXPECT_NEAR(energy_percent(followed, on_auto), plan.energy_pct(), 0.5);
    EXPECT_LT(plan.energy_pct(), -2);
    EXPECT_LE(time_percent(followed, on_auto), 2.1);
    // A rank with a plan of its own takes that.
    EXPECT_EQ(follow.of_rank(1).file, folder / "plan.json");
    kdvfs::detail::write_file_atomically(folder / "plan.rank1.json", to_json(plan));
    EXPECT_EQ(follow.of_rank(1).file, folder / "plan.rank1.json");
    EXPECT_EQ(follow.of_rank(0).file, folder / "plan.json");
    std::filesystem::remove_all(folder);
}

TEST_F(RecordedProgram, GoesOnWhereItsStatusCannotBeWritten) {
    const std::string folder = "/proc/self/no_such_folder";
    ::setenv("KDVFS_STATUS", (folder + "/status.json").c_str(), 1);
    ::testing::internal::CaptureStderr();
    {
        const Gpu gpu = simulated::open(device, {});
        const Session<Policies> session{gpu, parse_session_mode("measure")};
        session.next_iteration();
        iterate(session);
        EXPECT_EQ(gpu.report().scopes.scopes, 18U);
    }
    ::unsetenv("KDVFS_STATUS");
    const std::string said = ::testing::internal::GetCapturedStderr();
    const std::size_t first = said.find(folder);
    EXPECT_NE(first, std::string::npos) << said;
    EXPECT_EQ(said.find(folder, first + 1), std::string::npos) << "it is said once: " << said;
}

TEST_F(RecordedProgram, IsMeasuredOrLeftAlone) {
    const Gpu gpu = simulated::open(device, {});
    const std::uint64_t markers = device.markers();
    const Session<Policies> off{gpu, parse_session_mode("off")};
    iterate(off);
    EXPECT_EQ(device.markers(), markers);
    EXPECT_EQ(gpu.report().scopes.scopes, 0U);
    const Session<Policies> measured{gpu, parse_session_mode("measure")};
    iterate(measured);
    EXPECT_EQ(gpu.report().scopes.scopes, 18U);
    EXPECT_EQ(gpu.report().scopes.kept, 18U);
    for (const char* wrong : {"", "of", "sweep", "sweep:", "follow:", "off:x", "measure:"})
        EXPECT_THROW(parse_session_mode(wrong), Error) << wrong;
}

}  // namespace
}  // namespace kdvfs::tune
