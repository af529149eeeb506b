// SPDX-License-Identifier: MIT
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/predicted_costs.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

/// A board's kernels by laws that the prediction does not have: the longer of two roofs, or one
/// after the other; power with a knee of the voltage.
class Truth {
public:
    explicit Truth(std::uint64_t seed) : random_{seed} {
        knee_ = between(0.5, 0.9);
        rise_ = between(0.1, 0.6);
        const auto kernels = static_cast<std::size_t>(between(5, 20));
        for (std::size_t k = 0; k < kernels; ++k) {
            KernelCosts kernel;
            kernel.key.name = "kernel_" + std::to_string(k);
            const double memory = between(0, 1), fixed = between(0, 0.2), idle = between(20, 60);
            const bool hides = between(0, 1) < 0.5;
            for (std::uint32_t mhz = 500; mhz <= 1500; mhz += 50) {
                const double f = mhz / 1500.0;
                const double core = (1 - memory) / f;
                const double moving =
                    hides ? std::max(core, memory) / std::max(1 - memory, memory) : core + memory;
                const double time = (1 - fixed) * moving + fixed;
                const double volts = 1 + rise_ * std::max(0.0, f - knee_) / (1 - knee_);
                const double watts = idle + (200 - idle) * f * volts * volts /
                                                ((1 + rise_) * (1 + rise_)) / (time * f) *
                                                (1 - 0.4 * memory);
                kernel.points.push_back({{{mhz}, {1200}}, {Seconds{time}, {watts * time}}});
            }
            kernel.baseline = kernel.points.size() - 1;
            costs.kernels.push_back(kernel);
        }
        costs.gpu = "board";
        costs.baseline = {{1500}, {1200}};
    }

    CostTable costs;

    [[nodiscard]] PredictedBoard board() const {
        PredictedBoard board;
        for (const PointCost& point : costs.kernels.front().points)
            board.clocks.push_back(point.clock);
        return board;
    }
    [[nodiscard]] Profile measured_at(const std::vector<ClockPoint>& clocks) const {
        Profile profile{"board"};
        for (const KernelCosts& kernel : costs.kernels)
            for (const auto& [clock, cost] : kernel.points)
                if (clock == costs.baseline ||
                    std::find(clocks.begin(), clocks.end(), clock) != clocks.end())
                    profile.add({kernel.key, clock, cost, "", 1, 0, clock == costs.baseline});
        return profile;
    }
    [[nodiscard]] Cost of(const Plan& plan) const {
        Cost sum;
        for (std::size_t k = 0; k < plan.kernels.size(); ++k)
            for (const auto& [clock, cost] : costs.kernels[k].points)
                if (clock == plan.kernels[k].clock) sum += cost;
        return sum;
    }

private:
    double between(double low, double high) {
        return std::uniform_real_distribution<double>{low, high}(random_);
    }

    std::mt19937_64 random_;
    double knee_ = 0;
    double rise_ = 0;
};

struct Outcome {
    int plans = 0;
    int kept = 0;
    int promised = 0;
    double saved = 0;
    double best = 0;
};

Outcome plans_with(std::size_t points) {
    Outcome outcome;
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
        const Truth truth{seed};
        std::vector<ClockPoint> known = points_to_measure(truth.board(), truth.costs.baseline);
        EXPECT_EQ(known.size(), 3U);
        known.resize(points);
        const CostTable predicted = predicted_costs(truth.measured_at(known), truth.board());
        for (const double bound : {0.01, 0.05}) {
            const Objective objective = relaxed_waste(bound);
            const Plan plan = make_plan(predicted, objective, Aggregate::global);
            const Plan best = make_plan(truth.costs, objective, Aggregate::global);
            const Cost cost = truth.of(plan);
            ++outcome.plans;
            outcome.kept += cost.time <= plan.baseline.time * (1 + bound + 1e-9) ? 1 : 0;
            const double energy = energy_percent(cost, plan.baseline);
            outcome.promised += energy <= plan.energy_pct() + plan.predicted_within.value() ? 1 : 0;
            outcome.saved -= energy;
            outcome.best -= best.energy_pct();
        }
    }
    return outcome;
}

TEST(PredictedCosts, PlansWithoutASweepKeepTheirBound) {
    for (const std::size_t points : {0U, 1U, 3U}) {
        const Outcome outcome = plans_with(points);
        EXPECT_GE(outcome.kept, 0.9 * outcome.plans) << points;
        EXPECT_GE(outcome.promised, 0.9 * outcome.plans) << points;
        EXPECT_GE(outcome.saved, (points == 3 ? 0.6 : 0) * outcome.best) << points;
    }
}

