// SPDX-License-Identifier: MIT
// Serving in virtual time: engine and board by hand-made numbers, and what clocks alone save.
#include <bench/serving/clock_policies.hpp>
#include <bench/serving/pools.hpp>
#include <bench/serving/requests.hpp>
#include <bench/serving/roofline_board.hpp>
#include <bench/serving/serving_engine.hpp>
#include <bench/serving/synthetic_requests.hpp>
#include <kdvfs/serve/step_sweep.hpp>
#include <tests/serve/served_hour.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::serve {
namespace {

/// A step takes 1 ms a prompt token, 10 ms with sequences, at 1000 MHz, twice as long at 500 MHz;
/// 100 W at work, 10 W idle.
struct PlainBoard {
    std::vector<Megahertz> list{{500}, {1000}};
    [[nodiscard]] const std::vector<Megahertz>& clocks() const { return list; }
    [[nodiscard]] std::optional<Cost> cost(StepShape shape, Megahertz clock) const {
        if (shape.context_tokens > 100) return std::nullopt;
        const double time =
            (0.001 * shape.prompt_tokens + (shape.sequences > 0 ? 0.01 : 0)) * 1000 / clock.count;
        return Cost{Seconds{time}, Joules{100 * time}};
    }
    [[nodiscard]] Watts idle_power(Megahertz) const { return {10}; }
};

TEST(ServingBoard, AWishHoldsAfterTheLatency) {
    const PlainBoard costs;
    ServingBoard board{costs, {500}, Seconds{0.1}};
    board.ask({1000});
    // 100 ms at half speed do half of it; the rest takes 50 ms.
    EXPECT_NEAR(board.run({100, 0, 0}).count(), 0.15, 1e-12);
    EXPECT_NEAR(board.energy().count, 15, 1e-9);
    board.idle_until(Seconds{1.15});
    EXPECT_NEAR(board.energy().count, 25, 1e-9);
    EXPECT_EQ(board.switches(), 1U);
}

TEST(ServingEngine, ChunksSequencesAndFirstTokens) {
    const PlainBoard costs;
    FixedClock policy{{1000}};
    EngineLimits limits;
    limits.chunk_tokens = 40;
    limits.max_sequences = 2;
    LatencyTargets targets;
    targets.first_token = Seconds{0.055};
    targets.first_token_factor = 1;
    targets.gap = Seconds{0.02};
    ServingEngine engine{costs, policy, limits, targets, Seconds{0.006}};
    engine.submit({Seconds{0}, 50, 3});
    engine.submit({Seconds{0}, 20, 1});
    engine.drain();
    // 40 ms: 40 tokens. 30 ms: 10 and 20 tokens, both first tokens at 70 ms. Then two steps of
    // 10 ms.
    const ServingCounts counts = engine.counts();
    EXPECT_EQ(counts.requests, 2U);
    EXPECT_EQ(counts.first_tokens_in_time, 0U);
    EXPECT_EQ(counts.tokens, 4U);
    EXPECT_EQ(counts.gaps, 2U);
    EXPECT_EQ(counts.gaps_kept, 2U);
    EXPECT_EQ(counts.steps, 4U);
    EXPECT_NEAR(engine.now().count(), 0.09, 1e-12);
    EXPECT_NEAR(counts.energy.count, 9, 1e-9);
    EXPECT_NEAR(counts.first_token.quantile(0.5).count(), 0.07, 2e-4);
}

TEST(ServingEngine, ThePlacesAndTheCacheAreLimits) {
    const PlainBoard costs;
    FixedClock policy{{1000}};
    EngineLimits limits;
    limits.max_sequences = 1;
    ServingEngine one_place{costs, policy, limits, {}, Seconds{0}};
    limits.max_sequences = 8;
    limits.cache_tokens = 30;
    ServingEngine small_cache{costs, policy, limits, {}, Seconds{0}};
    for (auto* engine : {&one_place, &small_cache}) {
        engine->submit({Seconds{0}, 10, 11});
        engine->submit({Seconds{0}, 10, 11});
        engine->drain();
        // One after the other: 10 ms and ten steps of 10 ms, twice.
        EXPECT_NEAR(engine->now().count(), 0.22, 1e-9);
    }
    EXPECT_THROW(small_cache.submit({Seconds{0}, 20, 11}), Error);
}

TEST(ServingEngine, AStepOfUnknownCostIsRefused) {
    const PlainBoard costs;
    FixedClock policy{{1000}};
    ServingEngine engine{costs, policy, {}, {}, Seconds{0}};
    engine.submit({Seconds{0}, 101, 2});
    EXPECT_THROW(engine.drain(), Error);
    EXPECT_THROW(serve_trace(costs, {}, {.boards = 0}, [] { return nullptr; }), Error);
}

TEST(SyntheticConversations, HaveTheStatisticsTheyAreMadeFrom) {
    const auto requests = synthetic_conversations(Seconds{3500}, 1);
    EXPECT_EQ(requests, synthetic_conversations(Seconds{3500}, 1));
    EXPECT_NE(requests, synthetic_conversations(Seconds{3500}, 2));
    double prompts = 0, answers = 0;
    Seconds before{0};
    for (const Request& request : requests) {
        ASSERT_GE(request.arrival, before);
        before = request.arrival;
        prompts += request.prompt_tokens;
        answers += request.answer_tokens;
    }
    const auto count = static_cast<double>(requests.size());
    // The hour itself: 19366 requests, 1154.7 and 211.1 tokens.
    EXPECT_NEAR(count, 19366, 0.03 * 19366);
    EXPECT_NEAR(prompts / count, 1154.7, 0.05 * 1154.7);
    EXPECT_NEAR(answers / count, 211.1, 0.05 * 211.1);
}

/// What the house promises of serving, as it was found.
void print_figures(const std::string& name, const ServedHour& hour, const ServingCounts& counts) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "%-22s energy %+6.2f %%, first tokens in time %+.3f points, gaps kept %.3f %%\n",
                  name.c_str(), -hour.saved(counts), -hour.lost(counts), counts.gaps_pct());
    std::cout << text;
}

