// SPDX-License-Identifier: MIT
// The attribution on recorded runs: one made up here, whose truth is known exactly, and, where the
// repository has it, one recorded on a real GPU.
#include <bench/nvidia_round/mix_replay.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace measuring {
namespace {

using std::chrono::milliseconds;

const std::vector<std::string> names{"gemm", "copy", "gelu", "gemv"};
const std::vector<double> watts{700, 480, 650, 420};

/// Runs of 50-500 ms with a long one of each kernel among them.
RecordedMix made_up_runs(double seconds) {
    std::mt19937 random{4};
    RecordedMix mix;
    TimePoint time;
    const auto add = [&](std::size_t kernel, Duration length, bool truth) {
        mix.runs.push_back({names[kernel], time, time + length, truth});
        time += length + std::chrono::microseconds{30};
    };
    for (std::size_t i = 0; time < TimePoint{} + milliseconds{static_cast<int>(seconds * 1e3)};
         ++i) {
        if (i % 12 == 5 && i / 12 < names.size()) add(i / 12, milliseconds{5000}, true);
        add(random() % names.size(), milliseconds{50 + static_cast<int>(random() % 451)}, false);
    }
    return mix;
}

/// The joules of the runs up to a moment.
double joules_until(const RecordedMix& mix, TimePoint end) {
    double joules = 0;
    for (const MixRun& run : mix.runs) {
        const auto kernel = std::find(names.begin(), names.end(), run.kernel) - names.begin();
        const TimePoint last = std::min(run.end, end);
        if (last <= run.start) break;
        joules +=
            watts[static_cast<std::size_t>(kernel)] * kdvfs::Seconds{last - run.start}.count();
    }
    return joules;
}

/// What a meter with this response says of the runs, every 9.7 ms, with noise.
void meter(RecordedMix& mix, MeterResponse response, double noise) {
    std::mt19937 random{8};
    std::normal_distribution<double> normal{0, noise};
    for (TimePoint at = mix.runs.front().start + milliseconds{1}; at < mix.runs.back().end;
         at += std::chrono::microseconds{9700}) {
        const TimePoint end = at - response.delay;
        const double joules = joules_until(mix, end) - joules_until(mix, end - response.window);
        const double power = joules / kdvfs::Seconds{response.window}.count();
        mix.samples.push_back({at, {power + normal(random)}});
    }
}

/// What a counter shows that moves every 100 ms and a bit, to one that reads it every 105 ms or so.
void count(RecordedMix& mix, CounterClock clock) {
    std::mt19937 random{9};
    for (TimePoint at = mix.runs.front().start; at < mix.runs.back().end;
         at += std::chrono::microseconds{103'000 + random() % 5000}) {
        mix.counter.push_back({at, joules_until(mix, clock.moved(at))});
    }
}

void expect_close_to_truth(const MixResult& result, double median, double worst) {
    std::vector<double> errors;
    for (const MixKernel& kernel : result.kernels) {
        ASSERT_TRUE(kernel.error()) << kernel.name;
        EXPECT_LT(std::abs(*kernel.error()), worst) << kernel.name;
        errors.push_back(std::abs(*kernel.error()));
    }
    std::sort(errors.begin(), errors.end());
    EXPECT_LT(errors[errors.size() / 2], median);
}

TEST(RecordedMix, AMadeUpMixIsAttributedAndItsMetersResponseFound) {
    for (const MeterResponse truth : {MeterResponse{milliseconds{10}, milliseconds{0}},
                                      MeterResponse{milliseconds{50}, milliseconds{30}}}) {
        RecordedMix mix = made_up_runs(60);
        meter(mix, truth, 6);
        const MeterResponse found = find_response(mix);
        EXPECT_EQ(found.window, truth.window);
        EXPECT_EQ(found.delay, truth.delay);
        const MixResult result = MixReplay{mix}.by_power(found);
        ASSERT_EQ(result.kernels.size(), names.size());
        expect_close_to_truth(result, 0.005, 0.01);
        EXPECT_NEAR(result.residual, 6, 1);
    }
}

TEST(RecordedMix, TheCountersOwnClockIsFoundFromSlowReadings) {
    RecordedMix mix = made_up_runs(60);
    meter(mix, {}, 6);
    const CounterClock truth{std::chrono::microseconds{100'013},
                             TimePoint{std::chrono::microseconds{71'300}}};
    count(mix, truth);
    const CounterClock found = find_clock(mix);
    for (const auto& reading : mix.counter) {
        const kdvfs::Duration apart = found.moved(reading.read_at) - truth.moved(reading.read_at);
        ASSERT_LT(std::abs(kdvfs::Seconds{apart}.count()), 1e-3);
    }
    const MixResult right = MixReplay{mix}.by_counter(found, {});
    expect_close_to_truth(right, 0.005, 0.01);
    const MixResult as_read = MixReplay{mix}.by_counter({}, {});
    EXPECT_GT(as_read.residual, 5 * right.residual);
}

TEST(RecordedMix, ACounterThatIsReadAsItMovesHasNoClockOfItsOwn) {
    RecordedMix mix = made_up_runs(60);
    count(mix, {});
    EXPECT_EQ(find_clock(mix).period, kdvfs::Duration{0});
}

TEST(RecordedMix, LongRunsAreNotLookedAt) {
    RecordedMix mix = made_up_runs(60);
    meter(mix, {}, 0);
    for (MixSample& sample : mix.samples) {
        for (const MixRun& run : mix.runs) {
            if (run.truth && sample.at > run.start && sample.at < run.end) sample.watts = {1};
        }
    }
    for (const MixKernel& kernel : MixReplay{mix}.by_power({}).kernels) {
        const auto at = std::find(names.begin(), names.end(), kernel.name) - names.begin();
        ASSERT_TRUE(kernel.attributed);
        EXPECT_NEAR(kernel.attributed->count, watts[static_cast<std::size_t>(at)], 2);
    }
}

TEST(RecordedMix, ABadLineIsNamed) {
    const std::filesystem::path folder = testing::TempDir();
    std::ofstream{folder / "mix_runs.csv"}
        << "# about\nkernel,...\ngemm,1,2,1,0,1\ngemm,7,x,1,0,0\n";
    try {
        (void)read_mix(folder);
        ADD_FAILURE() << "nothing was thrown";
    } catch (const kdvfs::Error& error) {
        EXPECT_EQ(error.text().object, (folder / "mix_runs.csv").string() + ":4");
    }
}

class RecordedOn : public testing::TestWithParam<const char*> {
protected:
    const RecordedMix mix = read_mix(std::filesystem::path{RECORDED_RESULTS} / GetParam());
    const MeterResponse response = find_response(mix);

    /// The intervals hold the mean of the samples inside the kernels' short runs, and are narrow.
    static void expect_honest(const MixResult& result, double widest) {
        ASSERT_EQ(result.kernels.size(), 8U);
        std::size_t covered = 0;
        std::vector<double> errors;
        double all = 0;
        for (const MixKernel& kernel : result.kernels) all += kernel.seconds;
        for (const MixKernel& kernel : result.kernels) {
            ASSERT_TRUE(kernel.error()) << kernel.name;
            covered += kernel.covered() ? 1 : 0;
            errors.push_back(std::abs(*kernel.error()));
            std::printf("%-12s %+.2f +- %.2f %%\n", kernel.name.c_str(), 100 * *kernel.error(),
                        100 * kernel.half_width.count / kernel.attributed->count);
            if (kernel.seconds < 0.05 * all) continue;
            EXPECT_LT(kernel.half_width.count, widest * kernel.attributed->count) << kernel.name;
        }
        EXPECT_GE(covered, 7U);
        std::sort(errors.begin(), errors.end());
        EXPECT_LT(errors[errors.size() / 2], 0.015);
        EXPECT_LT(errors.back(), 0.05);
        const auto& totals = result.report.totals;
        EXPECT_GE(totals.unexplained.count, -totals.unexplained_half_width.count);
        EXPECT_EQ(result.report.fit.refused_rows, 0U);
    }
};

TEST_P(RecordedOn, ARealGpusMixIsAttributedByItsPowerSamples) {
    EXPECT_EQ(response.window, milliseconds{20});
    const MixResult result = MixReplay{mix}.by_power(response);
    expect_honest(result, 0.04);
    // Each half of the record has less to go by, and as much to hold.
    for (const bool second : {false, true}) {
        RecordedMix half = mix;
        const TimePoint middle = mix.runs[mix.runs.size() / 2].start;
        std::erase_if(half.runs,
                      [&](const MixRun& run) { return (run.start >= middle) != second; });
        expect_honest(MixReplay{half}.by_power(response), 0.04);
    }
}

/// What the live search takes for usual (`LogMemories`).
TEST_P(RecordedOn, TheLogFollowsTheLoadAsTheOtherBoardsDo) {
    const StepResponse step = find_step_response(mix);
    EXPECT_GT(step.samples, 100U);
    EXPECT_NEAR(step.delay, 3.4, 0.3);
    EXPECT_NEAR(step.memory, 12.8, 0.5);
}

TEST_P(RecordedOn, ARealGpusMixIsAttributedByItsEnergyCounter) {
    if (mix.counter.empty()) GTEST_SKIP() << "no counter was recorded";
    expect_honest(MixReplay{mix}.by_counter(find_clock(mix), response), 0.10);
}
INSTANTIATE_TEST_SUITE_P(RealGpus, RecordedOn, testing::Values("h100", "h200", "h200_again"));

}  // namespace
}  // namespace measuring
