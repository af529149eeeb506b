// SPDX-License-Identifier: MIT
#include <bench/serving/roofline_board.hpp>
#include <kdvfs/serve/recommend.hpp>
#include <kdvfs/serve/steady_state.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace kdvfs::serve {
namespace {

struct Truth {
    SteadyReport report;
    double energy = 0;  ///< in the window, without a counter between
    double tokens = 0;
};

struct Course {
    std::uint32_t batch = 32;
    std::uint32_t requests = 2000;
    std::uint32_t answer_limit = 0;
    std::uint32_t longest_answer = 300;
    double counter_period = 0.1;
    double drift = 0;       ///< of power, relative, each minute
    double half_empty = 0;  ///< share of the places that stay empty
};

/// An engine that prefills one request in a step of its own wherever a place is free, on a board
/// whose counter shows whole joules every 100 ms.
Truth serve(const Course& course, std::uint64_t seed) {
    const RooflineBoard board;
    std::mt19937_64 random{seed};
    SteadyOptions options;
    options.batch = course.batch;
    options.requests = course.requests;
    options.answer_limit = course.answer_limit;
    SteadyState steady{options};
    std::vector<std::uint32_t> left, length;
    double now = 0, joules = 0, next_reading = 0, last_decode = 0;
    std::uint32_t sent = 0;
    Truth truth;
    const auto run = [&](StepShape shape, const std::function<void()>& resolved) {
        const Cost cost = *board.cost(shape, {1500});
        const double power = cost.energy.count / cost.time.count() * (1 + course.drift * now / 60);
        const bool counted = steady.is_open();
        const double begin = now;
        now += cost.time.count();
        for (; next_reading <= now; next_reading += course.counter_period)
            steady.energy(Seconds{next_reading},
                          Joules{std::floor(joules + power * (next_reading - begin))});
        joules += power * cost.time.count();
        if (counted) truth.energy += power * cost.time.count();
        resolved();
        if (counted) truth.tokens += shape.sequences + (shape.prompt_tokens > 0 ? 1 : 0);
    };
    const auto places =
        static_cast<std::size_t>(std::lround(course.batch * (1 - course.half_empty)));
    while (sent < course.requests || !left.empty()) {
        if (left.size() < places && sent < course.requests) {
            const auto in_batch = static_cast<std::uint32_t>(left.size() + 1);
            const double begin = now;
            run({400, 0, 0}, [&] {
                steady.step({Seconds{now}, Seconds{now - begin}, in_batch, 0, Seconds{0}, 1});
            });
            ++sent;
            length.push_back(50 +
                             static_cast<std::uint32_t>(random() % (course.longest_answer - 49)));
            left.push_back(length.back() - 1);
            continue;
        }
        const auto running = static_cast<std::uint32_t>(left.size());
        const double begin = now;
        run({0, running, 500}, [&] {
            const Seconds took{now - begin};
            steady.step({Seconds{now}, took, running, running, Seconds{now - last_decode}, 0});
        });
        last_decode = now;
        for (std::size_t s = left.size(); s-- > 0;) {
            if (--left[s] > 0) continue;
            steady.finished(Seconds{now}, length[s]);
            left.erase(left.begin() + static_cast<std::ptrdiff_t>(s));
            length.erase(length.begin() + static_cast<std::ptrdiff_t>(s));
        }
    }
    steady.energy(Seconds{now + 1}, Joules{joules});
    truth.report = steady.report();
    return truth;
}

TEST(SteadyState, JoulesPerTokenAreTheTruth) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        const Truth truth = serve({}, seed);
        const SteadyReport& report = truth.report;
        ASSERT_EQ(report.refused, "");
        EXPECT_DOUBLE_EQ(report.tokens, truth.tokens);
        const double each = truth.energy / truth.tokens;
        std::cout << "joules per token " << report.joules_per_token.value << ", simulated truth "
                  << each << " (" << 100 * (report.joules_per_token.value / each - 1) << " %)\n";
        EXPECT_NEAR(report.joules_per_token.value, each, 0.01 * each);
        EXPECT_LE(report.joules_per_token.low, each);
        EXPECT_GE(report.joules_per_token.high, each);
        EXPECT_EQ(report.drift, 0);
        EXPECT_NEAR(report.power.count, report.tokens_per_second * report.joules_per_token.value,
                    1e-9 * report.power.count);
        EXPECT_NEAR(report.mean_answer, 175, 10);
        EXPECT_LE(report.gap.p50, report.gap.p99);
    }
}