void expect_four_boards_keep_the_figures(ServedHour& hour) {
    double best_single = 0;
    const RooflineBoard board;
    for (const Megahertz clock : board.clocks()) {
        const ServingCounts counts = hour.with_fixed(clock);
        if (counts.gaps_pct() >= 99.9) best_single = std::max(best_single, hour.saved(counts));
    }
    const double loop = hour.saved(hour.with_loop());
    std::cout << "best single clock that keeps the gap -" << best_single << " %, 5 s loop -" << loop
              << " %\n";
    for (const double ms : {6.0, 20.0}) {
        const ServingCounts no_harm = hour.with_plan(StepPolicy::no_harm, Seconds{ms / 1000});
        const std::string latency = ", " + std::to_string(static_cast<int>(ms)) + " ms";
        print_figures("no_harm" + latency, hour, no_harm);
        EXPECT_EQ(hour.plan().reason(), "");
        EXPECT_GE(hour.saved(no_harm), 22) << ms;
        EXPECT_LE(hour.lost(no_harm), 0.1) << ms;
        EXPECT_GE(no_harm.gaps_pct(), 99.9) << ms;
        const ServingCounts by_step = hour.with_plan(StepPolicy::by_step, Seconds{ms / 1000});
        print_figures("by_step" + latency, hour, by_step);
        EXPECT_GE(hour.saved(by_step), 25) << ms;
        EXPECT_LE(hour.lost(by_step), 0.1) << ms;
        EXPECT_GE(by_step.gaps_pct(), 99.9) << ms;
        EXPECT_GE(hour.saved(by_step), best_single + 4.5) << ms;
        EXPECT_GE(hour.saved(by_step), loop + 6) << ms;
    }
    for (const StepPolicy policy :
         {StepPolicy::no_harm, StepPolicy::two_clocks, StepPolicy::by_step}) {
        const ServingCounts counts = hour.with_plan(policy, Seconds{0.1});
        print_figures("one clock, 100 ms", hour, counts);
        EXPECT_NE(hour.plan().reason(), "");
        EXPECT_LE(counts.switches, 4U);
        EXPECT_GE(counts.gaps_pct(), 99.9);
    }
}

