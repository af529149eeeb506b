// SPDX-License-Identifier: MIT
#include <kdvfs/train/plan.hpp>
#include <tests/pipeline/random_pipelines.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace kdvfs::train {
namespace {

int cases() {
    const char* asked = std::getenv("KDVFS_PIPELINES");
    return asked == nullptr ? 30 : std::stoi(asked);
}

/// Checks a plan from its operations alone: who waits for whom, what clocks were measured.
void check(const Pipeline& pipeline, const PipelinePlan& plan) {
    ASSERT_EQ(plan.operations.size(), pipeline.operations.size());
    std::vector<double> ends(plan.operations.size(), 0);
    std::vector<double> begins(plan.operations.size(), 0);
    std::vector<std::vector<std::uint32_t>> before(plan.operations.size());
    for (const Dependency& d : pipeline.dependencies) before[d.then].push_back(d.first);
    double effective = 0;
    for (const std::uint32_t i : pipeline.topological_order) {
        const PlannedOperation& planned = plan.operations[i];
        ASSERT_EQ(planned.clocks.operation, pipeline.operations[i]);
        for (const std::uint32_t b : before[i]) begins[i] = std::max(begins[i], ends[b]);
        double lasts = 0;
        double energy = 0;
        int found = 0;
        for (const CurvePoint& point : pipeline.curves[pipeline.operations[i].curve].points()) {
            double share = point.clock == planned.clocks.first ? planned.clocks.share : 0;
            if (point.clock == planned.clocks.second && planned.clocks.share < 1)
                share += 1 - planned.clocks.share;
            found += share > 0 ? 1 : 0;
            lasts += share * point.time.count();
            energy += share * (point.energy - pipeline.blocking_power * point.time).count;
        }
        ASSERT_EQ(found, planned.clocks.first == planned.clocks.second ? 1 : 2);
        EXPECT_NEAR(planned.duration.count(), lasts, 2e-9);
        EXPECT_NEAR(planned.effective.count, energy, 1e-6);
        ends[i] = begins[i] + lasts;
        effective += energy;
    }
    const double makespan = *std::max_element(ends.begin(), ends.end());
    EXPECT_LE(makespan, plan.time.count() + 1e-9 * static_cast<double>(ends.size()));
    EXPECT_LE(makespan, plan.makespan.count() + 1e-9 * static_cast<double>(ends.size()));
    EXPECT_NEAR(plan.effective.count, effective, 1e-6 * std::abs(effective) + 1e-6);
    const double blocked = pipeline.blocking_power.count * pipeline.stages * plan.time.count();
    EXPECT_NEAR(plan.total.count, effective + blocked, 1e-6 * std::abs(plan.total.count));
}

std::uint32_t count_switches(const PipelinePlan& plan) {
    std::uint32_t switches = 0;
    const PlannedClocks* before = nullptr;
    for (const PlannedOperation& planned : plan.operations) {
        const PlannedClocks& clocks = planned.clocks;
        if (before != nullptr && before->operation.stage == clocks.operation.stage)
            switches += before->second != clocks.first ? 1U : 0U;
        switches += clocks.first != clocks.second ? 1U : 0U;
        before = &clocks;
    }
    return switches;
}

TEST(PipelinePlan, KeepsItsTimeAndCountsWhatItSays) {
    std::mt19937_64 random{11};
    std::uniform_real_distribution<double> uniform{0, 1.1};
    for (int k = 0; k < cases(); ++k) {
        const Frontier frontier{random_pipeline(random)};
        const Seconds span = frontier.frugal() - frontier.shortest();
        const Seconds time = frontier.shortest() + span * (k % 3 == 0 ? 0 : uniform(random));
        for (const Clocks clocks : {Clocks::one, Clocks::two}) {
            const PipelinePlan plan = make_plan(frontier, time, clocks);
            SCOPED_TRACE("pipeline " + std::to_string(k));
            check(frontier.pipeline(), plan);
            EXPECT_EQ(plan.switches, count_switches(plan));
            EXPECT_GE(plan.gap(), -1e-9);
            if (clocks == Clocks::two) {
                EXPECT_LE(plan.gap(), 1e-6);
            }
            EXPECT_LE(plan.time, frontier.frugal());
        }
    }
}

/// On a stage of its own every assignment of clocks can be tried.
TEST(PipelinePlan, FindsTheFewestSwitchesOfOneStage) {
    std::mt19937_64 random{12};
    for (int k = 0; k < 30; ++k) {
        std::vector<Curve> curves{random_curve(random, {50}), random_curve(random, {50})};
        std::vector<std::vector<Operation>> stage(1);
        for (std::uint32_t m = 0; m < 5; ++m)
            stage[0].push_back({0, Pass::forward, 0, m, static_cast<std::uint32_t>(random() % 2)});
        const Pipeline pipeline = make_graph(stage, {}, curves, {50});
        const Frontier frontier{pipeline};
        const Seconds time = frontier.shortest() + (frontier.frugal() - frontier.shortest()) * 0.4;
        const PipelinePlan plan = make_plan(frontier, time, Clocks::one);

        double cheapest = 1e300;
        std::vector<std::pair<double, std::uint32_t>> all;
        std::vector<std::size_t> chosen(5, 0);
        const auto points = [&](std::size_t i) {
            return curves[pipeline.operations[i].curve].points();
        };
        for (bool more = true; more;) {
            double lasts = 0;
            double total = 50 * plan.time.count();
            std::uint32_t switches = 0;
            for (std::size_t i = 0; i < 5; ++i) {
                const CurvePoint& point = points(i)[chosen[i]];
                lasts += point.time.count();
                total += (point.energy - Watts{50} * point.time).count;
                if (i > 0) switches += points(i - 1)[chosen[i - 1]].clock != point.clock ? 1U : 0U;
            }
            if (lasts <= plan.time.count() + 1e-12) {
                cheapest = std::min(cheapest, total);
                all.emplace_back(total, switches);
            }
            more = false;
            for (std::size_t i = 0; i < 5 && !more; ++i) {
                more = ++chosen[i] < points(i).size();
                if (!more) chosen[i] = 0;
            }
        }
        const double most = std::max(cheapest, 1.003 * plan.bound.count);
        std::uint32_t fewest = 5;
        for (const auto& [total, switches] : all)
            if (total <= std::min(1.001 * cheapest, most) * (1 - 1e-9))
                fewest = std::min(fewest, switches);
        EXPECT_LE(plan.switches, fewest) << "case " << k;
        EXPECT_LE(plan.total.count, 1.001 * cheapest * (1 + 1e-9)) << "case " << k;
    }
}

}  // namespace
}  // namespace kdvfs::train
