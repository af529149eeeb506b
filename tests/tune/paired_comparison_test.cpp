// SPDX-License-Identifier: MIT
#include <kdvfs/detail/tune/paired_comparison.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace kdvfs::tune::detail {
namespace {

using Random = std::mt19937_64;

int trials() { return std::getenv("KDVFS_SOAK") != nullptr ? 5000 : 500; }

/// How a block at `at` (seconds) scatters around what it costs, as the logarithm of a factor.
struct Scatter {
    std::string name;
    std::function<double(Random&, double at)> draw;
};

constexpr double one_percent = 0.01;

std::vector<Scatter> scatters() {
    const auto normal = [](Random& random) {
        return std::normal_distribution<double>{0, one_percent}(random);
    };
    return {
        {"normal", [=](Random& random, double) { return normal(random); }},
        {"normal, and a board that heats up by 2 %",
         [=](Random& random, double at) {
             return normal(random) + 0.02 * (1 - std::exp(-at / 1200));
         }},
        {"normal, and a slow wave of 1 %",
         [=](Random& random, double at) { return normal(random) + 0.01 * std::sin(at / 900); }},
        {"Student's t with 5 degrees of freedom",
         [](Random& random, double) {
             return std::sqrt(0.6) * one_percent * std::student_t_distribution<double>{5}(random);
         }},
        {"exponential: some blocks are slow",
         [](Random& random, double) {
             return one_percent * std::exponential_distribution<double>{1}(random);
         }},
    };
}

/// Where the program runs as found: one block of 10 s in ten for an hour, then 3 %. Its neighbours,
/// two blocks by the plan, are the other side of its pair; which of the three it is, is drawn.
struct Outcome {
    bool always_held = true;
    double half_width_1h = 0;
    double half_width_4h = 0;
};

Outcome run(Random& random, const Scatter& scatter, double saved_pct) {
    constexpr double block = 10;
    const double plan = std::log1p(saved_pct / 100);
    Outcome outcome;
    PairedComparison comparison;
    for (double at = 0; at < 4 * 3600;) {
        const auto as_found = random() % 3;
        double planned = 0;
        double found = 0;
        for (std::size_t slot = 0; slot < 3; ++slot) {
            const double noise = scatter.draw(random, at + static_cast<double>(slot) * block);
            if (slot == as_found)
                found = std::exp(noise);
            else
                planned += std::exp(plan + noise) / 2;
        }
        comparison.add(planned, found);
        if (const auto change = comparison.change()) {
            outcome.always_held = outcome.always_held && change->contains(saved_pct);
            (at < 3600 ? outcome.half_width_1h : outcome.half_width_4h) =
                (change->high - change->low) / 2;
        }
        at += block / (at < 3600 ? 0.1 : 0.03);
    }
    return outcome;
}

TEST(PairedComparison, HoldsTheTruthAtEveryMomentOfFourHours) {
    for (const Scatter& scatter : scatters()) {
        Random random{11};
        int held = 0;
        std::vector<double> first;
        std::vector<double> all;
        for (int i = 0; i < trials(); ++i) {
            const Outcome outcome = run(random, scatter, -6);
            held += outcome.always_held ? 1 : 0;
            first.push_back(outcome.half_width_1h);
            all.push_back(outcome.half_width_4h);
        }
        std::sort(first.begin(), first.end());
        std::sort(all.begin(), all.end());
        const std::size_t middle = first.size() / 2;
        RecordProperty(scatter.name, held);
        std::printf("%s: held in %d of %d, half-width %.2f after 1 h, %.2f after 4 h\n",
                    scatter.name.c_str(), held, trials(), first[middle], all[middle]);
        EXPECT_GE(held, trials() * 465 / 500) << scatter.name;
        EXPECT_LE(first[middle], 1.0) << scatter.name;
        EXPECT_LE(all[middle], 0.5) << scatter.name;
    }
}

/// Why: an interval that is right once is wrong when it is looked at after each pair.
TEST(PairedComparison, AUsualIntervalMissesWhereItIsLookedAtAfterEachPair) {
    Random random{12};
    std::normal_distribution<double> noise{0, 1};
    int missed = 0;
    for (int i = 0; i < trials(); ++i) {
        double sum = 0;
        bool held = true;
        for (int n = 1; n <= 68; ++n) {
            sum += noise(random);
            if (n >= 8) held = held && std::abs(sum / n) <= 1.96 / std::sqrt(n);
        }
        missed += held ? 0 : 1;
    }
    EXPECT_GT(missed, trials() * 10 / 100);
}

TEST(PairedComparison, SaysNothingFromFewPairs) {
    PairedComparison comparison;
    for (std::size_t i = 1; i < PairedComparison::fewest_pairs; ++i) {
        comparison.add(0.9 + 0.001 * static_cast<double>(i % 2), 1);
        EXPECT_FALSE(comparison.change());
    }
    comparison.add(0.9, 1);
    ASSERT_TRUE(comparison.change());
    EXPECT_EQ(comparison.pairs(), PairedComparison::fewest_pairs);
    EXPECT_LT(comparison.change()->high, 0);
}

TEST(PairedComparison, TheBoundHasNoWidthForOneValueAndShrinksWithMore) {
    EXPECT_TRUE(std::isinf(t_sequence_half_width(1, 3)));
    double before = std::numeric_limits<double>::infinity();
    for (std::size_t n = 5; n < 1000; ++n) {
        const double width = t_sequence_half_width(n, 3);
        EXPECT_LT(width, before) << n;
        before = width;
    }
}

}  // namespace
}  // namespace kdvfs::tune::detail