void expect_overload_does_little_harm(ServedHour& hour) {
    EXPECT_NEAR(hour.base().first_tokens_pct(), 90, 4);
    const ServingCounts no_harm = hour.with_plan(StepPolicy::no_harm, Seconds{0.006});
    print_figures("overload, no_harm", hour, no_harm);
    EXPECT_LE(hour.lost(no_harm), 1);
    const ServingCounts by_step = hour.with_plan(StepPolicy::by_step, Seconds{0.006});
    print_figures("overload, by_step", hour, by_step);
    EXPECT_LE(hour.lost(by_step), 0.1);
    EXPECT_GE(hour.saved(by_step), 4);
}

TEST(Serving, SyntheticHourOnFourBoards) {
    ServedHour hour{synthetic_conversations(Seconds{3500}, 1), 4};
    expect_four_boards_keep_the_figures(hour);
}

/// Half an hour of serving is enough to learn what steps cost: plans from it save nearly what
/// plans from the truth do, and nobody waits longer meanwhile.
TEST(Serving, TheSweepInTheEngineFindsTheSaving) {
    ServedHour hour{synthetic_conversations(Seconds{3500}, 1), 4};
    const ServingCounts base = hour.half_at_the_top();
    for (const double ms : {6.0, 20.0}) {
        StepSweepOptions options;
        options.clocks = RooflineBoard{}.clocks();
        options.switch_latency = Seconds{ms / 1000};
        std::deque<StepSweep> sweeps;
        const ServingCounts swept = hour.sweep(options, sweeps);
        EXPECT_GE(swept.gaps_pct(), 99.9);
        EXPECT_LE(base.first_tokens_pct() - swept.first_tokens_pct(), 0.1);
        EXPECT_LT(swept.energy, base.energy);
        const StepTable own{sweeps.front().rows()};
        StepSweep all = sweeps[0];
        for (std::size_t b = 1; b < sweeps.size(); ++b) all.add(sweeps[b]);
        const StepTable joined{all.rows()};
        for (const StepPolicy policy :
             {StepPolicy::no_harm, StepPolicy::two_clocks, StepPolicy::by_step}) {
            const double best = hour.saved(hour.with_plan(policy, options.switch_latency));
            for (const auto& [table, load] :
                 {std::pair{&own, &sweeps.front().load()}, std::pair{&joined, &all.load()}}) {
                const ServingCounts counts =
                    hour.with_plan(policy, options.switch_latency, *table, *load);
                EXPECT_EQ(hour.plan().reason(), "");
                EXPECT_GE(hour.saved(counts), 0.9 * best);
                EXPECT_GE(counts.gaps_pct(), 99.9);
                EXPECT_LE(hour.lost(counts), 0.2);
                std::cout << "switch " << ms << " ms, policy " << static_cast<int>(policy)
                          << ": the swept table saves " << hour.saved(counts) << " %, the true one "
                          << best << " %\n";
            }
        }
    }
}

/// An instance that only decodes runs at the most frugal clock that keeps the gap, whatever the
/// policy.
TEST(Serving, AnInstanceThatOnlyDecodesSavesWhatTheBestFixedClockDoes) {
    const RooflineBoard board;
    const StepTable table{sample_steps(board)};
    StepLoad load{StepBuckets{ordinary_steps()}};
    for (std::uint32_t i = 0; i < 20'000; ++i) {
        const StepShape step{0, 32 + i % 16, 1500};
        load.add(step, board.cost(step, {2520})->time);
    }
    const auto energy_at = [&](const auto& clock_of) {
        Joules sum{0};
        for (std::uint32_t i = 0; i < 1000; ++i) {
            const StepShape step{0, 32 + i % 16, 1500};
            sum += board.cost(step, clock_of(step))->energy;
        }
        return sum;
    };
    Joules best{1e300};
    for (const Megahertz clock : board.clocks())
        if (board.cost({0, 47, 1500}, clock)->time <= Seconds{0.1})
            best = std::min(best, energy_at([&](StepShape) { return clock; }));
    for (const StepPolicy policy : {StepPolicy::no_harm, StepPolicy::two_clocks,
                                    StepPolicy::by_step, StepPolicy::one_clock}) {
        const StepPlan plan = make_step_plan(table, load, {policy});
        StepClocks clocks{plan};
        const Joules used =
            energy_at([&](StepShape step) { return clocks.decide(step, Seconds{5}).clock; });
        EXPECT_LE(used.count, best.count * (1 + 1e-9)) << static_cast<int>(policy);
        std::cout << "decode only, policy " << static_cast<int>(policy) << ": energy "
                  << 100 * (used / best - 1) << " % against the best fixed clock\n";
    }
}