TEST(SteadyState, TheWindowOpensWithAFullBatchAndClosesBeforeItDrains) {
    SteadyOptions options;
    options.batch = 2;
    options.requests = 8;
    options.shortest_window = Seconds{1};
    SteadyState steady{options};
    steady.energy(Seconds{0}, Joules{0});
    steady.step({Seconds{1}, Seconds{1}, 1, 0, Seconds{0}, 1});
    EXPECT_FALSE(steady.is_open());
    steady.step({Seconds{2}, Seconds{1}, 2, 1, Seconds{1}, 1});
    EXPECT_TRUE(steady.is_open());
    for (int i = 0; i < 5; ++i) {
        EXPECT_TRUE(steady.is_open());
        steady.step({Seconds{3.0 + i}, Seconds{1}, 2, 2, Seconds{1}, 0});
        steady.finished(Seconds{3.0 + i}, 3);
    }
    // 8 - 2 - 1 have ended.
    EXPECT_TRUE(steady.is_closed());
    steady.step({Seconds{9}, Seconds{2}, 2, 2, Seconds{2}, 0});
    steady.energy(Seconds{10}, Joules{100});
    const SteadyReport report = steady.report();
    EXPECT_EQ(report.refused, "");
    EXPECT_EQ(report.begin, Seconds{2});
    EXPECT_EQ(report.end, Seconds{7});
    EXPECT_EQ(report.tokens, 10);
    EXPECT_NEAR(report.energy.count, 50, 1e-9);
    EXPECT_NEAR(report.mean_batch, 2, 1e-9);
    EXPECT_NEAR(report.joules_per_request.value, 15, 1e-9);
}

TEST(SteadyState, WhatDoesNotCountIsRefusedWithItsReason) {
    const auto reason = [](const Course& course) { return serve(course, 1).report.refused; };
    Course course;
    course.requests = 200;
    EXPECT_NE(reason(course).find("too short"), std::string::npos) << reason(course);
    course = {};
    course.half_empty = 0.25;
    EXPECT_NE(reason(course).find("mean batch was 2"), std::string::npos) << reason(course);
    course = {};
    course.answer_limit = 250;
    EXPECT_NE(reason(course).find("length limit"), std::string::npos) << reason(course);
    course = {};
    course.drift = 0.02;
    EXPECT_NE(reason(course).find("unsteady"), std::string::npos) << reason(course);
}

TEST(SteadyState, BadInputIsRefused) {
    EXPECT_THROW(SteadyState({.batch = 0, .requests = 10}), Error);
    EXPECT_THROW(SteadyState({.batch = 5, .requests = 11}), Error);
    SteadyState steady{{.batch = 1, .requests = 4}};
    const auto step_at = [&](double end) {
        steady.step({Seconds{end}, Seconds{1}, 1, 1, Seconds{1}, 1});
    };
    step_at(2);
    EXPECT_THROW(step_at(1), Error);
    steady.energy(Seconds{1}, Joules{5});
    EXPECT_THROW(steady.energy(Seconds{2}, Joules{4}), Error);
    EXPECT_THROW(steady.energy(Seconds{0.5}, Joules{6}), Error);
    for (int i = 0; i < 4; ++i) steady.finished(Seconds{3}, 1);
    EXPECT_NE(steady.report().refused, "") << "energy ends before the window does";
}

TEST(RelativeDeviation, IsThatOfTheSample) {
    EXPECT_EQ(relative_deviation(std::vector{5.0}), 0);
    EXPECT_NEAR(relative_deviation(std::vector{9.0, 10.0, 11.0}), 0.1, 1e-12);
}

TEST(SteadyState, ItsRowsAreRead) {
    const Truth truth = serve({}, 1);
    std::istringstream file{steady_csv_header() +
                            to_csv_row({"chat", "tiny", "simulated", 1}, truth.report)};
    const ConfigurationTable table{file, "steady.csv"};
    EXPECT_EQ(recommend(table, {"chat", "tiny", {"simulated"}, {{"itl_p50_ms", 100}}}), 0U);
    EXPECT_EQ(recommend(table, {"chat", "tiny", {"simulated"}, {{"itl_p50_ms", 1}}}), std::nullopt);
    EXPECT_THROW(to_csv_row({}, SteadyReport{"too short"}), Error);
}

}  // namespace
}  // namespace kdvfs::serve
