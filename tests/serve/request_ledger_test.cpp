// SPDX-License-Identifier: MIT
// Whose joules a step's are: the closed Shapley value against all orders and against a roofline,
// sums, intervals and cost.
#include <bench/serving/roofline_board.hpp>
#include <kdvfs/serve/request_ledger.hpp>
#include <kdvfs/serve/step_energy.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace kdvfs::serve {
namespace {

/// A few requests that decode, and now and then one whose prompt is read.
std::vector<RequestWork> random_works(std::mt19937_64& random, std::size_t count) {
    std::vector<RequestWork> works(count);
    for (std::size_t i = 0; i < count; ++i) {
        works[i].request = static_cast<std::uint32_t>(i);
        if (random() % 4 == 0) {
            works[i].prompt_tokens = static_cast<std::uint32_t>(1 + random() % 512);
            works[i].prompt_context = static_cast<std::uint32_t>(random() % 4096);
        } else {
            works[i].answer_tokens = static_cast<std::uint32_t>(1 + random() % 3);
            works[i].context_tokens = static_cast<std::uint32_t>(16 + random() % 4096);
        }
    }
    return works;
}

/// The Shapley value from its definition: each set that a request may join, by how many orders
/// come to it.
std::vector<double> by_enumeration(std::size_t players,
                                   const std::function<double(std::uint32_t)>& value_of_set) {
    std::vector<double> value(std::size_t{1} << players);
    for (std::uint32_t set = 1; set < value.size(); ++set) value[set] = value_of_set(set);
    std::vector<double> weight(players);  // of a set of k others: k! (n - 1 - k)! / n!
    for (std::size_t k = 0; k < players; ++k)
        weight[k] = std::exp(std::lgamma(static_cast<double>(k + 1)) +
                             std::lgamma(static_cast<double>(players - k)) -
                             std::lgamma(static_cast<double>(players + 1)));
    std::vector<double> shapley(players);
    for (std::uint32_t set = 0; set < value.size(); ++set)
        for (std::size_t i = 0; i < players; ++i)
            if ((set >> i & 1U) == 0)
                shapley[i] += weight[static_cast<std::size_t>(std::popcount(set))] *
                              (value[set | 1U << i] - value[set]);
    return shapley;
}

TEST(StepEnergy, TheClosedShapleyValueIsThatOfAllOrders) {
    std::mt19937_64 random{3};
    std::uniform_real_distribution<double> uniform;
    double worst = 0;
    for (int step = 0; step < 1000; ++step) {
        const StepEnergyModel model{{5 * uniform(random)},    {3 * uniform(random)},
                                    {uniform(random)},        {1e-4 * uniform(random)},
                                    {1e-2 * uniform(random)}, {1e-6 * uniform(random)}};
        const auto works = random_works(random, 1 + random() % 12);
        // The game as it is stated, in words of its own.
        const auto game = [&](std::uint32_t set) {
            double sum = model.step.count;
            bool chunk = false;
            for (std::size_t i = 0; i < works.size(); ++i) {
                if ((set >> i & 1U) == 0) continue;
                const RequestWork& w = works[i];
                sum += model.answer_token.count * w.answer_tokens +
                       model.context_token.count * w.context_tokens +
                       model.prompt_token.count * w.prompt_tokens +
                       model.prompt_context.count * w.prompt_tokens *
                           static_cast<double>(w.prompt_context);
                chunk = chunk || w.prompt_tokens > 0;
            }
            return sum + (chunk ? model.chunks.count : 0);
        };
        const auto right = by_enumeration(works.size(), game);
        const auto closed = shapley_values(model, works);
        for (std::size_t i = 0; i < works.size(); ++i)
            worst = std::max(worst, std::abs(closed[i].count / right[i] - 1));
    }
    std::cout << "closed against enumerated Shapley values, 1000 steps of up to 12: " << worst
              << " at worst\n";
    EXPECT_LT(worst, 1e-9);
}

double energy_of(const RooflineBoard& board, const std::vector<RequestWork>& works,
                 std::uint32_t set) {
    StepShape shape;
    double context = 0;
    for (std::size_t i = 0; i < works.size(); ++i) {
        if ((set >> i & 1U) == 0) continue;
        shape.prompt_tokens += works[i].prompt_tokens;
        if (works[i].answer_tokens == 0) continue;
        ++shape.sequences;
        context += works[i].context_tokens;
    }
    if (shape.sequences > 0)
        shape.context_tokens = static_cast<std::uint32_t>(std::lround(context / shape.sequences));
    return board.cost(shape, {2100})->energy.count;
}

/// Steps of a simulated board, whose energy is none of the model's.
TEST(StepEnergy, OfARooflineIsSharedAsAllOrdersWould) {
    const RooflineBoard board;
    std::mt19937_64 random{5};
    const auto draw = [&] {
        auto works = random_works(random, 10);
        bool has_chunk = false;
        for (RequestWork& work : works) {
            if (work.answer_tokens > 0) work.answer_tokens = 1;
            if (!work.has_chunk()) continue;
            if (has_chunk) {  // one prompt at a time
                work = {work.request, 1, work.prompt_context + 16, 0, 0};
            } else {
                work.prompt_context = work.prompt_tokens;
            }
            has_chunk = true;
        }
        return works;
    };
    StepEnergyFit fit;
    for (int step = 0; step < 2000; ++step) {
        const auto works = draw();
        fit.add(works, {energy_of(board, works, (1U << works.size()) - 1)});
    }
    const StepEnergyModel model = fit.model();
    double sum = 0;
    double worst = 0;
    int count = 0;
    for (int step = 0; step < 100; ++step) {
        const auto works = draw();
        const auto right = by_enumeration(
            works.size(), [&](std::uint32_t set) { return energy_of(board, works, set); });
        const auto closed = shapley_values(model, works);
        const double scale =
            energy_of(board, works, (1U << works.size()) - 1) / model.energy(works).count;
        for (std::size_t i = 0; i < works.size(); ++i) {
            const double off = std::abs(scale * closed[i].count / right[i] - 1);
            sum += off;
            worst = std::max(worst, off);
            ++count;
        }
    }
    std::cout << "shares of a simulated roofline's steps: " << 100 * sum / count
              << " % from exact Shapley values on average, " << 100 * worst << " % at worst\n";
    EXPECT_LT(sum / count, 0.05);
}

TEST(StepEnergy, CoefficientsAreFoundAndNeverNegative) {
    const StepEnergyModel truth{{3}, {0}, {0.05}, {2e-5}, {0.01}, {0}};
    std::mt19937_64 random{7};
    std::normal_distribution<double> noise{0, 0.02};
    StepEnergyFit fit;
    EXPECT_THROW(static_cast<void>(fit.model()), Error);
    EXPECT_THROW(fit.add({}, {1}), Error);
    for (int step = 0; step < 5000; ++step) {
        const auto works = random_works(random, 1 + random() % 40);
        fit.add(works, truth.energy(works) * std::exp(noise(random)));
    }
    const StepEnergyModel found = fit.model();
    EXPECT_NEAR(found.step.count, 3, 0.06);
    EXPECT_NEAR(found.answer_token.count, 0.05, 0.01);
    EXPECT_NEAR(found.context_token.count / 2e-5, 1, 0.1);
    EXPECT_NEAR(found.prompt_token.count, 0.01, 0.0005);
    EXPECT_GE(found.chunks.count, 0);
    EXPECT_GE(found.prompt_context.count, 0);
}

const StepEnergyModel some_model{{3}, {1}, {0.05}, {2e-5}, {0.01}, {1e-6}};

TEST(RequestLedger, SharesSumToTheStepsAndIdleIsNeverSpread) {
    std::vector<RequestEnergy> reported;
    RequestLedger ledger{some_model, [&](const RequestEnergy& r) { reported.push_back(r); }};
    const std::uint32_t a = ledger.open("a");
    const std::uint32_t b = ledger.open("b, \"quoted\"");
    ledger.step(std::vector<RequestWork>{{a, 0, 0, 100, 50}, {b, 1, 1000, 0, 0}});
    ledger.settle({10}, {1});
    ledger.idle({4});
    ledger.unexplained({0.5});
    ledger.settle({2});  // no step: nobody's
    ledger.step(std::vector<RequestWork>{{b, 1, 1001, 0, 0}});
    ledger.close(b);
    ledger.close(a);
    ASSERT_EQ(reported.size(), 1U) << "b's last step is not settled";
    ledger.step(std::vector<RequestWork>{});
    ledger.settle({3}, {0.3});
    ASSERT_EQ(reported.size(), 2U);
    // a: 3/2 + 1 + 100 x 0.01 + 100 x 50 x 1e-6 = 3.505; b: 3/2 + 0.05 + 1000 x 2e-5 = 1.57.
    EXPECT_NEAR(reported[0].energy.count, 10 * 3.505 / 5.075, 1e-12);
    EXPECT_NEAR(reported[0].deviation.count, 3.505 / 5.075, 1e-12);
    EXPECT_NEAR(reported[1].energy.count, 10 * 1.57 / 5.075 + 3, 1e-12);
    EXPECT_NEAR(reported[1].deviation.count, std::hypot(1.57 / 5.075, 0.3), 1e-12);
    EXPECT_EQ(reported[1].steps, 2U);
    EXPECT_EQ(reported[1].answer_tokens, 2U);
    EXPECT_EQ(reported[0].prompt_tokens, 100U);
    EXPECT_NEAR(reported[0].energy.count + reported[1].energy.count, ledger.requests().count,
                1e-12);
    EXPECT_EQ(ledger.idle(), Joules{4});
    EXPECT_EQ(ledger.unexplained(), Joules{2.5});
    EXPECT_NEAR(ledger.total().count, 10 + 4 + 0.5 + 2 + 3, 1e-12);
    EXPECT_EQ(to_csv_line({"b, \"x\"", {2}, {0}, 3, 4, 5}), "\"b, \"\"x\"\"\",2,2,2,3,4,5");
}

/// As an engine that admits the next request where one is done.
TEST(RequestLedger, AReportMayUseTheLedger) {
    constexpr int requests = 40;
    std::vector<RequestEnergy> reported;
    RequestLedger* its = nullptr;
    RequestLedger ledger{StepEnergyModel{.step = Joules{1}}, [&](const RequestEnergy& done) {
                             reported.push_back(done);
                             if (reported.size() > requests) return;
                             const std::uint32_t next = its->open("next");
                             its->step(std::vector{RequestWork{.request = next}});
                             its->close(next);
                         }};
    its = &ledger;
    std::vector<RequestWork> works;
    for (int r = 0; r < requests; ++r) works.push_back({.request = ledger.open("first")});
    ledger.step(works);
    for (const RequestWork& work : works) ledger.close(work.request);
    ledger.settle(Joules{80});
    ASSERT_EQ(reported.size(), std::size_t{requests});
    for (const RequestEnergy& done : reported) {
        EXPECT_EQ(done.id, "first");
        EXPECT_NEAR(done.energy.count, 2, 1e-12);
    }
    ledger.settle(Joules{40});
    ASSERT_EQ(reported.size(), std::size_t{2 * requests});
    for (std::size_t r = requests; r < reported.size(); ++r) {
        EXPECT_EQ(reported[r].id, "next");
        EXPECT_NEAR(reported[r].energy.count, 1, 1e-12);
    }
    EXPECT_EQ(ledger.requests(), Joules{120});
    EXPECT_EQ(ledger.unexplained(), Joules{});
}

TEST(RequestHistograms, CountEachRequestOnceAndSumToTheCounter) {
    std::mt19937_64 random{3};
    RequestHistograms histograms;
    std::vector<double> joules;
    RequestLedger ledger{StepEnergyModel{.step = Joules{1}}, [&](const RequestEnergy& done) {
                             histograms.add(done);
                             joules.push_back(done.energy.count);
                         }};
    std::uniform_real_distribution<double> exponent{-3, 7};
    double sum = 0;
    for (int r = 0; r < 300; ++r) {
        const std::uint32_t request = ledger.open("r");
        ledger.step(std::vector{RequestWork{.request = request, .answer_tokens = 1}});
        ledger.close(request);
        const double energy = r == 0 ? 20 : std::pow(10, exponent(random));  // 20 is a bucket's end
        ledger.settle(Joules{energy});
        sum += energy;
    }
    ledger.idle(Joules{7});
    const std::string text = histograms.to_prometheus(ledger, "model=\"m\"");
    std::istringstream lines{text};
    std::size_t buckets = 0;
    double total = 0;
    for (std::string line; std::getline(lines, line);) {
        const double value = line.front() == '#' ? 0 : std::stod(line.substr(line.find(' ')));
        if (line.starts_with("kdvfs_request_energy_joules_bucket{model=\"m\",le=\"")) {
            const std::string end = line.substr(line.find("le=") + 4);
            const double most = end.front() == '+' ? HUGE_VAL : std::stod(end);
            EXPECT_EQ(value, std::count_if(joules.begin(), joules.end(),
                                           [&](double j) { return j <= most; }))
                << line;
            ++buckets;
        }
        if (line.starts_with("kdvfs_request_energy_joules_sum")) {
            EXPECT_NEAR(value, sum, 1e-9 * sum);
        }
        if (line.starts_with("kdvfs_serving_energy_joules_total")) total += value;
    }
    EXPECT_EQ(buckets, 20U);
    EXPECT_NEAR(total, sum + 7, 1e-9 * sum);
}

TEST(RequestLedger, WhatMakesNoSenseIsRefused) {
    RequestLedger ledger{some_model};
    const std::uint32_t a = ledger.open("a");
    EXPECT_THROW(ledger.step(std::vector<RequestWork>{{a, 1, 1, 0, 0}, {a + 1, 1, 1, 0, 0}}),
                 Error);
    EXPECT_THROW(ledger.settle({-1}), Error);
    EXPECT_THROW(ledger.idle({std::nan("")}), Error);
    ledger.close(a);
    EXPECT_THROW(ledger.close(a), Error);
    EXPECT_THROW(ledger.step(std::vector<RequestWork>{{a, 1, 1, 0, 0}}), Error);
    EXPECT_EQ(ledger.total(), Joules{});
    EXPECT_EQ(ledger.open("again"), a);
}

/// An engine of 32 places, steps measured in stretches of ten with an error of 3 %: the truth is
/// each request's share of what the stretch really took.
TEST(RequestLedger, IntervalsHoldWithNoisyEnergies) {
    std::mt19937_64 random{9};
    std::normal_distribution<double> normal;
    std::vector<RequestEnergy> reported;
    RequestLedger noisy{some_model, [&](const RequestEnergy& r) { reported.push_back(r); }};
    std::vector<RequestEnergy> right;
    RequestLedger exact{some_model, [&](const RequestEnergy& r) { right.push_back(r); }};
    std::vector<std::pair<std::uint32_t, std::uint32_t>> open;  // and tokens that are left
    double measured = 0;
    for (int step = 0; step < 20'000; ++step) {
        while (open.size() < 32) {
            const std::string id = std::to_string(step) + '.' + std::to_string(open.size());
            open.emplace_back(noisy.open(id), 20 + random() % 300);
            EXPECT_EQ(exact.open(id), open.back().first);
        }
        std::vector<RequestWork> works;
        for (auto& [number, left] : open) {
            works.push_back({number, 1, 500 + left, 0, 0});
            --left;
        }
        noisy.step(works);
        exact.step(works);
        std::erase_if(open, [&](const auto& request) {
            if (request.second > 0) return false;
            noisy.close(request.first);
            exact.close(request.first);
            return true;
        });
        if (step % 10 != 9) continue;
        const double took = 10 * some_model.energy(works).count;
        const double seen = took * (1 + 0.03 * normal(random));
        noisy.settle({seen}, {0.03 * took});
        exact.settle({took});
        measured += seen;
    }
    ASSERT_EQ(reported.size(), right.size());
    ASSERT_GT(reported.size(), 1000U);
    double held = 0;
    for (std::size_t i = 0; i < reported.size(); ++i) {
        ASSERT_EQ(reported[i].id, right[i].id);
        held += reported[i].low() <= right[i].energy && right[i].energy <= reported[i].high();
    }
    held /= static_cast<double>(reported.size());
    std::cout << "95 % intervals of " << reported.size() << " simulated requests hold in "
              << 100 * held << " %\n";
    EXPECT_GE(held, 0.9);
    EXPECT_NEAR(noisy.total().count / measured, 1, 1e-12);
}

TEST(RequestLedger, CostsNanosecondsForARequestAndStep) {
    RequestLedger ledger{some_model};
    std::vector<RequestWork> works;
    for (int i = 0; i < 128; ++i) works.push_back({ledger.open("r"), 1, 1000, 0, 0});
    constexpr int steps = 20'000;
    const std::clock_t begin = std::clock();
    for (int step = 0; step < steps; ++step) {
        for (RequestWork& work : works) ++work.context_tokens;
        ledger.step(works);
        ledger.settle({30}, {1});
    }
    const double each = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / steps /
                        static_cast<double>(works.size());
    std::cout << "ns a request and step: " << 1e9 * each << '\n';
    EXPECT_NEAR(ledger.total().count, 30. * steps, 1e-6);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(each, 20e-9);
#endif
}

}  // namespace
}  // namespace kdvfs::serve
