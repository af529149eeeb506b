// SPDX-License-Identifier: MIT
#include <kdvfs/train/plan.hpp>
#include <tests/pipeline/random_pipelines.hpp>
#include <tests/pipeline/second_opinions.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

namespace kdvfs::train {
namespace {

/// A pipeline whose stages have curves of their own.
Pipeline small_pipeline(std::mt19937_64& random, Schedule schedule) {
    const PipelineShape shape{schedule, 2, schedule == Schedule::interleaved_1f1b ? 2U : 1U, 4};
    CurveIndex curve_of;
    std::vector<Curve> curves;
    for (std::uint32_t stage = 0; stage < shape.stages; ++stage)
        for (std::uint32_t chunk = 0; chunk < shape.chunks; ++chunk)
            for (const Pass pass :
                 {Pass::forward, Pass::backward, Pass::backward_input, Pass::backward_weight}) {
                curve_of[{stage, pass, chunk}] = static_cast<std::uint32_t>(curves.size());
                curves.push_back(random_curve(random, {50}));
            }
    return make_pipeline(shape, curve_of, curves, {50});
}

TEST(ClockRounding, IsAsCheapAsWhatBranchAndBoundFinds) {
    std::mt19937_64 random{21};
    double sum = 0;
    double worst = 0;
    double gap = 0;
    int cases = 0;
    for (const Schedule schedule :
         {Schedule::one_f_one_b, Schedule::interleaved_1f1b, Schedule::zb_h1})
        for (const double slowdown : {0.0, 0.03, 0.1}) {
            const Pipeline pipeline = small_pipeline(random, schedule);
            const Frontier frontier{pipeline};
            const Seconds length =
                std::min(frontier.shortest() * (1 + slowdown), frontier.frugal());
            const PipelinePlan plan = make_plan(frontier, length, Clocks::one);
            const double best = glpk_least_clocked_energy(pipeline, plan.time) +
                                pipeline.blocking_energy(plan.time).count;
            EXPECT_LE(plan.makespan, plan.time);
            EXPECT_LE(plan.total.count, 1.003 * best) << to_string(schedule) << slowdown;
            sum += plan.total.count / best - 1;
            worst = std::max(worst, plan.total.count / best - 1);
            gap = std::max(gap, plan.gap());
            ++cases;
        }
    std::printf(
        "clocked plans of %d made-up pipelines: %.3f %% above what branch and bound finds on "
        "average, worst %.3f %%; at most %.2f %% above the exact frontier\n",
        cases, 100 * sum / cases, 100 * worst, 100 * gap);
    EXPECT_LE(sum / cases, 0.001);
}

}  // namespace
}  // namespace kdvfs::train
