// SPDX-License-Identifier: MIT
//
// One clock a step on all ranks of an instance.
#include <bench/serving/roofline_board.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/serve/rank_steps.hpp>

#include <tests/restoring/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>
#include <deque>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::serve {
namespace {

/// A plan of the built-in board, `slower` in all its steps so that plans differ.
StepPlan plan_of(double slower, StepPolicy policy = StepPolicy::by_step) {
    RooflineBoard board;
    board.per_prompt_token *= slower;
    board.per_sequence *= slower;
    StepLoad load{StepBuckets{ordinary_steps()}};
    for (std::uint32_t i = 0; i < 4000; ++i) {
        const StepShape shape{i % 8 == 0 ? 64 * (1 + i % 7) : 0, 4 + i % 60, 300 + i % 2000};
        load.add(shape, Seconds{0.05});
    }
    return make_step_plan(StepTable{sample_steps(board)}, load,
                          {policy, Seconds{0.1}, 0.999, Seconds{0.001}, 512});
}

StepShape random_shape(std::mt19937_64& random) {
    const auto below = [&](std::uint32_t end) {
        return static_cast<std::uint32_t>(random() % end);
    };
    const bool prompts = random() % 3 == 0;
    return {prompts ? below(600) : 0, below(140), below(18'000)};
}

TEST(StepClockTable, AsTextDecidesTheSame) {
    std::mt19937_64 random{3};
    for (const StepPolicy policy :
         {StepPolicy::by_step, StepPolicy::no_harm, StepPolicy::one_clock}) {
        const StepPlan plan = plan_of(1, policy);
        const StepClockTable read = parse_step_clocks(to_text(plan.clock_table()));
        for (int i = 0; i < 20'000; ++i) {
            const StepShape shape = random_shape(random);
            const Seconds slack{1e-4 * static_cast<double>(random() % 5000) - 0.1};
            ASSERT_EQ(read.decide(shape, slack), plan.decide(shape, slack));
        }
    }
    const std::string text = to_text(plan_of(1).clock_table());
    for (const std::string& bad : std::vector<std::string>{
             std::string{}, std::string{"step-clocks-2\n"}, text.substr(0, text.size() / 2),
             text + " 1", "step-clocks-1\n1 5\n1 5\n1 5\n1 1 1 1000 1000 1 nan\n"})
        EXPECT_THROW(static_cast<void>(parse_step_clocks(bad)), Error) << bad.substr(0, 40);
}

/// Ranks that receive tables at their own times, the last one late, and run steps behind.
struct SimulatedRank {
    RankClocks clocks;
    std::deque<StepOrder> queue;
    std::vector<std::uint16_t> ran;  ///< MHz, by step
};

TEST(RankSteps, AllRanksRunEachStepAtOneClock) {
    constexpr std::size_t steps = 1'000'000;
    constexpr std::size_t every = steps / 20;  // a new table
    constexpr std::size_t ranks = 8;
    std::mt19937_64 random{11};
    const TemporaryFolder folder;
    TableSchedule schedule{ranks};
    std::vector<SimulatedRank> all(ranks);
    struct Delivery {
        std::size_t step;
        std::size_t rank;
        std::uint32_t number;
    };
    std::vector<Delivery> under_way;
    std::vector<std::size_t> changes;
    const auto offer = [&](std::size_t step, double slower) {
        const std::uint32_t number = schedule.offer(plan_of(slower));
        // One copy for all, in a file that every rank reads when it gets to it.
        kdvfs::detail::write_file_atomically(folder.at(std::to_string(number)),
                                             to_text(schedule.table(number)));
        for (std::size_t r = 0; r < ranks; ++r) {
            const std::size_t late = step == 0 ? 0 : random() % 50 + (r == ranks - 1 ? 2000 : 0);
            under_way.push_back({step + late, r, number});
        }
    };
    const auto deliver = [&](std::size_t step) {
        std::erase_if(under_way, [&](const Delivery& delivery) {
            if (delivery.step > step) return false;
            std::ifstream file{folder.at(std::to_string(delivery.number))};
            const std::string text{std::istreambuf_iterator<char>{file}, {}};
            all[delivery.rank].clocks.receive(delivery.number, parse_step_clocks(text));
            schedule.acknowledge(delivery.rank, delivery.number);
            return true;
        });
    };
    const auto run_one = [](SimulatedRank& rank) {
        rank.ran.push_back(
            static_cast<std::uint16_t>(rank.clocks.decide(rank.queue.front()).clock.count));
        rank.queue.pop_front();
    };
    std::uint32_t before = 0;
    for (std::size_t step = 0; step < steps; ++step) {
        if (step % every == 0) offer(step, 1 + 0.4 * static_cast<double>(step / every % 5));
        deliver(step);
        const Seconds slack{1e-4 * static_cast<double>(random() % 20'000) - 0.1};
        const StepOrder order = schedule.order(random_shape(random), slack);
        if (order.table != std::exchange(before, order.table)) changes.push_back(step);
        for (std::size_t r = 0; r < ranks; ++r) {
            all[r].queue.push_back(order);
            // The last rank is up to a hundred steps behind, as where launches run ahead.
            const std::size_t behind = r == ranks - 1 ? 100 : random() % 3;
            while (all[r].queue.size() > behind) run_one(all[r]);
        }
    }
    for (SimulatedRank& rank : all)
        while (!rank.queue.empty()) run_one(rank);
    for (std::size_t r = 1; r < ranks; ++r) ASSERT_EQ(all[r].ran, all[0].ran) << r;
    EXPECT_EQ(all[0].ran.size(), steps);
    EXPECT_EQ(changes.size(), 20U) << "every table is used, also where one rank has it late";
    EXPECT_GE(changes[1], every + 2000);
    const std::set<std::uint16_t> used{all[0].ran.begin(), all[0].ran.end()};
    EXPECT_GT(used.size(), 2U);
}

TEST(RankSteps, TablesAreUsedOnceAllRanksHaveThemAndNotBefore) {
    TableSchedule schedule{2};
    EXPECT_THROW(static_cast<void>(schedule.order({0, 1, 1}, Seconds{1})), Error);
    const std::uint32_t first = schedule.offer(plan_of(1));
    const std::uint32_t second = schedule.offer(plan_of(2));
    schedule.acknowledge(0, first);
    EXPECT_THROW(static_cast<void>(schedule.order({0, 1, 1}, Seconds{1})), Error);
    schedule.acknowledge(1, second);
    EXPECT_EQ(schedule.order({0, 1, 1}, Seconds{1}).table, first);
    RankClocks rank;
    rank.receive(first, schedule.table(first));
    EXPECT_THROW(static_cast<void>(rank.decide({{0, 1, 1}, Seconds{1}, second})), Error);
    schedule.acknowledge(0, second);
    EXPECT_EQ(schedule.order({0, 1, 1}, Seconds{1}).table, second);
}

TEST(RankSteps, ADecisionTakesLittleTime) {
    std::mt19937_64 random{5};
    TableSchedule schedule{1};
    RankClocks rank;
    schedule.acknowledge(0, schedule.offer(plan_of(1)));
    rank.receive(1, schedule.table(1));
    std::vector<StepShape> shapes(10'000);
    for (StepShape& shape : shapes) shape = random_shape(random);
    std::uint64_t sum = 0;
    const std::clock_t begin = std::clock();
    for (int round = 0; round < 20; ++round)
        for (const StepShape shape : shapes)
            sum += rank.decide(schedule.order(shape, Seconds{0.1})).clock.count;
    const double each = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / 200'000;
    std::cout << "an order and a decision take " << 1e9 * each << " ns of CPU (" << sum % 10
              << ")\n";
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(each, 2e-6);
#endif
}

}  // namespace
}  // namespace kdvfs::serve