TEST(PredictedCosts, WhatWasMeasuredStays) {
    const Truth truth{3};
    const std::vector<ClockPoint> known = points_to_measure(truth.board(), truth.costs.baseline);
    const CostTable predicted = predicted_costs(truth.measured_at(known), truth.board());
    for (std::size_t k = 0; k < predicted.kernels.size(); ++k) {
        const KernelCosts& kernel = predicted.kernels[k];
        EXPECT_EQ(kernel.points[kernel.baseline].clock, truth.costs.baseline);
        EXPECT_EQ(kernel.energy_errors[kernel.baseline], 0);
        for (const auto& [clock, cost] : truth.costs.kernels[k].points) {
            if (clock != truth.costs.baseline &&
                std::find(known.begin(), known.end(), clock) == known.end())
                continue;
            const auto point = std::find_if(kernel.points.begin(), kernel.points.end(),
                                            [&at = clock](const auto& p) { return p.clock == at; });
            ASSERT_NE(point, kernel.points.end());
            EXPECT_NEAR(point->cost.time / cost.time, 1, 1e-9);
            EXPECT_NEAR(point->cost.energy / cost.energy, 1, 1e-9);
        }
    }
}

TEST(PredictedCosts, LeavesOutWhatNothingTellsOf) {
    const Truth truth{4};
    PredictedBoard board = truth.board();
    board.clocks.push_back({{1000}, {800}});   // no row at this memory clock
    board.clocks.push_back({{1600}, {1200}});  // above the baseline
    const CostTable predicted = predicted_costs(truth.measured_at({{{900}, {1200}}}), board);
    for (const KernelCosts& kernel : predicted.kernels) {
        EXPECT_EQ(kernel.points.front().clock, (ClockPoint{{900}, {1200}}));
        EXPECT_EQ(kernel.points.back().clock, truth.costs.baseline);
        for (const PointCost& point : kernel.points) EXPECT_EQ(point.clock.memory, Megahertz{1200});
    }
}

TEST(PredictedCosts, AKernelOfNoEnergyStaysAtTheBaseline) {
    Truth truth{6};
    const ClockPoint measured{{900}, {1200}};
    for (PointCost& point : truth.costs.kernels[1].points) point.cost.energy = Joules{0};
    for (PointCost& point : truth.costs.kernels[2].points)
        if (point.clock == measured) point.cost.energy = Joules{0};
    PredictedBoard board = truth.board();
    board.power_limit = Watts{200};
    const CostTable predicted = predicted_costs(truth.measured_at({measured}), board);
    for (const std::size_t k : {1U, 2U}) {
        ASSERT_EQ(predicted.kernels[k].points.size(), 1U);
        EXPECT_EQ(predicted.kernels[k].points[0].clock, truth.costs.baseline);
    }
    EXPECT_GT(predicted.kernels[0].points.size(), 1U);
    EXPECT_NE(predicted.caveat.find("kernel_1 has an energy of 0 J"), std::string::npos);
    EXPECT_NE(predicted.caveat.find("kernel_2 has an energy of 0 J"), std::string::npos);
    const Plan plan = make_plan(predicted, relaxed_waste(0.02), Aggregate::global);
    EXPECT_TRUE(std::isfinite(plan.expected.energy.count));
    EXPECT_TRUE(std::isfinite(plan.predicted_within.value()));
    EXPECT_LT(plan.energy_pct(), 0);
}

TEST(PredictedCosts, WithoutAnyPointTheWorstLawBoundsTheTime) {
    const Truth truth{5};
    const CostTable predicted = predicted_costs(truth.measured_at({}), truth.board());
    const double many = deviations(relaxed_waste(0.01));
    for (const KernelCosts& kernel : predicted.kernels)
        for (std::size_t p = 0; p < kernel.points.size(); ++p) {
            const double slowest = 1500.0 / kernel.points[p].clock.core.count;
            EXPECT_GE(kernel.launch(p, many).time / kernel.launch(kernel.baseline).time,
                      slowest - 1e-9);
        }
}

TEST(PredictedCosts, AsksForAnotherMemoryClockWhereThereIsOne) {
    PredictedBoard board;
    for (const std::uint32_t memory : {5000U, 9000U})
        for (std::uint32_t core = 200; core <= 2000; core += 100)
            board.clocks.push_back({{core}, {memory}});
    const std::vector<ClockPoint> points = points_to_measure(board, {{2000}, {9000}});
    EXPECT_EQ(points,
              (std::vector<ClockPoint>{{{1700}, {9000}}, {{1100}, {9000}}, {{2000}, {5000}}}));
}

}  // namespace
}  // namespace kdvfs::tune
