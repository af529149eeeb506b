// SPDX-License-Identifier: MIT
// Plans for programs whose iterations are not alike: what is found in them, and that the plan is
// what an independent replay says.
#include <kdvfs/detail/tune/launch_recorder.hpp>
#include <kdvfs/detail/tune/trace_planner.hpp>
#include <kdvfs/detail/tune/work_mix.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/segments.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::tune {
namespace {

using namespace std::chrono_literals;
using detail::LaunchTrace;

constexpr ClockPoint automatic{};
ClockPoint at(std::uint32_t core) { return {{core}, auto_clock}; }

/// gemm needs the core clock, copy does not, update a little.
CostTable recorded_costs() {
    Profile profile{"simulated"};
    const auto add = [&](const char* kernel, ClockPoint clock, double time, double energy) {
        profile.add({{kernel, {}}, clock, {Seconds{time}, Joules{energy}}});
    };
    for (const std::uint32_t core : {0U, 1200U, 900U, 600U}) {
        const ClockPoint clock = core == 0 ? automatic : at(core);
        const double slow = core == 0 ? 1 : 1500.0 / core;
        const double power = core == 0 ? 500 : 200 + 300 * std::pow(core / 1500.0, 3);
        add("gemm", clock, 0.1 * slow, 0.1 * slow * power);
        add("copy", clock, 0.1, 0.1 * (power - 100));
        add("update", clock, 0.05 * (0.8 + 0.2 * slow), 0.05 * (0.8 + 0.2 * slow) * power);
    }
    return mean_costs(profile);
}

/// An iteration of launches by their first letters, as long as the table says.
LaunchTrace::Iteration iteration(const std::string& letters, double count = 1, double scale = 1) {
    LaunchTrace::Iteration all{count, {}};
    for (const char letter : letters) {
        const std::uint32_t kernel = letter == 'g' ? 0 : letter == 'c' ? 1 : 2;
        all.launches.push_back(
            {kernel, 0, Seconds{scale * (kernel == 2 ? 0.05 : 0.1)}, Seconds{0}});
    }
    return all;
}
LaunchTrace trace(std::vector<LaunchTrace::Iteration> iterations) {
    return {{{"gemm", {}}, {"copy", {}}, {"update", {}}}, std::move(iterations)};
}

SegmentPlan plan(const LaunchTrace& recorded, double latency, double bound,
                 double worthwhile_pct = 0.03) {
    SegmentOptions options;
    options.worthwhile_pct = worthwhile_pct;
    return plan_program(recorded_costs(), {}, recorded, uniform_switch_costs(Seconds{latency}),
                        with_confidence(relaxed_waste(bound), 0.5), options);
}

/// By hand: what launches by name cost, each at its own clock, where a switch takes a latency.
Cost replayed(const std::vector<std::string>& iterations, const PlannedSequence& sequence,
              double latency) {
    const CostTable costs = recorded_costs();
    const auto cost_of = [&](const std::string& name, ClockPoint clock) {
        for (const KernelCosts& kernel : costs.kernels)
            for (const PointCost& point : kernel.points)
                if (kernel.key.name == name && point.clock == clock) return point.cost;
        return Cost{};
    };
    ClockPoint held{};
    ClockPoint asked{};
    double left = 0;
    Cost sum;
    for (int lap = 0; lap < 2; ++lap) {
        sum = {};
        for (const std::string& letters : iterations)
            for (const char letter : letters) {
                const std::string name = letter == 'g' ? "gemm" : letter == 'c' ? "copy" : "update";
                for (const PlannedSequence::Kernel& kernel : sequence.kernels) {
                    if (kernel.key.name != name || !kernel.own.asks || kernel.own.point == asked)
                        continue;
                    asked = kernel.own.point;
                    left = latency;
                }
                const Cost old = cost_of(name, held);
                double share = held == asked ? 0 : std::min(1.0, left / old.time.count());
                left -= share * old.time.count();
                sum += old * share + cost_of(name, asked) * (1 - share);
                if (share < 1) held = asked;
            }
    }
    return sum;
}

TEST(TracePlan, RareKernelsCountAsOftenAsTheyCome) {
    // An update in one of eight micro-steps, as long as four gemms.
    LaunchTrace recorded = trace({iteration("gc", 7), iteration("gcu", 1)});
    recorded.iterations[1].launches[2].time = Seconds{0.4};
    const SegmentPlan found = plan(recorded, 0, 0);
    EXPECT_NEAR(found.baseline.time.count(), (8 * 0.2 + 0.4) / 8, 1e-12);
    EXPECT_NEAR(found.baseline.energy.count, (8 * (50 + 40) + 8 * 25) / 8.0, 1e-9);
}

TEST(TracePlan, ClocksByKernelAreWhatAReplayByHandSays) {
    std::mt19937_64 random{7};
    for (const double latency : {0.0, 0.002, 0.03, 0.15}) {
        LaunchTrace recorded = trace({});
        std::vector<std::string> texts;
        for (int i = 0; i < 24; ++i) {
            std::string letters;
            for (int n = 6 + static_cast<int>(random() % 8); n > 0; --n)
                letters += "gcu"[random() % 3];
            texts.push_back(letters);
            recorded.iterations.push_back(iteration(letters));
        }
        const SegmentPlan found = plan(recorded, latency, 0.03);
        const Cost baseline = replayed(texts, {}, latency) * (1.0 / 24);
        EXPECT_NEAR(found.baseline.time.count(), baseline.time.count(), 1e-9);
        EXPECT_LE(found.expected.time.count(), baseline.time.count() * 1.03 * (1 + 1e-9));
        // The best of all ways to give three kernels clocks, by the replay by hand.
        double best = baseline.energy.count;
        PlannedSequence tried;
        for (const char* name : {"gemm", "copy", "update"})
            tried.kernels.push_back({{name, {}}, {}, {.asks = true}});
        const ClockPoint clocks[]{automatic, at(1200), at(900), at(600)};
        for (int code = 0; code < 64; ++code) {
            for (int k = 0; k < 3; ++k)
                tried.kernels[static_cast<std::size_t>(k)].own.point =
                    clocks[(code >> (2 * k)) % 4];
            const Cost cost = replayed(texts, tried, latency) * (1.0 / 24);
            if (cost.time.count() <= baseline.time.count() * 1.03)
                best = std::min(best, cost.energy.count);
        }
        EXPECT_LE(found.expected.energy.count, best * (1 + 1e-4)) << latency;
        if (found.sequence.launches.empty() || found.level.starts_with("segments")) continue;
        const Cost by_hand = replayed(texts, found.sequence, latency) * (1.0 / 24);
        EXPECT_NEAR(found.expected.energy.count, by_hand.energy.count, 1e-3) << latency;
        EXPECT_NEAR(found.expected.time.count(), by_hand.time.count(), 1e-5) << latency;
    }
}

TEST(TracePlan, AtALatencyThatForbidsSwitchesThePlanIsOneClock) {
    std::mt19937_64 random{3};
    LaunchTrace recorded = trace({});
    for (int i = 0; i < 30; ++i) {
        std::string letters;
        for (int n = 0; n < 12; ++n) letters += "gc"[random() % 2];
        recorded.iterations.push_back(iteration(letters));
    }
    const SegmentPlan found = plan(recorded, 5, 0.02);
    ASSERT_EQ(found.sequence.boundaries.size(), 1U);
    for (const PlannedSequence::Kernel& kernel : found.sequence.kernels)
        EXPECT_TRUE(!kernel.own.asks || kernel.own.point == found.segments[0].clock);
    EXPECT_FALSE(found.reason.empty());
}

TEST(TracePlan, AKernelThatWasNeverMeasuredRunsAtTheBaseline) {
    LaunchTrace recorded = trace({iteration("gccgcc", 19), iteration("gccgcc", 1)});
    recorded.kernels.push_back({"validate", {}});
    recorded.iterations[1].launches.push_back({3, 0, Seconds{0}, Seconds{0}});
    const SegmentPlan found = plan(recorded, 0.001, 0.02);
    for (const PlannedSequence::Kernel& kernel : found.sequence.kernels) {
        if (kernel.key.name != "validate") continue;
        EXPECT_TRUE(kernel.own.asks);
        EXPECT_EQ(kernel.own.point, automatic);
    }
}

TEST(TracePlan, PhasesShareAClockWhereThatIsAsGood) {
    // forward: gemms; backward: copies; in an order that is never the same.
    LaunchTrace recorded{{{"gemm", {}}, {"copy", {}}, {"forward", {}}, {"backward", {}}}, {}};
    std::mt19937_64 random{5};
    for (int i = 0; i < 20; ++i) {
        LaunchTrace::Iteration& each = recorded.iterations.emplace_back();
        for (const std::uint32_t phase : {2U, 3U}) {
            each.launches.push_back({phase, 0, Seconds{1e-6}, Seconds{0}});
            for (std::size_t n = 8 + random() % 4; n > 0; --n)
                each.launches.push_back({phase - 2, 1, Seconds{0.1}, Seconds{0}});
        }
    }
    const SegmentPlan found = plan(recorded, 0.001, 0.001, 0.3);
    EXPECT_EQ(found.level, "clocks change by phase");
    ASSERT_EQ(found.sequence.launches.size(), 2U);
    EXPECT_LT(found.energy_pct(), -15);
    EXPECT_LE(found.time_pct(), 0.1);
}

TEST(TracePlan, FindsTheCommonIterationOfChangedOnes) {
    const std::vector<std::uint32_t> clean{0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 3, 4, 3, 4, 5};
    std::mt19937_64 random{11};
    for (int round = 0; round < 20; ++round) {
        std::vector<detail::WeightedLaunches> iterations;
        for (int i = 0; i < 40; ++i) {
            detail::WeightedLaunches& changed = iterations.emplace_back();
            for (const std::uint32_t name : clean) {
                const std::uint64_t luck = random() % 30;
                if (luck != 0) changed.names.push_back(name);
                if (luck == 1) changed.names.push_back(name);
                if (luck == 2) changed.names.push_back(6);
            }
        }
        EXPECT_EQ(detail::LaunchTemplate{iterations}.names(), clean) << round;
    }
}

TEST(TracePlan, AlignsWithTheFewestEdits) {
    // Against the textbook recursion without a band.
    std::mt19937_64 random{13};
    for (int round = 0; round < 200; ++round) {
        std::vector<std::uint32_t> a(random() % 12);
        std::vector<std::uint32_t> b(random() % 12);
        for (auto* names : {&a, &b})
            for (std::uint32_t& name : *names) name = static_cast<std::uint32_t>(random() % 3);
        std::vector<std::vector<std::size_t>> d(a.size() + 1,
                                                std::vector<std::size_t>(b.size() + 1));
        for (std::size_t i = 0; i <= a.size(); ++i)
            for (std::size_t j = 0; j <= b.size(); ++j) {
                d[i][j] = i + j;
                if (i > 0) d[i][j] = std::min(d[i][j], d[i - 1][j] + 1);
                if (j > 0) d[i][j] = std::min(d[i][j], d[i][j - 1] + 1);
                if (i > 0 && j > 0 && a[i - 1] == b[j - 1])
                    d[i][j] = std::min(d[i][j], d[i - 1][j - 1]);
            }
        const detail::Alignment alignment{a, b};
        EXPECT_EQ(alignment.edits(), d[a.size()][b.size()]);
        std::size_t same = 0;
        for (std::size_t n = 0; n < b.size(); ++n) {
            const std::size_t place = alignment.places()[n];
            if (place == detail::Alignment::nowhere) continue;
            ++same;
            EXPECT_EQ(a[place], b[n]);
        }
        EXPECT_EQ(a.size() + b.size() - 2 * same, alignment.edits());
    }
}

TEST(TracePlan, OwnClocksAreInPlanFilesAndFollowed) {
    LaunchTrace recorded = trace({iteration("gc", 7), iteration("gcu", 1)});
    SegmentPlan found = plan(recorded, 0.001, 0.02);
    const PlannedSequence read = parse_sequence(to_json(found), "plan.json");
    ASSERT_EQ(read.kernels.size(), found.sequence.kernels.size());
    for (std::size_t k = 0; k < read.kernels.size(); ++k)
        EXPECT_EQ(read.kernels[k].own, found.sequence.kernels[k].own);
    const kdvfs::detail::PlanTrack track{read};
    kdvfs::detail::PlanFollower follower{track};
    std::mt19937_64 random{1};
    for (int i = 0; i < 100; ++i) {  // in any order each kernel has its clock, once it is lost
        const auto kernel = static_cast<kdvfs::detail::PlanKernel>(random() % 3);
        const auto own = track.own_clock(kernel);
        const kdvfs::detail::PlanClock clock = follower.launched(kernel);
        if (own) {
            EXPECT_EQ(clock, *own);
        }
        EXPECT_FALSE(own && follower.lost());
    }
    EXPECT_EQ(follower.counts().lost_launches, 0U);
}

TEST(LaunchTraceFile, KeepsWhatWasRecorded) {
    const auto path = std::filesystem::temp_directory_path() /
                      ("kdvfs_trace_" + std::to_string(::getpid()) + ".csv");
    LaunchTrace written = trace({iteration("gc", 2.5), iteration("gcu", 1, 1.5)});
    written.iterations[1].launches[1].gap = Seconds{0.125};
    written.iterations[1].launches[1].depth = 1;
    detail::write_trace(path, written);
    const LaunchTrace read = detail::read_trace(path);
    EXPECT_EQ(read.kernels, written.kernels);
    EXPECT_EQ(read.iterations, written.iterations);
    for (const char* line : {"0,1,gemm,0,0,-1,0", "0,0,gemm,0,0,1,0", "0,1,gemm,0,x,1,0", "0,1"}) {
        std::ofstream{path} << "iteration,count,kernel,variant,depth,time_s,gap_s\n"
                            << line << '\n';
        EXPECT_THROW(detail::read_trace(path), Error) << line;
    }
    std::filesystem::remove(path);
}

TEST(LaunchTraceFile, IsLimitedWithoutLosingIterations) {
    LaunchTrace recorded = trace({});
    for (int i = 0; i < 1000; ++i) recorded.iterations.push_back(iteration("gcu", 1 + i % 3));
    recorded.limit(300);
    EXPECT_LE(recorded.launches(), 300U);
    double count = 0;
    for (const auto& each : recorded.iterations) count += each.count;
    EXPECT_NEAR(count, 1999, 1e-6);
}

std::string repeat(const std::string& letters, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += letters;
    return all;
}

TEST(LaunchTraceFile, ALimitKeepsTheShareOfEachKindOfIteration) {
    // Kinds alternate, one comes once, and sizes of the others alternate, too.
    LaunchTrace recorded = trace({});
    for (int i = 0; i < 64; ++i)
        recorded.iterations.push_back(
            iteration(repeat(i % 2 == 0 ? "g" : "c", 100), 1, i % 4 < 2 ? 1 : 2));
    recorded.iterations.push_back(iteration("u", 3));
    recorded.limit(1000);
    EXPECT_LE(recorded.launches(), 1000U);
    std::map<std::uint32_t, double> counts;
    std::map<std::pair<std::uint32_t, double>, int> sizes;
    for (const auto& each : recorded.iterations) {
        counts[each.launches[0].kernel] += each.count;
        ++sizes[{each.launches[0].kernel, each.launches[0].time.count()}];
    }
    EXPECT_EQ(counts, (std::map<std::uint32_t, double>{{0, 32}, {1, 32}, {2, 3}}));
    EXPECT_EQ(sizes.size(), 5U);
}

TEST(LaunchTraceFile, ALimitHoldsWhereNoTwoIterationsAreAlike) {
    LaunchTrace recorded = trace({});
    for (int i = 0; i < 200; ++i)
        recorded.iterations.push_back(iteration(repeat("g", 50) + repeat("c", i)));
    recorded.limit(2000);
    EXPECT_LE(recorded.launches(), 2000U);
    EXPECT_GE(recorded.iterations.size(), 8U);
    double count = 0;
    for (const auto& each : recorded.iterations) count += each.count;
    EXPECT_NEAR(count, 200, 1e-9);
}

TEST(LaunchTraceFile, ALimitHoldsWhereManyKindsAreLongAndFrequent) {
    const auto limited = [](int kinds) {
        LaunchTrace recorded = trace({});
        for (int i = 0; i < 3 * kinds; ++i)
            recorded.iterations.push_back(
                iteration(repeat("g", 900 + i % kinds) + repeat("c", 100 - i % kinds)));
        recorded.limit(1000);
        double count = 0;
        for (const auto& each : recorded.iterations) count += each.count;
        EXPECT_NEAR(count, 3 * kinds, 1e-9) << kinds;
        return recorded.iterations.size();
    };
    EXPECT_EQ(limited(4), 4U);
    const std::size_t of_ten = limited(10);
    EXPECT_LE(of_ten, 4U);
    EXPECT_GE(of_ten, 2U);
}

TEST(TracePlan, IterationsThatAlternateAreAllPlannedFor) {
    // Half of the iterations need the core clock. With 16 times 250 launches the search has a
    // sample of them.
    LaunchTrace recorded = trace({});
    for (int i = 0; i < 16; ++i)
        recorded.iterations.push_back(iteration(repeat(i % 2 == 0 ? "g" : "c", 250)));
    const SegmentPlan whole = plan(recorded, 0.001, 0.01);
    EXPECT_LT(whole.energy_pct(), -15);
    recorded.limit(2000);
    const SegmentPlan cut = plan(recorded, 0.001, 0.01);
    EXPECT_NEAR(cut.energy_pct(), whole.energy_pct(), 0.5);
}

TEST(SequenceRecorder, ASampleKeepsKindsThatAlternate) {
    SequenceRecorder recorder;
    const std::uint32_t length = 1000;
    for (std::uint32_t i = 0; i < 200; ++i) {
        std::vector<KernelInterval> runs;
        for (std::uint32_t n = 0; n < length; ++n) {
            recorder.launched({0}, {1 + i % 2});
            runs.push_back({.kernel = {1 + i % 2},
                            .start = TimePoint{(i * length + n) * 10us},
                            .end = TimePoint{(i * length + n) * 10us + 8us}});
        }
        recorder.end_iteration(i + 1);
        recorder.ran(runs, 1, i + 1);
    }
    std::map<std::uint32_t, int> timed;
    for (const RecordedIteration& each : recorder.sample([](KernelId) { return Seconds{1}; }))
        if (!each.times.empty()) ++timed[each.launches[0].value];
    ASSERT_EQ(timed.size(), 2U);
    EXPECT_LE(std::abs(timed[1] - timed[2]), 2);
}

TEST(SequenceRecorder, SamplesIterationsWithTheirTimes) {
    SequenceRecorder recorder;
    const auto run = [](std::uint32_t kernel, int start, int end) {
        return KernelInterval{
            .kernel = {kernel}, .start = TimePoint{start * 1us}, .end = TimePoint{end * 1us}};
    };
    for (int i = 0; i < 80; ++i) {  // 1 2, and 3 in each eighth; one of each is measured
        recorder.launched({0}, {1});
        recorder.launched({0}, {2});
        if (i % 8 == 7) recorder.launched({0}, {3});
        recorder.end_iteration(i == 6 || i == 7 ? 5 : 0);
    }
    recorder.ran(
        std::vector{run(1, 0, 10), run(2, 15, 25), run(1, 30, 50), run(2, 50, 60), run(3, 60, 100)},
        2, 5);
    const auto sample = recorder.sample([](KernelId) { return Seconds{1}; });
    ASSERT_EQ(sample.size(), 2U);
    EXPECT_DOUBLE_EQ(sample[0].count, 70);
    EXPECT_DOUBLE_EQ(sample[1].count, 10);
    ASSERT_EQ(sample[1].times.size(), 3U);
    EXPECT_NEAR(sample[1].times[0].count(), 20e-6, 1e-12);
    EXPECT_NEAR(sample[1].times[2].count(), 40e-6, 1e-12);
    EXPECT_NEAR(sample[0].gaps[1].count(), 5e-6, 1e-12);
    EXPECT_NEAR(sample[1].gaps[0].count(), 5e-6, 1e-12);
}

TEST(WorkMix, FindsTheShiftOfSizesThatComeAgain) {
    std::mt19937_64 random{17};
    std::normal_distribution<double> jitter{0, 0.001};
    const auto launches = [&](int count, double factor) {
        std::vector<double> times;
        for (int i = 0; i < count; ++i)
            times.push_back(factor * static_cast<double>(1 + random() % 16) *
                            std::exp(jitter(random)));
        return times;
    };
    detail::WorkMix mix;
    EXPECT_FALSE(mix.has_sizes());
    mix.add(launches(300, 1e-3));
    ASSERT_TRUE(mix.has_sizes());
    for (const double slow : {1.0, 1.07, 1.5, 2.7}) {
        const auto shift = mix.shift(launches(8, 1e-3 * slow), std::log(3));
        ASSERT_TRUE(shift);
        EXPECT_NEAR(std::exp(*shift), slow, 0.003 * slow);
    }
    detail::WorkMix smooth;  // sizes that never come again tell nothing
    std::uniform_real_distribution<double> any{1, 16};
    std::vector<double> times;
    for (int i = 0; i < 300; ++i) times.push_back(any(random));
    smooth.add(times);
    EXPECT_FALSE(smooth.has_sizes());
    detail::WorkMix same;
    same.add(std::vector<double>(100, 1.0));
    EXPECT_FALSE(same.has_sizes());
}

}  // namespace
}  // namespace kdvfs::tune