TEST(Serving, ASweepThatIsBlindBreaksTheGap) {
    ServedHour hour{synthetic_conversations(Seconds{1800}, 1), 4};
    StepSweepOptions options;
    options.clocks = RooflineBoard{}.clocks();
    options.gap = Seconds{1000};  // told of no target
    std::deque<StepSweep> sweeps;
    EXPECT_LT(hour.sweep(options, sweeps).gaps_pct(), 99.9);
}

TEST(StepSweep, ItsTableIsTheBoards) {
    ServedHour hour{synthetic_conversations(Seconds{1800}, 2), 4};
    StepSweepOptions options;
    options.clocks = RooflineBoard{}.clocks();
    std::deque<StepSweep> sweeps;
    hour.sweep(options, sweeps);
    const StepTable table{sweeps.front().rows()};
    const RooflineBoard board;
    for (const Megahertz clock : board.clocks()) {
        for (const StepShape shape : {StepShape{0, 4, 1000}, StepShape{0, 12, 1500},
                                      StepShape{200, 0, 0}, StepShape{512, 8, 1200}}) {
            const auto known = table.cost(shape, clock);
            const Cost truth = *board.cost(shape, clock);
            if (!known) {
                EXPECT_GT(truth.time, options.gap) << "too slow to be measured, or should be known";
                continue;
            }
            EXPECT_NEAR(known->time / truth.time, 1, 0.05) << to_string(clock);
            EXPECT_NEAR(known->energy / truth.energy, 1, 0.07) << to_string(clock);
        }
        if (const Watts idle = table.idle_power(clock); idle.count > 0) {
            EXPECT_NEAR(idle.count, board.idle_power(clock).count, 3);
        }
    }
}

TEST(StepSweep, FindsWhatWasReadBeforeInTheCostOfPrompts) {
    RooflineBoard board;
    board.attends = true;
    ServedHour hour{synthetic_code(Seconds{1800}, 2, 4), 4, board};
    StepSweepOptions options;
    options.clocks = board.clocks();
    std::deque<StepSweep> sweeps;
    hour.sweep(options, sweeps);
    for (std::size_t b = 1; b < sweeps.size(); ++b) sweeps.front().add(sweeps[b]);
    const StepTable table{sweeps.front().rows()};
    for (const StepShape shape : {StepShape{512, 0, 0}, StepShape{512, 0, 0, 2048},
                                  StepShape{512, 0, 0, 5000}, StepShape{300, 0, 0, 1024}}) {
        const auto known = table.cost(shape, {2520});
        ASSERT_TRUE(known);
        const Cost truth = *board.cost(shape, {2520});
        std::cout << "swept, " << shape.prompt_tokens << " prompt tokens after "
                  << shape.prompt_context << ": time off by "
                  << 100 * (known->time / truth.time - 1) << " %, energy by "
                  << 100 * (known->energy / truth.energy - 1) << " %\n";
        EXPECT_NEAR(known->time / truth.time, 1, 0.03);
        EXPECT_NEAR(known->energy / truth.energy, 1, 0.09);
    }
}

