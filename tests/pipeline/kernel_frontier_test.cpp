// SPDX-License-Identifier: MIT
// Operations whose kernels have clocks of their own, simulated: against all schedules there are,
// and played second by second.
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/train/kernel_frontier.hpp>
#include <kdvfs/train/schedules.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::train {
namespace {

tune::CostTable table_of(const std::vector<std::vector<tune::PointCost>>& kernels) {
    tune::CostTable table{"simulated", kernels.front().back().clock, {}, {}};
    for (std::size_t k = 0; k < kernels.size(); ++k)
        table.kernels.push_back(
            {{"k" + std::to_string(k), {}}, "", 1, kernels[k], kernels[k].size() - 1, {}, {}});
    return table;
}

/// What an operation takes with the given requests, launch by launch and moment by moment: a clock
/// that is requested comes after the latency, in whose last part the GPU pauses.
struct Played {
    double time = 0;
    double energy = 0;
    std::size_t last = 0;
};
Played play(const tune::CostTable& table, const std::vector<std::size_t>& launches,
            std::size_t clock, const std::vector<std::optional<std::size_t>>& requests,
            double latency, double transition, double paused) {
    Played played;
    double arrives = 1e9;
    std::size_t coming = clock;
    for (std::size_t k = 0; k < launches.size(); ++k) {
        if (requests[k] && *requests[k] != coming) {
            coming = *requests[k];
            arrives = played.time + latency;
        }
        double left = 1;
        while (left > 1e-12) {
            const auto& point = table.kernels[launches[k]].points[clock].cost;
            const double whole = point.time.count();
            const double works = std::max(arrives - transition - played.time, 0.0);
            const double share = clock == coming ? left : std::min(left, works / whole);
            played.time += share * whole;
            played.energy += share * point.energy.count;
            left -= share;
            if (left > 1e-12 || (clock != coming && played.time >= arrives - transition)) {
                played.energy += paused * std::max(arrives - played.time, 0.0);
                played.time = std::max(arrives, played.time);
                clock = coming;
            }
        }
    }
    played.last = clock;
    if (clock != coming) played.time = 1e9;  // it would arrive after the end
    return played;
}

/// Every schedule of a few launches at three clocks that ends where it began: none is below the
/// frontier, and its corners are among them.
TEST(KernelFrontier, IsTheHullOfAllSchedules) {
    std::mt19937_64 random{41};
    std::uniform_real_distribution<double> uniform;
    for (int round = 0; round < 12; ++round) {
        std::vector<std::vector<tune::PointCost>> kernels(3);
        for (auto& points : kernels) {
            const double work = 0.002 + 0.01 * uniform(random);
            const double bound = uniform(random);  // by the core clock
            const double watts = 150 + 250 * uniform(random);
            for (const double mhz : {800.0, 1100.0, 1400.0})
                points.push_back({{Megahertz{static_cast<std::uint32_t>(mhz)}, auto_clock},
                                  {Seconds{work * (1 - bound + bound * 1400 / mhz)},
                                   Joules{work * (80 + watts * std::pow(mhz / 1400, 2.2) *
                                                           (1 - bound + bound * 1400 / mhz))}}});
        }
        const tune::CostTable table = table_of(kernels);
        const std::vector<std::size_t> launches{0, 1, 2, 1, 0, 2};
        const double latency = round % 3 == 0 ? 0 : 0.003 * uniform(random);
        const double transition = round % 2 == 0 ? 0 : 0.3 * latency;
        const Watts blocking{60};
        const KernelFrontier frontier{
            table, launches,
            tune::uniform_switch_costs(Seconds{latency}, Seconds{transition}, {90}), blocking};
        const Curve curve = frontier.curve("operation");
        const auto& points = frontier.points();
        std::set<std::size_t> reached;
        std::vector<std::optional<std::size_t>> requests(launches.size());
        const int all = static_cast<int>(std::pow(4, launches.size()));
        for (std::size_t start = 0; start < 3; ++start)
            for (int code = 0; code < all; ++code) {
                int rest = code;
                for (auto& request : requests) {
                    request = rest % 4 == 3 ? std::nullopt
                                            : std::optional{static_cast<std::size_t>(rest % 4)};
                    rest /= 4;
                }
                const Played run = play(table, launches, start, requests, latency, transition, 90);
                if (run.last != start || run.time > 1e6) continue;
                const double effective = run.energy - blocking.count * run.time;
                for (std::size_t k = 0; k < points.size(); ++k) {
                    const auto& cost = points[k].cost;
                    const double its = (cost.energy - blocking * cost.time).count;
                    if (std::abs(cost.time.count() - run.time) < 1e-7 &&
                        std::abs(its - effective) < 1e-5)
                        reached.insert(k);
                    if (k == 0) {
                        EXPECT_GE(run.time, cost.time.count() - 1e-7);
                        continue;
                    }
                    // Nothing lies below the line from corner to corner.
                    const auto& before = points[k - 1].cost;
                    const double at = (before.energy - blocking * before.time).count;
                    const double price = (at - its) / (cost.time - before.time).count();
                    EXPECT_GE(effective + price * run.time, at + price * before.time.count() - 2e-5)
                        << round << ' ' << k;
                }
            }
        EXPECT_EQ(reached.size(), points.size()) << round;
        EXPECT_EQ(curve.points().size(), points.size());
    }
}

/// Layers of a GPT on one stage: matrix products, attention, and what moves memory alone.
std::vector<simulated::KernelModel> layer(const simulated::Board& board, double size) {
    std::vector<simulated::KernelModel> kernels;
    const auto product = [&](double flops, double bytes, double matrix) {
        kernels.push_back(
            simulated::roofline(board, {.matrix_flops = flops * size, .memory_bytes = bytes * size},
                                {.matrix = matrix}));
    };
    const auto moves = [&](double bytes) {
        kernels.push_back(simulated::roofline(
            board, {.vector_flops = bytes * size * 0.1, .memory_bytes = bytes * size}));
    };
    moves(4e9);                // layer norm
    product(3e12, 3e9, 0.7);   // query, key, value
    product(1e12, 1e9, 0.45);  // attention
    product(1e12, 2e9, 0.7);   // projection
    moves(6e9);                // residual, layer norm
    product(4e12, 4e9, 0.7);
    moves(8e9);  // activation
    product(4e12, 4e9, 0.7);
    return kernels;
}

struct Simulated {
    std::vector<tune::CostTable> tables;             ///< by curve
    std::vector<std::vector<std::size_t>> launches;  ///< by curve
    std::vector<KernelFrontier> frontiers;
    std::vector<const KernelFrontier*> pointers;
    Pipeline by_kernels;
    Pipeline by_operations;
};

/// 1F1B on a simulated H100, stages unevenly cut.
Simulated simulated_pipeline(std::uint32_t stages, std::uint32_t microbatches, Seconds latency) {
    const simulated::Board board = simulated::h100();
    const Watts blocking = simulated::idle_power(board, {});
    std::vector<Megahertz> clocks;
    for (const Megahertz clock : board.clocks.core.listed)
        if (clock.count >= 900 && clock.count % 60 == 0) clocks.push_back(clock);
    Simulated made;
    CurveIndex index;
    std::vector<Curve> one;
    std::vector<Curve> many;
    for (std::uint32_t s = 0; s < stages; ++s)
        for (const Pass pass : {Pass::forward, Pass::backward}) {
            const double size = (s + 1 == stages ? 1.15
                                 : s == 0        ? 1.06
                                                 : 1) *
                                (pass == Pass::backward ? 2 : 1);
            std::vector<std::vector<tune::PointCost>> kernels;
            for (const simulated::KernelModel& model : layer(board, size)) {
                kernels.emplace_back();
                for (const Megahertz core : clocks) {
                    const simulated::OperatingPoint at =
                        simulated::operate(board, model, {core, auto_clock});
                    kernels.back().push_back({{core, auto_clock}, {at.time, at.power * at.time}});
                }
            }
            made.tables.push_back(table_of(kernels));
            made.launches.emplace_back();
            for (int l = 0; l < 4; ++l)
                for (std::size_t k = 0; k < kernels.size(); ++k) made.launches.back().push_back(k);
            std::vector<CurvePoint> points;
            for (std::size_t c = 0; c < clocks.size(); ++c) {
                points.push_back({{clocks[c], auto_clock}, Seconds{0}, Joules{0}});
                for (const std::size_t k : made.launches.back()) {
                    points.back().time += kernels[k][c].cost.time;
                    points.back().energy += kernels[k][c].cost.energy;
                }
            }
            made.frontiers.emplace_back(made.tables.back(), made.launches.back(),
                                        tune::uniform_switch_costs(latency, Seconds{0}, blocking),
                                        blocking);
            index[{s, pass, 0}] = static_cast<std::uint32_t>(one.size());
            one.emplace_back("one clock", points, blocking);
            many.push_back(made.frontiers.back().curve("by kernels"));
        }
    for (const KernelFrontier& frontier : made.frontiers) made.pointers.push_back(&frontier);
    const PipelineShape shape{Schedule::one_f_one_b, stages, 1, microbatches};
    made.by_operations = make_pipeline(shape, index, one, blocking);
    made.by_kernels = make_pipeline(shape, index, many, blocking);
    return made;
}

/// Plays a plan: launches of all operations, requests where the plan has them, the clock that an
/// operation ends at holding on into the next until its own arrives.
tune::Cost play_plan(const Simulated& made, const PipelinePlan& plan, double latency) {
    const Pipeline& p = made.by_kernels;
    std::vector<double> end(p.operations.size(), 0);
    struct Stage {
        double free = 0;
        double arrives = -1;
        std::size_t holds = 0;
        std::size_t coming = 0;
    };
    std::vector<Stage> stages(p.stages);
    std::vector<bool> begun(p.stages, false);
    double energy = 0;
    double busy = 0;
    for (const std::uint32_t i : p.topological_order) {
        const Operation& operation = p.operations[i];
        const tune::CostTable& table = made.tables[operation.curve];
        const auto& launches = made.launches[operation.curve];
        const auto column = [&](ClockPoint clock) {
            const auto& points = table.kernels.front().points;
            return static_cast<std::size_t>(
                std::find_if(points.begin(), points.end(),
                             [&](const tune::PointCost& point) { return point.clock == clock; }) -
                points.begin());
        };
        Stage& stage = stages[operation.stage];
        const auto ask = [&](ClockPoint clock, double at) {
            if (stage.arrives <= at) stage.holds = stage.coming;
            if (column(clock) == stage.coming) return;
            stage.coming = column(clock);
            stage.arrives = at + latency;
        };
        const PlannedOperation& planned = plan.operations[i];
        if (!begun[operation.stage]) {
            stage.holds = stage.coming = column(planned.clocks.first);
            begun[operation.stage] = true;
        }
        double now = stage.free;
        ask(planned.clocks.first, now);
        for (const Dependency& d : p.dependencies)
            if (d.then == i) now = std::max(now, end[d.first]);
        const double began = now;
        double whole = 0;
        for (const std::size_t k : launches)
            whole += table.kernels[k].points.back().cost.time.count();
        double done = 0;
        for (const std::size_t k : launches) {
            for (const ClockChange& change : planned.changes)
                if (std::abs(change.share * whole - done) < 1e-9) ask(change.clock, now);
            double left = 1;
            while (left > 1e-12) {
                if (stage.arrives <= now + 1e-13) stage.holds = stage.coming;
                const tune::Cost& cost = table.kernels[k].points[stage.holds].cost;
                const double until = stage.holds == stage.coming ? 1e9 : stage.arrives - now;
                const double share = std::min(left, until / cost.time.count());
                now += share * cost.time.count();
                energy += share * cost.energy.count;
                left -= share;
            }
            done += table.kernels[k].points.back().cost.time.count();
        }
        busy += now - began;
        end[i] = stage.free = now;
    }
    const double length = std::max(*std::max_element(end.begin(), end.end()), plan.time.count());
    return {Seconds{length}, Joules{energy + p.blocking_power.count * (p.stages * length - busy)}};
}

/// The saving of second order: clocks by kernel against one clock an operation, both planned with
/// the pipeline's slack, at the same length of the iteration.
TEST(KernelFrontier, SavesMoreThanOneClockAnOperation) {
    for (const double milliseconds : {0.0, 1.0, 6.0}) {
        const Simulated made = simulated_pipeline(4, 8, Seconds{milliseconds / 1000});
        const Frontier one{made.by_operations};
        const Frontier many{made.by_kernels};
        const auto top = [&] {
            double energy = made.by_operations.blocking_energy(one.shortest()).count;
            for (const Operation& o : made.by_operations.operations)
                energy += to_joules(made.by_operations.curves[o.curve].effective(0)).count;
            return energy;
        }();
        for (const double slower : {0.0, 0.05}) {
            const Seconds length = one.shortest() * (1 + slower);
            const Seconds latency{milliseconds / 1000};
            const PipelinePlan by_operations =
                make_plan(one, length, Clocks::one, {latency, Seconds{0}});
            const PipelinePlan by_kernels = make_kernel_plan(many, made.pointers, length, latency);
            const tune::Cost played = play_plan(made, by_kernels, milliseconds / 1000);
            const auto saved = [&](Joules energy) { return 100 * (1 - energy.count / top); };
            std::printf(
                "simulated H100, 4 stages, latency %.0f ms, %.0f %% slower: one clock an operation "
                "saves %.2f %%, clocks by kernel %.2f %% (played: %.2f %%, time %+.2f %%), %u "
                "switches, gap to the bound %.3f %%\n",
                milliseconds, 100 * slower, saved(by_operations.total), saved(by_kernels.total),
                saved(played.energy), 100 * (played.time / by_kernels.time - 1),
                by_kernels.switches, 100 * by_kernels.gap());
            EXPECT_LE(by_kernels.time, std::max(length, by_operations.time) * 1.00002);
            EXPECT_LE(by_kernels.total, by_operations.total);
            EXPECT_LE(by_kernels.gap(), 0.005);
            EXPECT_NEAR(played.energy / by_kernels.total, 1, 1e-3);
            EXPECT_LE(played.time, by_kernels.time * 1.0001);
        }
    }
}

}  // namespace
}  // namespace kdvfs::train
