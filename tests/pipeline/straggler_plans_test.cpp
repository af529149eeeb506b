// SPDX-License-Identifier: MIT
// Answers to a slow stage, played with operations whose durations vary.
#include <kdvfs/detail/train/straggler_plans.hpp>
#include <kdvfs/train/schedules.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace kdvfs::train {
namespace {

constexpr std::uint32_t copies = 2;
constexpr double variation = 0.005;
constexpr double most_dearer = 0.01;  ///< what an answer's energy may be above the best one's

/// Stages that differ by up to 12 %, the last one by 10 % more: time grows by less than the clock
/// falls, power by V^2 f.
Pipeline uneven_pipeline(Schedule schedule, std::uint32_t stages, std::uint32_t microbatches) {
    const PipelineShape shape{schedule, stages, schedule == Schedule::interleaved_1f1b ? 2U : 1U,
                              microbatches};
    std::mt19937_64 random{7};
    std::uniform_real_distribution<double> uniform;
    CurveIndex index;
    std::vector<Curve> curves;
    for (std::uint32_t s = 0; s < stages; ++s) {
        const double layers = (1 + 0.12 * uniform(random)) * (s + 1 == stages ? 1.1 : 1);
        for (std::uint32_t chunk = 0; chunk < shape.chunks; ++chunk)
            for (const Pass pass :
                 {Pass::forward, Pass::backward, Pass::backward_input, Pass::backward_weight}) {
                std::vector<CurvePoint> points;
                for (std::uint32_t k = 0; k < 16; ++k) {
                    const double mhz = 1410 - 45.0 * k;
                    const double time = (pass == Pass::backward ? 0.1 : 0.05) / shape.chunks *
                                        layers * (0.25 + 0.75 * 1410 / mhz);
                    const double voltage = std::max(0.7, 0.7 + 0.3 * (mhz - 900) / 510);
                    const double watts = 90 + 310 * (mhz / 1410) * voltage * voltage;
                    points.push_back({{Megahertz{static_cast<std::uint32_t>(mhz)}, auto_clock},
                                      Seconds{time},
                                      Joules{watts * time}});
                }
                index[{s, pass, chunk}] = static_cast<std::uint32_t>(curves.size());
                curves.emplace_back("c", points, Watts{84});
            }
    }
    return make_pipeline(shape, index, std::move(curves), Watts{84});
}

/// How long an iteration of one copy takes: durations as planned for healthy stages, times their
/// stage's slowness, times what varies.
double play(const Pipeline& pipeline, const std::vector<StagePlan>& plans,
            const std::vector<double>& slowness, const std::vector<double>& varies) {
    std::vector<double> start(pipeline.operations.size(), 0);
    std::vector<std::vector<std::uint32_t>> after(pipeline.operations.size());
    for (const Dependency& d : pipeline.dependencies) after[d.first].push_back(d.then);
    double end = 0;
    for (const std::uint32_t i : pipeline.topological_order) {
        const std::uint32_t s = pipeline.operations[i].stage;
        const double lasts =
            plans[s].durations[i - pipeline.stage_begin[s]].count() * slowness[s] * varies[i];
        for (const std::uint32_t next : after[i])
            start[next] = std::max(start[next], start[i] + lasts);
        end = std::max(end, start[i] + lasts);
    }
    return end;
}

struct Outcome {
    double longer = 0;  ///< the job's iterations, against the straggler alone
    double dearer = 0;  ///< the worse copy, against its best plan for the time that there is
};

/// A job whose stages are all healthy.
struct Job {
    explicit Job(Pipeline pipeline) : frontier{std::move(pipeline)} {
        const std::string text = make_plan_text(frontier, {});
        for (std::uint32_t s = 0; s < frontier.pipeline().stages; ++s)
            first.push_back(parse_stage_plan(text, frontier.pipeline(), s));
    }

