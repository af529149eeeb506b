// SPDX-License-Identifier: MIT
#include <kdvfs/detail/solve/schedule_hull.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

struct Instance {
    CostTable table;
    std::vector<std::size_t> launches;
    SwitchCosts costs;
};

Instance random_instance(std::mt19937_64& random, std::size_t launches, std::uint32_t clocks) {
    std::uniform_real_distribution<double> uniform{0.1, 1};
    Instance instance{{"g", {}, {}}, {}, {}};
    for (std::size_t k = 0; k < launches; ++k) {
        KernelCosts kernel{{"k" + std::to_string(k), {}}, "", 1, {}, 0};
        const double scale = std::pow(10.0, 2 * uniform(random));
        for (std::uint32_t c = 0; c < clocks; ++c) {
            // Each kernel has its own favourite clock.
            kernel.points.push_back({{{100 * c}, auto_clock},
                                     {Seconds{scale * (0.8 + 0.6 * uniform(random))},
                                      Joules{scale * (0.3 + uniform(random))}}});
        }
        instance.table.kernels.push_back(kernel);
        instance.launches.push_back(k);
    }
    const double latency = std::pow(10.0, 3 * uniform(random) - 2);
    const bool uneven = random() % 2 == 0;
    const double pause = random() % 2 == 0 ? 0 : 0.2 * latency;
    instance.costs.paused_power = Watts{0.5};
    if (random() % 2 == 0) instance.costs.asking = Seconds{0.01};
    instance.costs.delay = [=](ClockPoint from, ClockPoint to) {
        const double factor =
            uneven ? 1 + 0.1 * (from.core.count % 7) + 0.2 * (to.core.count % 3) : 1;
        return SwitchDelay{Seconds{latency * factor}, Seconds{pause}};
    };
    return instance;
}

/// Plays requests against the launches, one after the other, by the model's words alone: the old
/// clock works on, the GPU pauses, the new clock holds. Nothing if a request comes while a switch
/// is under way, if one is under way at the end, or if the end is not the start.
std::optional<kdvfs::detail::Choice> play(const Instance& instance,
                                          const std::vector<int>& requests, int start) {
    struct Pending {
        int to;
        double works_on;
        double pause;
    };
    std::optional<Pending> pending;
    int clock = start;
    kdvfs::detail::Choice total;
    const auto& clocks = instance.table.kernels[0].points;
    for (std::size_t launch = 0; launch < instance.launches.size(); ++launch) {
        if (requests[launch] >= 0) {
            if (pending || requests[launch] == clock) return std::nullopt;
            const double asking = instance.costs.asking.count();
            total += {asking, asking * instance.costs.paused_power.count};
            const SwitchDelay delay =
                instance.costs.delay(clocks[static_cast<std::size_t>(clock)].clock,
                                     clocks[static_cast<std::size_t>(requests[launch])].clock);
            pending = {requests[launch], (delay.latency - delay.transition).count(),
                       delay.transition.count()};
        }
        const auto cost_at = [&](int at) {
            return instance.table.kernels[launch].points[static_cast<std::size_t>(at)].cost;
        };
        double left = 1;  // share of the launch
        if (pending && pending->works_on < cost_at(clock).time.count()) {
            const double done = pending->works_on / cost_at(clock).time.count();
            total += {done * cost_at(clock).time.count(), done * cost_at(clock).energy.count};
            total += {pending->pause, pending->pause * instance.costs.paused_power.count};
            left -= done;
            clock = pending->to;
            pending.reset();
        } else if (pending) {
            pending->works_on -= cost_at(clock).time.count();
        }
        total += {left * cost_at(clock).time.count(), left * cost_at(clock).energy.count};
    }
    if (pending || clock != start) return std::nullopt;
    return total;
}

/// Every way of asking for clocks.
double brute_force(const Instance& instance, const Objective& objective, const Cost& baseline) {
    const int clocks = static_cast<int>(instance.table.kernels[0].points.size());
    const double limit = time_limit(objective, baseline).count();
    double best = std::numeric_limits<double>::infinity();
    std::vector<int> requests(instance.launches.size(), -1);
    for (bool more = true; more;) {
        for (int start = 0; start < clocks; ++start) {
            const auto total = play(instance, requests, start);
            if (total && total->time <= limit)
                best = std::min(best, objective.score(kdvfs::detail::to_cost(*total), baseline));
        }
        more = false;
        for (int& request : requests) {
            if (++request < clocks) {
                more = true;
                break;
            }
            request = -1;
        }
    }
    return best;
}