TEST(StepSweep, WhatMakesNoSenseIsRefused) {
    const auto refused = [](StepSweepOptions options) {
        EXPECT_THROW(StepSweep{std::move(options)}, Error);
    };
    StepSweepOptions options;
    refused(options);
    options.clocks = {{900}};
    refused(options);
    options.clocks = {auto_clock, {900}};
    refused(options);
    options.clocks = {{1200}, {900}};
    refused(options);
    options.clocks = {{900}, {1200}};
    options.gap = Seconds{0};
    refused(options);
    options.gap = Seconds{0.1};
    options.settle = options.block;
    refused(options);
    options.settle = Seconds{0};
    options.grid.sequences.clear();
    refused(options);
}

TEST(Serving, AzureHourOnFourBoards) {
    const auto requests = azure_hour();
    if (!requests) GTEST_SKIP() << "shared/data/azure/conv.csv is absent";
    ServedHour hour{*requests, 4};
    expect_four_boards_keep_the_figures(hour);
    // Another program by the same rules and the same board: 99.87 % of first tokens in time at the
    // top clock; -23.0, -27.7, -20.6 and -18.8 % of energy.
    EXPECT_NEAR(hour.base().first_tokens_pct(), 99.87, 0.05);
    EXPECT_NEAR(hour.saved(hour.with_plan(StepPolicy::no_harm, Seconds{0.006})), 23.0, 0.3);
    EXPECT_NEAR(hour.saved(hour.without_limit(StepPolicy::by_step)), 27.7, 0.3);
    EXPECT_NEAR(hour.saved(hour.with_fixed({1800})), 20.6, 0.3);
    EXPECT_NEAR(hour.saved(hour.with_loop()), 18.8, 0.5);
}

/// Long prompts in bursts: what is put off adds up, and what comes later pays for it.
TEST(Serving, ByStepKeepsFirstTokensWhereQueuesGrow) {
    for (const double per_second : {2.0, 3.5}) {
        ServedHour code{synthetic_code(Seconds{1800}, per_second, 3), 4};
        const ServingCounts no_harm = code.with_plan(StepPolicy::no_harm, Seconds{0.006});
        const ServingCounts by_step = code.with_plan(StepPolicy::by_step, Seconds{0.006});
        const ServingCounts unlimited = code.without_limit(StepPolicy::by_step);
        std::cout << "code-like, " << per_second << "/s, " << code.base().first_tokens_pct()
                  << " % of first tokens in time at the top clock\n";
        print_figures("no_harm", code, no_harm);
        print_figures("by_step", code, by_step);
        print_figures("by_step, no limit", code, unlimited);
        EXPECT_LE(code.lost(by_step), 0.1);
        EXPECT_GE(code.saved(by_step), code.saved(no_harm) - 0.05);
        EXPECT_GT(code.lost(unlimited), 0.1) << "nothing to keep: the load is too light";
    }
}

