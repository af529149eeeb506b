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

/// What a meter with this response says of the runs, every 10 ms, with noise.
void meter(RecordedMix& mix, MeterResponse response, double noise) {
    std::mt19937 random{8};
    std::normal_distribution<double> normal{0, noise};
    for (TimePoint at = mix.runs.front().start + milliseconds{1}; at < mix.runs.back().end;
         at += std::chrono::microseconds{9700}) {
        const TimePoint end = at - response.delay;
        const auto row = shares(mix, names, end - response.window, end);
        double power = 119 * row[row.size() - 1];
        for (std::size_t k = 0; k < names.size(); ++k) {
            power += watts[k] * row[static_cast<Eigen::Index>(k)];
        }
        mix.samples.push_back({at, {power + normal(random)}});
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
        const MixResult result = attribute_mix(mix, found);
        ASSERT_EQ(result.kernels.size(), names.size());
        expect_close_to_truth(result, 0.005, 0.01);
        EXPECT_NEAR(result.residual, 6, 1);
    }
}

TEST(RecordedMix, TruthRunsAreNotLookedAt) {
    RecordedMix mix = made_up_runs(60);
    meter(mix, {}, 0);
    for (MixSample& sample : mix.samples) {
        for (const MixRun& run : mix.runs) {
            if (run.truth && sample.at > run.start && sample.at < run.end) sample.watts = {1};
        }
    }
    for (const MixKernel& kernel : attribute_mix(mix, {}).kernels) {
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

class RecordedOn : public testing::TestWithParam<const char*> {};

TEST_P(RecordedOn, ARealGpusMixIsAttributed) {
    const RecordedMix mix = read_mix(std::filesystem::path{RECORDED_RESULTS} / GetParam());
    const MixResult result = attribute_mix(mix, find_response(mix));
    ASSERT_EQ(result.kernels.size(), 8U);
    std::vector<double> errors;
    for (const MixKernel& kernel : result.kernels) {
        ASSERT_TRUE(kernel.error()) << kernel.name;
        ASSERT_TRUE(kernel.unsettled) << kernel.name;
        errors.push_back(std::abs(*kernel.error()));
        std::printf("%-12s %+.2f %%\n", kernel.name.c_str(), 100 * *kernel.error());
        // The firmware takes some 0.1 s to pull a kernel down to the board's 700 W: in runs of 50
        // to 500 ms the GEMMs draw what the long runs draw at first, more than these do settled.
        const double truth = kernel.truth->count;
        EXPECT_GT(kernel.attributed->count, 0.95 * truth) << kernel.name;
        EXPECT_LT(kernel.attributed->count, std::max(1.05 * truth, 1.02 * kernel.unsettled->count))
            << kernel.name;
    }
    std::sort(errors.begin(), errors.end());
    EXPECT_LT(errors[errors.size() / 2], 0.03);
}
INSTANTIATE_TEST_SUITE_P(RealGpus, RecordedOn, testing::Values("h100", "h200"));

}  // namespace
}  // namespace measuring