std::optional<kdvfs::detail::Choice> play(const Instance& instance,
                                          const kdvfs::detail::Schedule& schedule) {
    std::vector<int> requests(instance.launches.size(), -1);
    for (const kdvfs::detail::Schedule::Request& request : schedule.requests)
        requests[request.before] = static_cast<int>(request.clock);
    return play(instance, requests, static_cast<int>(schedule.start));
}

struct Tally {
    int switching = 0;
    double widest_gap = 0;
};

Tally compare_with_brute_force(const Objective& objective, int instances, std::uint64_t seed) {
    std::mt19937_64 random{seed};
    Tally tally;
    for (int i = 0; i < instances; ++i) {
        const Instance instance = random_instance(random, 6, 4);
        const SwitchModel model{instance.table, instance.launches, instance.costs};
        const kdvfs::detail::ScheduleMinimum found = kdvfs::detail::minimise(model, objective, 0);
        const Cost baseline = kdvfs::detail::to_cost(kdvfs::detail::one_clock(model, 0).total);
        const double best = brute_force(instance, objective, baseline);
        const auto played = play(instance, found.schedule);
        EXPECT_TRUE(played.has_value()) << i;
        if (!played) return tally;
        EXPECT_NEAR(played->time, found.schedule.total.time, 1e-9 * played->time) << i;
        EXPECT_NEAR(played->energy, found.schedule.total.energy, 1e-9 * played->energy) << i;
        EXPECT_LE(played->time, time_limit(objective, baseline).count() * (1 + 1e-12)) << i;
        EXPECT_NEAR(objective.score(kdvfs::detail::to_cost(*played), baseline), best, 1e-9 * best)
            << i;
        tally.switching += found.schedule.requests.empty() ? 0 : 1;
        tally.widest_gap = std::max(tally.widest_gap, found.gap_pct);
    }
    return tally;
}

TEST(Schedule, EqualsBruteForceForWaste) {
    for (const double slowdown : {0.0, 0.02, 0.1}) {
        const Tally tally = compare_with_brute_force(relaxed_waste(slowdown), 500, 7);
        EXPECT_GT(tally.switching, 20) << "too few instances switch to test switching";
        EXPECT_LT(tally.widest_gap, 1e-6);
    }
}

TEST(Schedule, EqualsBruteForceForProductsAndEnergy) {
    EXPECT_GT(compare_with_brute_force(energy_delay(), 400, 8).switching, 20);
    EXPECT_GT(compare_with_brute_force(energy_delay_squared(), 300, 9).switching, 10);
    EXPECT_GT(compare_with_brute_force(minimum_energy(), 300, 10).switching, 20);
}

TEST(Schedule, WithoutLatencyItIsTheKernelsOwnOptimum) {
    std::mt19937_64 random{5};
    for (int i = 0; i < 50; ++i) {
        Instance instance = random_instance(random, 12, 6);
        instance.costs = SwitchCosts{};
        const SwitchModel model{instance.table, instance.launches, instance.costs};
        const Objective objective = relaxed_waste(0.05);
        const kdvfs::detail::ScheduleMinimum found = kdvfs::detail::minimise(model, objective, 0);
        const Plan plan = make_plan(instance.table, objective, Aggregate::global);
        EXPECT_NEAR(found.schedule.total.energy, plan.expected.energy.count,
                    1e-6 * plan.expected.energy.count);
    }
}

TEST(Schedule, LongLatencyLeavesOneClock) {
    std::mt19937_64 random{6};
    Instance instance = random_instance(random, 12, 6);
    instance.costs = uniform_switch_costs(Seconds{1e9});
    const SwitchModel model{instance.table, instance.launches, instance.costs};
    EXPECT_TRUE(kdvfs::detail::minimise(model, minimum_energy(), 0).schedule.requests.empty());
}

}  // namespace
}  // namespace kdvfs::tune
