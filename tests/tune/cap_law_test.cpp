// SPDX-License-Identifier: MIT
#include <bench/promise/noisy_profile.hpp>
#include <kdvfs/detail/tune/block_totals.hpp>
#include <kdvfs/detail/tune/cap_law.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace kdvfs::tune::detail {
namespace {

constexpr double many = 1.28;
constexpr double well = 1e-4;  // how far a log is off where it is well known

/// Caps of the core clock with memory left alone, ascending; 0 is auto.
std::vector<ClockPoint> caps(const std::vector<std::uint32_t>& cores) {
    std::vector<ClockPoint> clocks;
    for (const std::uint32_t core : cores) clocks.push_back({{core}, auto_clock});
    return clocks;
}

/// What independent measurements of each point would tell.
CurveEstimate known(const std::vector<double>& logs, const std::vector<double>& deviations) {
    const auto n = static_cast<Eigen::Index>(logs.size());
    Eigen::MatrixXd covariance = Eigen::MatrixXd::Zero(n, n);
    CurveEstimate estimate{Eigen::VectorXd{n}, nullptr};
    for (Eigen::Index i = 0; i < n; ++i) {
        const auto p = static_cast<std::size_t>(i);
        estimate.mean(i) = logs[p];
        covariance(i, i) = deviations[p] * deviations[p];
    }
    estimate.covariance = std::make_shared<const Eigen::MatrixXd>(std::move(covariance));
    return estimate;
}

double bound(const CapLaw::Slowdown& slowdown) { return slowdown.mean + many * slowdown.deviation; }

TEST(CapLaw, HoldsForAllSimulatedKernels) {
    // Where everything is known, the law changes nothing: it is none that these boards break.
    for (const char* board : {"rtx_3080_ti", "mi210", "mi250x", "mi300x", "h100"}) {
        const CostTable truth = simulated_truth(board);
        for (const KernelCosts& kernel : truth.kernels) {
            std::vector<ClockPoint> clocks;
            std::vector<double> logs;
            for (const PointCost& point : kernel.points) {
                clocks.push_back(point.clock);
                logs.push_back(std::log(point.cost.time.count()));
            }
            const auto slowdowns =
                CapLaw{clocks}.slowdowns(known(logs, std::vector<double>(logs.size(), 1e-9)),
                                         static_cast<Eigen::Index>(kernel.baseline), many);
            for (std::size_t p = 0; p < clocks.size(); ++p)
                EXPECT_NEAR(slowdowns[p].mean, logs[p] - logs[kernel.baseline], 1e-6)
                    << board << ' ' << to_string(kernel.key) << ' ' << to_string(clocks[p]);
        }
    }
}

TEST(CapLaw, MakesNoKernelFasterAtALowerCap) {
    const std::vector<ClockPoint> clocks = caps({0, 1000, 1200, 1400, 1600});
    // Auto, and 1000 to 1600 MHz: a kernel that waits for memory, lucky at 1200 and at 1600 MHz.
    const CurveEstimate lucky = known({0, 0.002, -0.03, 0.001, -0.02}, std::vector(5, 0.01));
    const auto found = CapLaw{clocks}.slowdowns(lucky, 0, many);
    EXPECT_EQ(found[0].mean, 0);
    for (const std::size_t p : {4U, 3U, 2U, 1U}) EXPECT_GE(found[p].mean, 0) << p;
    EXPECT_LE(found[4].mean, found[3].mean);
    EXPECT_LE(found[3].mean, found[2].mean);
    EXPECT_LE(found[2].mean, found[1].mean);
}

TEST(CapLaw, BoundsWhatIsLostByTheCapsAround) {
    const std::vector<ClockPoint> clocks = caps({1000, 1250, 1500, 2000});
    // The time goes with one over the clock; the middle is told badly, and 4 % too slow.
    const auto lost = [&](std::size_t p) { return std::log(2000.0 / clocks[p].core.count); };
    const CurveEstimate resolved =
        known({lost(0), lost(1) + 0.04, lost(2) + 0.04, 0}, {well, 0.05, 0.05, well});
    const auto found = CapLaw{clocks}.slowdowns(resolved, 3, many);
    for (const std::size_t p : {1U, 2U}) {
        EXPECT_NEAR(found[p].mean, lost(p), 1e-9) << "the line between 1000 and 2000 MHz";
        EXPECT_LT(found[p].deviation, 2 * well);
    }
    // A line through caps that are told badly themselves says no more than what was measured.
    const CurveEstimate vague =
        known({lost(0) + 0.1, lost(1), lost(2), 0}, {0.2, 0.01, 0.01, well});
    const auto kept = CapLaw{clocks}.slowdowns(vague, 3, many);
    EXPECT_NEAR(bound(kept[1]), lost(1) + many * std::hypot(0.01, well), 1e-9);
}

TEST(CapLaw, TakesAutoForOneStepAboveTheHighestCap) {
    const std::vector<ClockPoint> clocks = caps({0, 1000, 1300, 1600});
    // Known at auto and at 1000 MHz alone.
    const CurveEstimate resolved = known({0, 0.3, 0.5, 0.5}, {well, well, 0.5, 0.5});
    const auto found = CapLaw{clocks}.slowdowns(resolved, 0, many);
    const double top = std::log(1600.0) + std::log(1600.0 / 1300.0);
    const double whole = top - std::log(1000.0);
    EXPECT_NEAR(found[3].mean, 0.3 * (top - std::log(1600.0)) / whole, 1e-9);
    EXPECT_NEAR(found[2].mean, 0.3 * (top - std::log(1300.0)) / whole, 1e-9);
}

TEST(CapLaw, LeavesAKernelAloneThatBreaksIt) {
    const std::vector<ClockPoint> clocks = caps({1000, 1250, 1500, 2000});
    // 10 % are lost at once below 2000 MHz and no more further down: far above every line.
    const CurveEstimate step = known({0.11, 0.1, 0.1, 0}, std::vector(4, 0.001));
    const auto found = CapLaw{clocks}.slowdowns(step, 3, many);
    EXPECT_NEAR(found[0].mean, 0.11, 1e-12);
    EXPECT_NEAR(found[1].mean, 0.1, 1e-12);
    EXPECT_NEAR(found[2].mean, 0.1, 1e-12);
    // By chance alone a cap may lie above: then it is the law that is believed.
    const CurveEstimate chance = known({0.11, 0.1, 0.1, 0}, {well, 0.05, 0.05, well});
    EXPECT_LT(CapLaw{clocks}.slowdowns(chance, 3, many)[2].mean, 0.05);
}

TEST(SameClocks, AreTakenForTheSameOnlyWhereThatIsSure) {
    // By level, the logs of how likely one kernel's samples are.
    const auto level = [](const std::vector<double>& logs) {
        std::vector<std::vector<double>> by_level;
        for (const double log : logs) by_level.push_back({log});
        return surest_level(by_level, 0);
    };
    EXPECT_EQ(level({0, 5, -9}), 1U);
    EXPECT_EQ(level({0, 1, 1.5}), 0U) << "the likeliest has half of the probability";
    EXPECT_EQ(level({0, 4, 5}), 1U) << "one of the last two, whichever";
    EXPECT_EQ(level({3, 0, 0}), 0U);
    const double never = -std::numeric_limits<double>::infinity();
    EXPECT_EQ(level({never, never}), 0U);
}

TEST(CapLaw, KnowsMemoryClocksApart) {
    // A lower cap at another memory clock may be faster: nothing is said across rows.
    const std::vector<ClockPoint> clocks{
        {{1000}, {800}}, {{1000}, {1600}}, {{2000}, {800}}, {{2000}, {1600}}};
    const CurveEstimate resolved = known({0.5, 0.01, 0.4, 0}, std::vector(4, well));
    const auto found = CapLaw{clocks}.slowdowns(resolved, 3, many);
    for (std::size_t p = 0; p < clocks.size(); ++p)
        EXPECT_NEAR(found[p].mean, resolved.mean(static_cast<Eigen::Index>(p)), 1e-12) << p;
}

}  // namespace
}  // namespace kdvfs::tune::detail