/// First tokens and energy of many mixes, drawn anew by seed, on exact boards and on noisy ones:
/// conversations, long prompts, both, prompts alone; too few boards included. Where the plan alone
/// keeps first tokens, too, nine tenths of what it saves are left.
TEST(Serving, FirstTokensAreKeptOnMixesDrawnByChance) {
    const std::uint64_t seeds =
        std::getenv("KDVFS_MIXES") ? std::stoul(std::getenv("KDVFS_MIXES")) : 1;
    double worst = 0;
    double least = 1;
    const auto serve = [&](const std::string& name, std::vector<Request> requests,
                           std::size_t boards) {
        ServedHour hour{std::move(requests), boards};
        const ServingCounts by_step = hour.with_plan(StepPolicy::by_step, Seconds{0.006});
        print_figures(name + ", " + std::to_string(boards) + " boards", hour, by_step);
        const ServingCounts no_harm = hour.with_plan(StepPolicy::no_harm, Seconds{0.006});
        print_figures("   no_harm", hour, no_harm);
        EXPECT_GE(no_harm.gaps_pct(), 99.9) << name;
        worst = std::max({worst, hour.lost(by_step), hour.lost(no_harm)});
        EXPECT_GE(by_step.gaps_pct(), 99.9) << name;
        const ServingCounts alone = hour.without_limit(StepPolicy::by_step);
        const double share = hour.saved(by_step) / hour.saved(alone);
        if (hour.lost(alone) > 0.05) return;
        std::cout << "   " << 100 * share << " % of what the plan alone saves\n";
        least = std::min(least, share);
    };
    for (std::uint64_t seed = 2000; seed < 2000 + seeds; ++seed) {
        std::mt19937_64 random{seed};
        const double rate = std::uniform_real_distribution<double>{1.5, 4.5}(random);
        const Seconds hour{3500};
        for (const std::size_t boards : {4U, 3U, 2U})
            serve("conversations", synthetic_conversations(hour, seed + 10 * boards), boards);
        serve("code, " + std::to_string(rate) + "/s", synthetic_code(hour, rate, seed), 4);
        std::vector<Request> prompts = synthetic_conversations(hour, seed + 50);
        std::vector<Request> mixed = synthetic_code(hour, 0.3 * rate, seed + 60);
        for (std::size_t k = 0; k < prompts.size(); k += 2) mixed.push_back(prompts[k]);
        std::sort(mixed.begin(), mixed.end(),
                  [](const Request& a, const Request& b) { return a.arrival < b.arrival; });
        for (Request& request : prompts) request.answer_tokens = 1;
        std::vector<Request> answers = synthetic_conversations(hour, seed + 70);
        for (Request& request : answers) request.prompt_tokens = 1;
        for (const std::size_t boards : {4U, 2U}) {
            serve("prompts only", prompts, boards);
            serve("answers only", answers, boards);
        }
        for (const std::size_t boards : {4U, 3U}) serve("mixed", mixed, boards);
    }
    std::cout << "at worst " << worst << " points of first tokens, " << 100 * least
              << " % of what the plan alone saves where it keeps them\n";
    EXPECT_LE(worst, 0.1);
    EXPECT_GE(least, 0.85);
}

TEST(Serving, AzureHourOnTwoBoards) {
    const auto requests = azure_hour();
    if (!requests) GTEST_SKIP() << "shared/data/azure/conv.csv is absent";
    ServedHour hour{*requests, 2};
    expect_overload_does_little_harm(hour);
}

/// A plan from minutes without requests has no pool, and yet somebody must take the next one. With
/// no freedom at all, pools draw what a single pool at the top clock draws.
TEST(PooledCluster, ServesAfterAQuietEpochAndEndsWithTheLastAnswer) {
    std::vector<Request> requests;
    for (const double at : {0.0, 1.0, 700.0, 1500.0}) requests.push_back({Seconds{at}, 300, 20});
    auto classes = nine_classes();
    for (ServiceClass& service : classes)
        service.profile = {{1, {2520}, 5, {200}, Seconds{0}, Seconds{0}}};
    pools::PooledCluster cluster{classes, 2, {"pools", false, false, false}, LatencyTargets{}};
    const ServingCounts counts = cluster.serve(requests);
    EXPECT_EQ(counts.requests, 4U);
    EXPECT_EQ(counts.tokens, 80U);
    EXPECT_EQ(cluster.mean_boards(), 1);
    ClusterOptions single;
    single.boards = 2;
    const ServingCounts base = serve_trace(RooflineBoard{}, requests, single, [] {
        return std::make_unique<FixedClock>(Megahertz{2520});
    });
    EXPECT_NEAR(counts.energy / base.energy, 1, 1e-4);
}

TEST(Serving, AnHourTakesUnderFiveSeconds) {
    const auto requests = synthetic_conversations(Seconds{3600}, 3);
    const StepTable table{sample_steps(RooflineBoard{})};
    StepLoad load{StepBuckets{}};
    load.add({512, 12, 1000}, Seconds{0.07});
    load.add({0, 12, 1000}, Seconds{0.07});
    StepTargets targets;
    targets.policy = StepPolicy::by_step;
    const StepPlan plan = make_step_plan(table, load, targets);
    const std::clock_t begin = std::clock();
    const ServingCounts counts = serve_trace(RooflineBoard{}, requests, {},
                                             [&] { return std::make_unique<PlannedClocks>(plan); });
    const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    std::cout << counts.steps << " steps in " << took << " s of CPU\n";
    EXPECT_LT(took, 5);
}

}  // namespace
}  // namespace kdvfs::serve
