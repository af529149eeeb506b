// SPDX-License-Identifier: MIT
#include <bench/adaptive/adaptive_case.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace kdvfs::tune {
namespace {

void expect_as_good_as_the_grid(const std::string& device, double noise, std::uint32_t samples) {
    const AdaptiveComparison found = compare_adaptive(device, relaxed_waste(0.01), noise, samples);
    std::printf(
        "%s: grid %+.2f %% time %+.2f %% energy, adaptive %+.2f %% time %+.2f %% energy "
        "with %.1f %% of the measurements\n",
        device.c_str(), found.grid_time_pct, found.grid_energy_pct, found.adaptive_time_pct,
        found.adaptive_energy_pct, 100 * found.share);
    EXPECT_LE(found.share, 0.25);
    EXPECT_LT(found.adaptive_energy_pct, found.grid_energy_pct + 1);
    EXPECT_LT(found.adaptive_time_pct, found.grid_time_pct + 1);
}

TEST(AdaptiveSweep, IsAsGoodAsTheGridOnSimulatedBoards) {
    for (const char* device :
         {"sim:rtx_3080_ti", "sim:mi210", "sim:mi250x", "sim:mi300x", "sim:h100"})
        expect_as_good_as_the_grid(device, 0.01, 5);
}

TEST(AdaptiveSweep, IsAsGoodAsTheGridOnReplayedKernels) {
    const std::filesystem::path file =
        std::filesystem::path{KDVFS_SOURCE_DIR} / ".." / "shared" / "data" / "titanx_real.csv";
    if (!std::filesystem::exists(file))
        GTEST_SKIP() << "the published measurements are not beside this working copy";
    expect_as_good_as_the_grid("replay:" + file.string(), 0, 1);
}

TEST(CostModel, PredictsARooflineFromFewPoints) {
    const auto seconds = [](double core) { return std::pow(std::pow(1 / core, 6) + 64, 1.0 / 6); };
    Profile profile{"g"};
    for (const std::uint32_t clock : {300U, 500U, 700U, 1000U}) {
        profile.add(
            {{"a", {}}, {{clock}, auto_clock}, {Seconds{seconds(clock / 1000.0)}, Joules{1}}});
    }
    const ClockPoint top{{1000}, auto_clock};
    const auto models =
        fit_cost_models(profile, top, [](const Cost& cost) { return cost.time.count(); });
    for (const std::uint32_t clock : {400U, 600U, 850U}) {
        const LogPrediction found = models[0].predict({{{clock}, auto_clock}, top});
        EXPECT_NEAR(std::exp(found.mean) / seconds(clock / 1000.0), 1, 0.1) << clock;
    }
    const LogPrediction measured = models[0].predict({{{500}, auto_clock}, top});
    const LogPrediction far = models[0].predict({{{100}, auto_clock}, top});
    EXPECT_LT(measured.deviation, far.deviation);
}

TEST(AdaptiveSweep, NeedsTheBaseline) {
    const std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("kdvfs_base_" + std::to_string(::getpid()));
    const std::vector<SweepKernel> kernels{{{"a", {}}}};
    const std::vector<ClockPoint> points{{{900}, auto_clock}, {auto_clock, {810}}};
    SweepFile file{path, "g"};
    EXPECT_THROW(sweep_adaptively(
                     file, kernels, points, strict_waste(), {},
                     [](std::size_t, ClockPoint) {
                         return Cost{Seconds{1}, Joules{1}};
                     },
                     [](std::size_t, std::size_t) {}),
                 Error);
    std::filesystem::remove(path);
}

}  // namespace
}  // namespace kdvfs::tune
