// SPDX-License-Identifier: MIT
#include <kdvfs/error.hpp>
#include <kdvfs/tune/validation.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

Plan promise(double energy_pct) {
    Plan plan;
    plan.max_slowdown = 0.01;
    plan.baseline = {Seconds{1}, Joules{100}};
    plan.expected = {Seconds{1}, Joules{100 + energy_pct}};
    return plan;
}

/// Runs whose energy and time change by so much, with normal noise of `noise_pct`.
auto runs(std::mt19937_64& random, double time_pct, double energy_pct, double noise_pct) {
    return [&random, time_pct, energy_pct, noise_pct](bool planned) {
        std::normal_distribution<double> noise{1, noise_pct / 100};
        return Cost{Seconds{(planned ? 1 + time_pct / 100 : 1) * noise(random)},
                    Joules{100 * (planned ? 1 + energy_pct / 100 : 1) * noise(random)}};
    };
}

TEST(AnytimeInterval, HoldsTheTruthAtAllTimesAtOnce) {
    std::mt19937_64 random{3};
    std::normal_distribution<double> noise{-5, 1};
    int missed = 0;
    constexpr int trials = 1000;
    for (int i = 0; i < trials; ++i) {
        std::vector<double> changes;
        bool holds = true;
        for (std::size_t pair = 0; pair < 60; ++pair) {
            changes.push_back(noise(random));
            if (changes.size() >= Validation::fewest_pairs)
                holds = holds && anytime_interval(changes).contains(-5);
        }
        missed += holds ? 0 : 1;
    }
    EXPECT_LE(missed, trials * 6 / 100);
}

TEST(Validation, EndsOnceTheVerdictIsKnown) {
    std::mt19937_64 random{4};
    const auto judge = [&](double promised, double time_pct, double energy_pct, double noise_pct) {
        return validate(promise(promised), 40, runs(random, time_pct, energy_pct, noise_pct));
    };
    const Validation kept = judge(-8, 0.2, -8.3, 0.02);
    EXPECT_EQ(kept.verdict(), Verdict::kept);
    EXPECT_LT(kept.pairs, 8U);
    const Validation broken = judge(-8, 3, -8.3, 0.1);
    EXPECT_EQ(broken.verdict(), Verdict::broken);
    EXPECT_LT(broken.pairs, 8U);
    EXPECT_EQ(judge(0, 0, 0, 0.02).verdict(), Verdict::nothing_to_gain);
    const Validation undecided = judge(-8, 0.5, -8, 10);
    EXPECT_EQ(undecided.verdict(), Verdict::undecided);
    EXPECT_EQ(undecided.pairs, 40U);
}

TEST(Validation, ThatHasTooFewPairsForAnIntervalIsReadBack) {
    for (const double noise_pct : {0.0, 1.0}) {
        std::mt19937_64 random{5};
        const Validation found = validate(promise(-8), 2, runs(random, 0.2, -8, noise_pct));
        EXPECT_FALSE(found.time.is_known());
        EXPECT_TRUE(found.energy.contains(100)) << "anything may be true";
        const std::string text = to_json(found, "g");
        EXPECT_NE(text.find("\"low_pct\": null"), std::string::npos) << text;
        const Validation read = parse_validation(text, "kept.json");
        EXPECT_DOUBLE_EQ(read.time.mean, found.time.mean);
        EXPECT_FALSE(read.energy.is_known());
        EXPECT_EQ(to_json(read, "g"), text);
    }
    Validation one_end;
    one_end.pairs = 4;
    std::string half = to_json(one_end, "g");
    half.replace(half.find("\"low_pct\": 0.0"), 14, "\"low_pct\": null");
    EXPECT_THROW(static_cast<void>(parse_validation(half, "kept.json")), Error) << "of one end";
}

TEST(Validation, EachVerdictHasItsExitStatus) {
    EXPECT_EQ(exit_status(Verdict::kept), 0);
    EXPECT_EQ(exit_status(Verdict::undecided), 3);
    EXPECT_EQ(exit_status(Verdict::broken), 4);
    EXPECT_EQ(exit_status(Verdict::nothing_to_gain), 5);
}

}  // namespace
}  // namespace kdvfs::tune
