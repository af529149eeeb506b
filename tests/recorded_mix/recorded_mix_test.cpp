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

/// What a log of means over `window` that ended `delay` before says of the runs, every 20 ms.
void meter(RecordedMix& mix, Duration window, Duration delay, double noise) {
    std::mt19937 random{8};
    std::normal_distribution<double> normal{0, noise};
    for (TimePoint at = mix.runs.front().start + milliseconds{1}; at < mix.runs.back().end;
         at += milliseconds{20}) {
        const TimePoint end = at - delay;
        const double joules = joules_until(mix, end) - joules_until(mix, end - window);
        const double power = joules / kdvfs::Seconds{window}.count();
        mix.samples.push_back({at, {power + normal(random)}});
    }
}

/// What a counter that moves every 100 ms and a bit shows to one that reads it every 10 ms or so.
void count(RecordedMix& mix) {
    constexpr std::chrono::microseconds period{100'013};
    std::mt19937 random{9};
    for (TimePoint at = mix.runs.front().start; at < mix.runs.back().end;
         at += std::chrono::microseconds{10'000 + random() % 500}) {
        const auto since = at - mix.runs.front().start;
        mix.counter.push_back({at, joules_until(mix, at - since % period)});
    }
}

double watts_of(const MixKernel& kernel) {
    const auto at = std::find(names.begin(), names.end(), kernel.name) - names.begin();
    return watts[static_cast<std::size_t>(at)];
}

TEST(RecordedMix, AMadeUpMixIsAttributedWhateverItsLogsResponse) {
    for (const auto& [window, delay] : {std::pair{milliseconds{20}, milliseconds{1}},
                                        std::pair{milliseconds{50}, milliseconds{10}}}) {
        RecordedMix mix = made_up_runs(60);
        meter(mix, window, delay, 6);
        const MixResult result = attribute(mix, true, false);
        ASSERT_EQ(result.kernels.size(), names.size());
        for (const MixKernel& kernel : result.kernels) {
            ASSERT_TRUE(kernel.attributed) << kernel.name;
            EXPECT_NEAR(kernel.attributed->count, watts_of(kernel), kernel.half_width.count);
            EXPECT_LT(kernel.half_width.count, 0.03 * watts_of(kernel)) << kernel.name;
        }
        EXPECT_NEAR(result.residual, 6, 1);
    }
}

TEST(RecordedMix, ACounterThatIsReadOftenIsAttributed) {
    RecordedMix mix = made_up_runs(60);
    count(mix);
    for (const MixKernel& kernel : attribute(mix, false, true).kernels) {
        ASSERT_TRUE(kernel.attributed) << kernel.name;
        EXPECT_NEAR(kernel.attributed->count, watts_of(kernel), kernel.half_width.count);
        EXPECT_LT(kernel.half_width.count, 0.1 * watts_of(kernel)) << kernel.name;
    }
}

TEST(RecordedMix, LongRunsAreNotLookedAt) {
    RecordedMix mix = made_up_runs(60);
    meter(mix, milliseconds{20}, milliseconds{1}, 1);
    for (MixSample& sample : mix.samples) {
        for (const MixRun& run : mix.runs) {
            if (run.truth && sample.at > run.start + milliseconds{30} && sample.at < run.end) {
                sample.watts = {1};
            }
        }
    }
    for (const MixKernel& kernel : attribute(mix, true, false).kernels) {
        ASSERT_TRUE(kernel.attributed);
        EXPECT_NEAR(kernel.attributed->count, watts_of(kernel), kernel.half_width.count);
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

    /// The intervals hold the mean of the samples that show nothing but the kernels' short runs,
    /// and are narrow.
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
    expect_honest(attribute(mix, true, false), 0.04);
    // Each half of the record has less to go by, and as much to hold.
    for (const bool second : {false, true}) {
        RecordedMix half = mix;
        const TimePoint middle = mix.runs[mix.runs.size() / 2].start;
        std::erase_if(half.runs,
                      [&](const MixRun& run) { return (run.start >= middle) != second; });
        std::erase_if(half.samples,
                      [&](const auto& each) { return (each.at >= middle) != second; });
        std::erase_if(half.counter,
                      [&](const auto& each) { return (each.read_at >= middle) != second; });
        expect_honest(attribute(half, true, false), 0.04);
    }
}

/// What reports take for usual (`SensorFinding::usual_log`).
TEST_P(RecordedOn, TheLogFollowsTheLoadAsTheOtherBoardsDo) {
    const StepResponse step = find_step_response(mix);
    EXPECT_GT(step.samples, 100U);
    EXPECT_NEAR(step.delay, 3.4, 0.3);
    EXPECT_NEAR(step.memory, 12.8, 0.5);
}

INSTANTIATE_TEST_SUITE_P(RealGpus, RecordedOn, testing::Values("h100", "h200", "h200_again"));

}  // namespace
}  // namespace measuring