    Frontier frontier;
    std::vector<StagePlan> first;
};

Outcome answer(const Job& job, std::uint32_t slow_stage, double factor) {
    const Frontier& frontier = job.frontier;
    const std::vector<StagePlan>& first_plans = job.first;
    const StagePlan& first = first_plans[0];
    const Pipeline& pipeline = frontier.pipeline();
    std::mt19937_64 random{static_cast<std::uint64_t>(1000 * factor) + slow_stage};
    std::normal_distribution<double> normal;
    std::vector<double> measured(std::size_t{copies} * pipeline.stages);
    for (double& m : measured) m = 1 + 0.001 * normal(random);  // a median over an iteration
    measured[slow_stage] *= factor;
    StragglerWatch watch{copies, pipeline.stages};
    const StragglerState state = watch.look(measured, std::vector<double>(copies, 0.0));
    const std::string text = detail::make_answer_text(frontier, state, first.time, {});
    std::vector<double> slowness(pipeline.stages, 1.0);
    slowness[slow_stage] = factor;
    const std::vector<double> healthy(pipeline.stages, 1.0);
    std::vector<std::vector<StagePlan>> answers(copies);
    for (std::uint32_t c = 0; c < copies; ++c)
        for (std::uint32_t s = 0; s < pipeline.stages; ++s)
            answers[c].push_back(detail::parse_answer(text, pipeline, c, s));
    double alone = 0;
    double answered = 0;
    for (int draw = 0; draw < 30; ++draw) {
        double job_alone = 0;
        double job_answered = 0;
        for (std::uint32_t c = 0; c < copies; ++c) {
            std::vector<double> varies(pipeline.operations.size());
            for (double& v : varies) v = std::exp(variation * normal(random));
            const auto& slow = c == 0 ? slowness : healthy;
            job_alone = std::max(job_alone, play(pipeline, first_plans, slow, varies));
            job_answered = std::max(job_answered, play(pipeline, answers[c], slow, varies));
        }
        alone += job_alone;
        answered += job_answered;
    }
    // The best plans for the time that the straggler leaves, by the exact slowness.
    Outcome outcome{answered / alone - 1, -1};
    const Seconds wait = std::max(first.time, detail::shortest_iteration(pipeline, slowness));
    const auto json = nlohmann::json::parse(text);
    const Frontier slow{detail::slowed_pipeline(pipeline, slowness)};
    for (std::uint32_t c = 0; c < copies; ++c) {
        const Frontier& its = c == 0 ? slow : frontier;
        const Seconds time = std::clamp(wait, its.shortest(), its.frugal());
        // While a copy waits for the other one, its GPUs draw their blocking power.
        const auto until_wait = [&](Joules energy, Seconds lasts) {
            return (energy + pipeline.blocking_energy(wait) - pipeline.blocking_energy(lasts))
                .count;
        };
        const auto& plan = json["plans"][json["of_copy"][c].get<std::size_t>()];
        const double planned =
            until_wait({plan["total_j"].get<double>()}, Seconds{plan["time_s"].get<double>()});
        // No plan is below the frontier: where that is near enough, the best one is not needed.
        double dearer = planned / until_wait(its.total(time), time) - 1;
        if (dearer > most_dearer) {
            const PipelinePlan best = make_plan(its, time, Clocks::one);
            dearer = planned / until_wait(best.total, best.time) - 1;
        }
        outcome.dearer = std::max(outcome.dearer, dearer);
    }
    return outcome;
}

TEST(StragglerPlans, NeverMakeAJobSlowerAndAreNearTheBest) {
    const bool all = std::getenv("KDVFS_PIPELINES") != nullptr;
    double longest = -1;
    double dearest = -1;
    std::string worst;
    for (const Schedule schedule :
         {Schedule::one_f_one_b, Schedule::interleaved_1f1b, Schedule::zb_h1})
        for (const std::uint32_t stages : all ? std::vector{4U, 8U} : std::vector{4U}) {
            const Job job{uneven_pipeline(schedule, stages, 2 * stages)};
            for (std::uint32_t s = all ? 0 : stages - 1; s < stages; ++s)
                for (const double factor :
                     all ? std::vector{1.05, 1.1, 1.2, 1.3, 1.4, 1.5} : std::vector{1.2}) {
                    const Outcome outcome = answer(job, s, factor);
                    const std::string name = std::string{to_string(schedule)} + ", stage " +
                                             std::to_string(s) + " of " + std::to_string(stages) +
                                             " x " + std::to_string(factor);
                    EXPECT_LE(outcome.longer, 0.001) << name;
                    EXPECT_LE(outcome.dearer, most_dearer) << name;
                    longest = std::max(longest, outcome.longer);
                    if (outcome.dearer <= dearest) continue;
                    dearest = outcome.dearer;
                    worst = name;
                }
        }
    std::printf(
        "answers to one slow stage, durations that vary by 0.5 %%: at most %+.3f %% of time "
        "against the straggler alone, %.2f %% of energy above the best plan (%s)\n",
        100 * longest, 100 * dearest, worst.c_str());
}

}  // namespace
}  // namespace kdvfs::train
