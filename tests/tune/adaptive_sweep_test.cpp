// SPDX-License-Identifier: MIT
#include <bench/adaptive/adaptive_case.hpp>

#include <kdvfs/detail/tune/clock_curves.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

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

TEST(CurvePriors, PredictARooflineFromFewPoints) {
    const auto seconds = [](double core) { return std::pow(std::pow(1 / core, 6) + 64, 1.0 / 6); };
    std::vector<ClockPoint> clocks;
    for (std::uint32_t core = 100; core <= 1000; core += 50) clocks.push_back({{core}, auto_clock});
    ClockCurve curve{clocks.size()};
    const auto index = [](std::uint32_t core) { return static_cast<Eigen::Index>(core / 50 - 2); };
    for (const std::uint32_t core : {300U, 500U, 700U, 1000U}) {
        curve.value(index(core)) = std::log(seconds(core / 1000.0));
        curve.noise(index(core)) = 0;
    }
    const CurvePriors priors{clock_shares(clocks), {curve}};
    const CurvePosterior posterior{priors.of(0), curve};
    for (const std::uint32_t core : {400U, 600U, 850U})
        EXPECT_NEAR(std::exp(posterior.mean()(index(core))) / seconds(core / 1000.0), 1, 0.1)
            << core;
    const Eigen::VectorXd variance =
        priors.of(0).diagonal() - posterior.explained().colwise().squaredNorm().transpose();
    EXPECT_LT(variance(index(500)), variance(index(100)));
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
