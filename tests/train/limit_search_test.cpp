// SPDX-License-Identifier: MIT
#include <kdvfs/detail/train/limit_search.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <random>

namespace kdvfs::train {
namespace {

using Board = std::function<LimitWindow(Watts)>;

/// A board whose work needs `demand` watts at full speed and speeds up less and less with power.
Board board(double demand, double idle = 40, double share_of_core = 0.7) {
    return [=](Watts limit) {
        const double power = std::min(limit.count, demand);
        const double speed = std::pow((power - idle) / (demand - idle), 0.5);
        const double time = share_of_core / speed + 1 - share_of_core;
        return LimitWindow{limit, {power * time}, Seconds{time}};
    };
}

std::size_t run(LimitSearch& search, const Board& measure) {
    std::size_t windows = 0;
    while (const auto limit = search.next()) {
        search.add(measure(*limit));
        if (++windows > search.limits().size()) ADD_FAILURE() << "a limit is measured twice";
        if (windows > search.limits().size()) break;
    }
    return windows;
}

double least(const LimitSearch& search, const Board& measure) {
    double least = std::numeric_limits<double>::infinity();
    for (const Watts limit : search.limits()) least = std::min(least, search.value(measure(limit)));
    return least;
}

TEST(LimitSearch, CountsLimitsDownFromTheHighest) {
    const LimitSearch search{{{100}, {260}}, {25}, LimitChoice::cost()};
    ASSERT_EQ(search.limits().size(), 7U);
    EXPECT_EQ(search.limits().front(), Watts{110});
    EXPECT_EQ(search.limits().back(), Watts{260});
    const LimitSearch one{{{250}, {250}}, {25}, LimitChoice::cost()};
    EXPECT_EQ(one.limits().size(), 1U);
}

TEST(LimitSearch, FindsTheBestOfSmoothCurvesWithFewWindows) {
    std::mt19937_64 random{7};
    std::uniform_real_distribution<double> uniform{0, 1};
    std::size_t windows = 0;
    std::size_t limits = 0;
    std::size_t good = 0;
    for (int i = 0; i < 2000; ++i) {
        const double high = 200 + std::floor(500 * uniform(random));
        const auto choice =
            i % 2 == 0 ? LimitChoice::energy() : LimitChoice::cost(0.3 + 0.6 * uniform(random));
        LimitSearch search{{{0.4 * high}, {high}}, {high / (10 + 30 * uniform(random))}, choice};
        const Board measure =
            board(high * (0.5 + 0.7 * uniform(random)), 0.15 * high, 0.2 + 0.8 * uniform(random));
        windows += run(search, measure);
        limits += search.limits().size();
        const double loss = search.value(measure(*search.best())) / least(search, measure) - 1;
        ASSERT_LE(loss, 0.04) << i;
        good += loss <= 0.01;
    }
    EXPECT_GE(good, 1980U);  // a kink between two limits can hide
    EXPECT_LE(static_cast<double>(windows), 0.5 * static_cast<double>(limits));
}

TEST(LimitSearch, TriesLimitsThatDoNotBindUntilAnotherPromisesNothing) {
    const auto noisy = [](double noise) {
        return [noise, random = std::mt19937_64{3}](Watts limit) mutable {
            const double time = std::exp(std::normal_distribution<double>{0, noise}(random));
            return LimitWindow{limit, {38 * time}, Seconds{time}};
        };
    };
    LimitSearch quiet{{{100}, {250}}, {25}, LimitChoice::cost()};
    EXPECT_EQ(run(quiet, noisy(0.001)), 3U);
    LimitSearch loud{{{100}, {250}}, {25}, LimitChoice::cost()};
    EXPECT_GE(run(loud, noisy(0.1)), 5U);
}

TEST(LimitSearch, BisectsForABoundedSlowdown) {
    for (const double share : {0.0, 0.01, 0.05, 0.2, 1.0}) {
        LimitSearch search{{{100}, {700}}, {10}, LimitChoice::bounded_slowdown(share)};
        const Board measure = board(520);
        EXPECT_LE(run(search, measure), 8U);  // 1 + log2(61)
        const double bound = measure({700}).time.count() * (1 + share);
        ASSERT_TRUE(search.best());
        EXPECT_LE(measure(*search.best()).time.count(), bound);
        EXPECT_GT(measure(*search.best() - Watts{10}).time.count(), bound);
    }
}

TEST(LimitSearch, LeastTimeIsTheLowestLimitThatCostsNone) {
    LimitSearch search{{{100}, {300}}, {25}, LimitChoice::time()};
    run(search, board(210));
    EXPECT_EQ(search.best(), Watts{225});
}

TEST(LimitSearch, CostsTheMaximumPowerOfAllRanks) {
    const LimitSearch search{{{100}, {250}}, {25}, LimitChoice::cost(0.25), 4};
    EXPECT_DOUBLE_EQ(search.value({{150}, {400}, Seconds{2}}), 0.25 * 400 + 0.75 * 1000 * 2);
}

TEST(LimitSearch, RejectsWhatMakesNoSense) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto cost = LimitChoice::cost();
    EXPECT_THROW((LimitSearch{{{300}, {100}}, {25}, cost}), Error);
    EXPECT_THROW((LimitSearch{{{0}, {100}}, {25}, cost}), Error);
    EXPECT_THROW((LimitSearch{{{nan}, {100}}, {25}, cost}), Error);
    EXPECT_THROW((LimitSearch{{{100}, {300}}, {0}, cost}), Error);
    EXPECT_THROW((LimitSearch{{{100}, {300}}, {1e-3}, cost}), Error);
    EXPECT_THROW((LimitSearch{{{100}, {300}}, {25}, LimitChoice::cost(1.1)}), Error);
    EXPECT_THROW((LimitSearch{{{100}, {300}}, {25}, LimitChoice::bounded_slowdown(-0.1)}), Error);
    EXPECT_THROW((LimitSearch{{{100}, {300}}, {25}, cost, 0}), Error);
    LimitSearch search{{{100}, {300}}, {25}, cost};
    EXPECT_FALSE(search.best());
    EXPECT_THROW(search.add({{110}, {1}, Seconds{1}}), Error);
    EXPECT_THROW(search.add({{100}, {0}, Seconds{1}}), Error);
    EXPECT_THROW(search.add({{100}, {1}, Seconds{nan}}), Error);
}

}  // namespace
}  // namespace kdvfs::train
