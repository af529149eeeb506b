// SPDX-License-Identifier: MIT
//
// Pools whose instances take time and power to start, led by decisions from the past alone.
#include <bench/serving/led_pool.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace led_pool {
namespace {

std::vector<PoolPoint> two_sizes(std::uint32_t parallelism, double capacity) {
    std::vector<PoolPoint> points;
    for (const std::uint32_t n : {1U, 2U, 3U})
        for (const double used : {0.1, 0.5, 1.0, 1.5})
            points.push_back({parallelism, n, StepPolicy::no_harm, used * n * capacity,
                              Watts{parallelism * n * (100 + 100 * used)}, used > 1 ? 0.3 : 0.0});
    return points;
}

/// Windows of the same load. @returns the decision after each
std::vector<PoolDecision> decisions(PoolController& controller, std::vector<double> loads) {
    std::vector<PoolDecision> made;
    for (const double load : loads) {
        controller.arrived(load * 30);
        made.push_back(controller.window_ended());
    }
    return made;
}

TEST(PoolController, FollowsTheLoadAndKeepsWhatAStartWouldCost) {
    PoolController controller{two_sizes(1, 1), {}, {1, 1, StepPolicy::no_harm, 0, 0}};
    std::vector<double> loads(40, 0.5);
    loads.insert(loads.end(), 40, 2.2);
    loads.insert(loads.end(), 60, 0.3);
    const auto made = decisions(controller, loads);
    EXPECT_EQ(made[39].instances, 1U);
    EXPECT_EQ(made[79].instances, 3U);
    EXPECT_LT(made.back().instances, 3U);
    // A start costs what an idle instance draws in 120 s / 0.7: six windows, and the load's decay.
    int kept = 0;
    for (std::size_t w = 80; made[w].instances == 3; ++w) ++kept;
    EXPECT_GE(kept, 6);
    EXPECT_LE(kept, 20);
}

TEST(PoolController, ChangesItsParallelismWhereThatPaysAndRefusesWhatMakesNoSense) {
    auto profile = two_sizes(1, 1);
    // Two boards together carry four times as much for the power of two.
    for (const PoolPoint& point : two_sizes(2, 4)) profile.push_back(point);
    PoolController controller{profile, {}, {1, 1, StepPolicy::no_harm, 0, 0}};
    const auto made = decisions(controller, std::vector<double>(60, 2.5));
    EXPECT_EQ(made.back().parallelism, 2U);
    EXPECT_EQ(made.back().instances, 1U);
    EXPECT_THROW((PoolController{{}, {}, {}}), Error);
    PoolControlOptions never;
    never.start = Seconds{-1};
    EXPECT_THROW((PoolController{two_sizes(1, 1), never, {}}), Error);
}

TEST(LoadForecast, KnowsItsOwnErrors) {
    LoadForecast steady{5};
    LoadForecast jumping{5};
    for (int window = 0; window < 200; ++window) {
        steady.add(3);
        jumping.add(window / 10 % 2 == 0 ? 1 : 3);
    }
    EXPECT_DOUBLE_EQ(steady.expected(), 3);
    for (const double error : steady.errors()) EXPECT_DOUBLE_EQ(error, 1);
    const auto [least, most] =
        std::minmax_element(jumping.errors().begin(), jumping.errors().end());
    EXPECT_LT(*least, 0.5);
    EXPECT_GT(*most, 2);
}

/// A request every second, each of a tenth of a second.
std::vector<Request> steady_requests(int seconds) {
    std::vector<Request> requests;
    for (int i = 0; i < seconds; ++i) requests.push_back({Seconds{double(i)}, 500, 1});
    return requests;
}

std::map<std::uint32_t, Kind> planned_kinds() {
    std::map<std::uint32_t, Kind> kinds;
    for (const std::uint32_t boards : {1U, 2U}) kinds.emplace(boards, Kind{boards});
    static_cast<void>(measure_pools(kinds, 0, 1));
    return kinds;
}

TEST(Pool, StartsTakeTheirTimeAndPower) {
    const auto kinds = planned_kinds();
    PoolControlOptions physics;
    physics.start = Seconds{100};
    physics.starting = Watts{150};
    const PoolDecision one{1, 1, StepPolicy::no_harm, 0, 0};
    const PoolDecision two{1, 2, StepPolicy::no_harm, 0, 0};
    const auto run = [&](const PoolDecision& wanted, Seconds start) {
        physics.start = start;
        return led_pool::serve(
            Pool{kinds, physics, one}, steady_requests(301), Seconds{300},
            [&](std::size_t, const Pool&) { return wanted; }, [](const Request&) {});
    };
    // Decided at 300 s, and the trace ends there: the instance has not served.
    const PoolRun alone = run(one, Seconds{100});
    const PoolRun begun = run(two, Seconds{100});
    EXPECT_EQ(begun.starts, 1U);
    EXPECT_LT(begun.counts.energy.count - alone.counts.energy.count, 150);
    EXPECT_EQ(begun.counts.requests, 301U);

    const auto long_run = [&](const PoolDecision& wanted) {
        return led_pool::serve(
            Pool{kinds, physics, one}, steady_requests(601), Seconds{200},
            [&](std::size_t, const Pool&) { return wanted; }, [](const Request&) {});
    };
    const PoolRun still = long_run(one);
    const PoolRun more = long_run(two);
    EXPECT_EQ(more.starts, 1U);
    // 100 s at 150 W, then 301 s beside the first one: at least the idle power, at most the limit.
    const double extra = more.counts.energy.count - still.counts.energy.count;
    EXPECT_GT(extra, 15'000 + 300 * 60);
    EXPECT_LT(extra, 15'000 + 302 * 120);
    EXPECT_NEAR(more.board_seconds - still.board_seconds, 401, 2);
}

TEST(Pool, OldInstancesServeUntilThoseOfAnotherParallelismDo) {
    const auto kinds = planned_kinds();
    PoolControlOptions physics;
    physics.start = Seconds{100};
    const PoolDecision one{1, 1, StepPolicy::no_harm, 0, 0};
    const PoolDecision spread{2, 1, StepPolicy::no_harm, 0, 0};
    const PoolRun run = led_pool::serve(
        Pool{kinds, physics, one}, steady_requests(1000), Seconds{50},
        [&](std::size_t ended, const Pool&) { return ended < 9 ? one : spread; },
        [](const Request&) {});
    EXPECT_EQ(run.counts.requests, 1000U);
    EXPECT_EQ(run.starts, 1U);
    EXPECT_EQ(run.counts.first_tokens_pct(), 100);
    // One board until 600 s, two from the decision at 500 s on.
    EXPECT_NEAR(run.board_seconds, 600 + 2 * 500, 4);
}

void print(const char* name, const Comparison& made, const PoolControlOptions& options) {
    std::printf(
        "simulated, %s, %g %% may be late, start %g s: %u boards always on; with the step plan "
        "%+.1f %%; led %+.1f %%, first tokens %+.2f points, %zu starts; future known %+.1f %%, "
        "%+.2f points, %zu starts; led %+.1f %% dearer\n",
        name, 100 * options.late, options.start.count(), made.boards,
        made.energy_pct(made.constant), made.energy_pct(made.led), made.points(made.led),
        made.led.starts, made.energy_pct(made.known), made.points(made.known), made.known.starts,
        100 * (made.led.counts.energy / made.known.counts.energy - 1));
}

void expect_good(const Comparison& made) {
    EXPECT_LT(made.led.counts.energy, made.baseline.counts.energy);
    EXPECT_GE(made.points(made.led), -0.5);
    EXPECT_LE(made.led.counts.energy / made.known.counts.energy, 1.15);
    EXPECT_GE(made.led.counts.gaps_pct(), 99.9);
}

TEST(LedPool, AnHourOfConversations) {
    const std::filesystem::path trace = KDVFS_SOURCE_DIR "/../shared/data/azure/conv.csv";
    const std::vector<Request> requests = std::filesystem::exists(trace)
                                              ? read_requests(trace)
                                              : synthetic_conversations(Seconds{3600}, 1);
    std::map<std::uint32_t, Kind> kinds;
    kinds.emplace(1, Kind{1});
    const auto profile = measure_pools(kinds, 6, 2000);
    const bool is_soak = std::getenv("KDVFS_POOLS") != nullptr;
    for (const double late : {0.01, 0.001}) {
        if (late < 0.01 && !is_soak) continue;
        PoolControlOptions options;
        options.late = late;
        const Comparison made = compare(kinds, profile, requests, options);
        print("an hour of conversations", made, options);
        expect_good(made);
    }
}

/// Days of half a million requests: not run by default.
TEST(LedPool, MadeUpDays) {
    if (std::getenv("KDVFS_POOLS") == nullptr) GTEST_SKIP() << "in the soak";
    std::map<std::uint32_t, Kind> kinds;
    for (const std::uint32_t boards : {1U, 2U}) kinds.emplace(boards, Kind{boards});
    const auto profile = measure_pools(kinds, 8, 4000);
    for (const double start : {30., 120., 300.}) {
        PoolControlOptions options;
        options.start = Seconds{start};
        const auto day = made_up_day(Seconds{86'400}, 9, static_cast<std::uint64_t>(start));
        const Comparison made = compare(kinds, profile, day, options);
        print("a made-up day", made, options);
        if (start == 120) expect_good(made);
    }
}

}  // namespace
}  // namespace led_pool
