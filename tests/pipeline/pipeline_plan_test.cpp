// SPDX-License-Identifier: MIT
#include <kdvfs/train/plan.hpp>
#include <tests/pipeline/random_pipelines.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::train {
namespace {

int planned_cases() {
    const char* asked = std::getenv("KDVFS_PIPELINES");
    return asked == nullptr ? 30 : std::stoi(asked);
}

/// Checks a plan from its operations alone: who waits for whom, what clocks were measured.
void check(const Pipeline& pipeline, const PipelinePlan& plan) {
    ASSERT_EQ(plan.operations.size(), pipeline.operations.size());
    std::vector<double> ends(plan.operations.size(), 0);
    std::vector<double> begins(plan.operations.size(), 0);
    std::vector<std::vector<Dependency>> before(plan.operations.size());
    for (const Dependency& d : pipeline.dependencies) before[d.then].push_back(d);
    double effective = 0;
    for (const std::uint32_t i : pipeline.topological_order) {
        const PlannedOperation& planned = plan.operations[i];
        ASSERT_EQ(planned.clocks.operation, pipeline.operations[i]);
        for (const Dependency& d : before[i])
            begins[i] = std::max(begins[i], ends[d.first] + d.time.count());
        double lasts = 0;
        double energy = 0;
        int found = 0;
        const auto points = pipeline.curves[pipeline.operations[i].curve].points();
        for (const CurvePoint& point : points) {
            const bool is_first = points.size() == 1 || point.clock == planned.clocks.first;
            double share = is_first ? planned.clocks.share : 0;
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
    for (int k = 0; k < planned_cases(); ++k) {
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

/// What a plan's stages draw in an iteration that follows itself, second by second of each stage.
/// @param lowered waits longer than this are at the clock of least power but for their two ends
double drawn(const Pipeline& pipeline, const PipelinePlan& plan, double latency, bool lowered) {
    double sum = 0;
    for (std::uint32_t s = 0; s < pipeline.stages; ++s) {
        const std::uint32_t begin = pipeline.stage_begin[s];
        const std::uint32_t end = pipeline.stage_begin[s + 1];
        for (std::uint32_t i = begin; i < end; ++i) {
            const PlannedOperation& now = plan.operations[i];
            const bool first = i == begin;
            const PlannedOperation& before = plan.operations[first ? end - 1 : i - 1];
            const double since =
                (before.start + before.duration).count() - (first ? plan.time.count() : 0);
            const double wait = std::max(0.0, now.start.count() - since);
            const double at_old = pipeline.waiting.at(before.clocks.second.core).count;
            const double at_new = pipeline.waiting.at(now.clocks.first.core).count;
            double cost = at_old * wait;
            if (lowered && wait > 2 * latency)
                cost = std::min(cost, (at_old + at_new) * latency +
                                          pipeline.blocking_power.count * (wait - 2 * latency));
            sum +=
                cost + now.effective.count + pipeline.blocking_power.count * now.duration.count();
        }
    }
    return sum;
}

TEST(PlannedWaits, DrawLeastPowerWhereTheyAreLongEnough) {
    std::mt19937_64 random{23};
    std::size_t lowered = 0;
    for (int k = 0; k < planned_cases(); ++k) {
        Pipeline pipeline = random_pipeline(random);
        const double least = pipeline.blocking_power.count;
        pipeline.waiting = {{{Megahertz{900}, Watts{least + 4}},
                             {Megahertz{1000}, Watts{least}},
                             {Megahertz{1200}, Watts{least + 10}}},
                            Watts{least + 25}};
        const Frontier frontier{pipeline};
        PipelinePlan plan = make_plan(frontier, frontier.shortest(), Clocks::two);
        SCOPED_TRACE("pipeline " + std::to_string(k));
        // Where switches take no time, all waits draw least power, which the frontier says exactly.
        EXPECT_NEAR(plan.total.count, plan.bound.count, 1e-6 * plan.bound.count);
        for (const double latency : {0.0, 0.002, 0.02, 1.0}) {
            plan_waits(pipeline, Seconds{latency}, plan);
            EXPECT_NEAR(plan.total.count, drawn(pipeline, plan, latency, true),
                        1e-6 * plan.total.count);
            EXPECT_GE(plan.total.count, plan.bound.count * (1 - 1e-6));
            double saved = 0;
            for (const PlannedWait& wait : plan.waits) {
                EXPECT_EQ(wait.clock.core, Megahertz{1000});
                EXPECT_GT(wait.length.count(), 2 * latency);
                EXPECT_GT(wait.saved.count, 0);
                saved += wait.saved.count;
            }
            EXPECT_NEAR(plan.total.count + saved, drawn(pipeline, plan, latency, false),
                        1e-6 * plan.total.count);
            lowered += plan.waits.size();
            if (latency == 1.0) {
                EXPECT_TRUE(plan.waits.empty());
            }
        }
    }
    EXPECT_GT(lowered, 100U);
}

/// What an operation takes at a clock: where it was not measured, as at the next slower one.
struct Work {
    double time = 0;
    double effective = 0;
};
Work work_at(const Pipeline& pipeline, std::size_t operation, std::optional<ClockPoint> clock) {
    const Curve& curve = pipeline.curves[pipeline.operations[operation].curve];
    std::vector<CurvePoint> points{curve.points().begin(), curve.points().end()};
    const CurvePoint* chosen = nullptr;
    if (clock) {
        for (const CurvePoint& point : points)
            if (!(*clock < point.clock) && (chosen == nullptr || chosen->clock < point.clock))
                chosen = &point;
        if (chosen == nullptr)
            chosen = &*std::min_element(
                points.begin(), points.end(),
                [](const CurvePoint& a, const CurvePoint& b) { return a.clock < b.clock; });
    } else {
        chosen = &points.front();
    }
    return {chosen->time.count(), (chosen->energy - pipeline.blocking_power * chosen->time).count};
}

/// Walks through iterations of one stage after the other in small events: a request, the pause
/// before it comes about, the new clock.
struct LateReplay {
    double length = 0;
    double effective = 0;
};
LateReplay replay(const Pipeline& pipeline, const PipelinePlan& plan,
                  const tune::SwitchDelay& switching) {
    struct Event {
        double at;
        std::optional<ClockPoint> clock;
    };
    // Every request that a stage ever makes, over all iterations; one holds from `latency` after
    // it was made, unless another one has been made by then.
    std::vector<std::vector<Event>> asked(pipeline.stages, {{-1e9, std::nullopt}});
    const auto ask = [&](std::uint32_t stage, double at, std::optional<ClockPoint> clock) {
        if (asked[stage].back().clock != clock) asked[stage].push_back({at, clock});
    };
    const double latency = switching.latency.count();
    const auto run = [&](std::uint32_t i, double begin) {
        const std::vector<Event>& events = asked[pipeline.operations[i].stage];
        double left = 1;
        double energy = 0;
        double now = begin;
        std::optional<ClockPoint> clock;
        double paused_from = 1e18;
        double next = 1e18;
        for (std::size_t k = 0; k < events.size(); ++k) {
            const bool overtaken =
                k + 1 < events.size() && events[k + 1].at < events[k].at + latency - 1e-12;
            if (overtaken) continue;
            if (events[k].at + latency <= begin + 1e-12) {
                clock = events[k].clock;
            } else {
                next = events[k].at + latency;
                paused_from = next - std::min(switching.transition.count(), latency);
            }
        }
        const Work before = work_at(pipeline, i, clock);
        if (next < 1e17 && now + before.time > paused_from) {
            const double share = std::max(paused_from - now, 0.0) / before.time;
            left -= share;
            energy += share * before.effective;
            now = next;
            clock = events.back().clock;
        }
        const Work rest = work_at(pipeline, i, clock);
        return std::pair{now + left * rest.time, energy + left * rest.effective};
    };
    LateReplay last;
    double begin = 0;
    for (int iteration = 0; iteration < 6; ++iteration) {
        std::vector<double> ends(pipeline.operations.size(), begin);
        std::vector<double> free(pipeline.stages, begin);
        last = {};
        for (const std::uint32_t i : pipeline.topological_order) {
            const std::uint32_t s = pipeline.operations[i].stage;
            double start = free[s];
            for (const Dependency& d : pipeline.dependencies)
                if (d.then == i) start = std::max(start, ends[d.first] + d.time.count());
            ask(s, free[s], plan.operations[i].clocks.first);
            const auto [end, energy] = run(i, start);
            ends[i] = free[s] = end;
            last.effective += energy;
        }
        const double end = *std::max_element(free.begin(), free.end());
        for (std::uint32_t s = 0; s < pipeline.stages; ++s)
            if (free[s] < end - 1e-10) ask(s, free[s], std::nullopt);
        last.length = end - begin;
        begin = end;
    }
    return last;
}

TEST(PipelinePlan, PromisesWhatLateClocksKeep) {
    std::mt19937_64 random{13};
    std::uniform_real_distribution<double> uniform{0, 1};
    int in_time = 0;
    for (int k = 0; k < planned_cases(); ++k) {
        const Frontier frontier{random_pipeline(random)};
        const Seconds span = frontier.frugal() - frontier.shortest();
        const Seconds time = frontier.shortest() + span * (k % 3 == 0 ? 0 : uniform(random));
        const Seconds latency{std::pow(10, -4 + 3 * uniform(random))};
        const tune::SwitchDelay switching{latency, latency * (k % 2 == 0 ? 0 : 0.1)};
        const PipelinePlan plan = make_plan(frontier, time, Clocks::one, switching);
        SCOPED_TRACE("pipeline " + std::to_string(k) + ", latency " +
                     std::to_string(latency.count()));
        const LateReplay late = replay(frontier.pipeline(), plan, switching);
        EXPECT_NEAR(late.length, plan.makespan.count(), 1e-7);
        EXPECT_NEAR(late.effective, plan.effective.count, 1e-5 * std::abs(late.effective) + 1e-4);
        EXPECT_GE(plan.time, plan.makespan);
        EXPECT_EQ(plan.switches, count_switches(plan));
        EXPECT_GE(plan.gap(), -1e-9);
        in_time += plan.time <= time + Seconds{1e-6} ? 1 : 0;
    }
    // Where operations have different fastest clocks some switches cannot be spared.
    EXPECT_GE(in_time, planned_cases() * 3 / 4);
}

/// On a stage of its own every assignment of clocks can be tried.
TEST(PipelinePlan, FindsTheLeastEnergyOfOneStage) {
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
        std::vector<std::size_t> chosen(5, 0);
        const auto points = [&](std::size_t i) {
            return curves[pipeline.operations[i].curve].points();
        };
        for (bool more = true; more;) {
            double lasts = 0;
            double total = 50 * plan.time.count();
            for (std::size_t i = 0; i < 5; ++i) {
                const CurvePoint& point = points(i)[chosen[i]];
                lasts += point.time.count();
                total += (point.energy - Watts{50} * point.time).count;
            }
            if (lasts <= plan.time.count() + 1e-12) cheapest = std::min(cheapest, total);
            more = false;
            for (std::size_t i = 0; i < 5 && !more; ++i) {
                more = ++chosen[i] < points(i).size();
                if (!more) chosen[i] = 0;
            }
        }
        EXPECT_LE(plan.total.count, cheapest * (1 + 1e-9)) << "case " << k;
    }
}

}  // namespace
}  // namespace kdvfs::train
