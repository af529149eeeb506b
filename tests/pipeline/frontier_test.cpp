// SPDX-License-Identifier: MIT
#include <kdvfs/train/frontier.hpp>
#include <tests/pipeline/random_pipelines.hpp>
#include <tests/pipeline/second_opinions.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

namespace kdvfs::train {
namespace {

/// How many random pipelines; the soak test asks for more.
int cases() {
    const char* asked = std::getenv("KDVFS_PIPELINES");
    return asked == nullptr ? 300 : std::stoi(asked);
}

/// GLPK is slow: fewer, unless many are asked for.
int glpk_cases() { return cases() < 1000 ? cases() / 3 : cases(); }

/// min(E + price * T) over the corners.
Femtojoules least_cost(const Frontier& frontier, std::int64_t price) {
    const auto cost = [&](const Corner& corner) {
        return corner.effective + static_cast<Femtojoules>(price) * corner.nanoseconds;
    };
    Femtojoules least = cost(frontier.corners().front());
    for (const Corner& corner : frontier.corners()) least = std::min(least, cost(corner));
    return least;
}

TEST(Frontier, AgreesWithLemonAtAnyPrice) {
    std::mt19937_64 random{1};
    for (int k = 0; k < cases(); ++k) {
        const Frontier frontier{random_pipeline(random)};
        const auto& corners = frontier.corners();
        const std::int64_t price_of_a_corner = corners[random() % corners.size()].microwatts;
        const auto any_price = static_cast<std::int64_t>(random() % 2'000'000'000);
        for (const std::int64_t price : {price_of_a_corner, any_price})
            ASSERT_EQ(least_cost(frontier, price), lemon_least_cost(frontier.pipeline(), price))
                << "pipeline " << k << ", price " << price;
    }
}

TEST(Frontier, AgreesWithGlpkAtAnyTime) {
    std::mt19937_64 random{2};
    std::uniform_real_distribution<double> uniform{0, 1};
    for (int k = 0; k < glpk_cases(); ++k) {
        const Frontier frontier{random_pipeline(random)};
        const Seconds span = frontier.frugal() - frontier.shortest();
        const Seconds time = frontier.shortest() + span * uniform(random);
        const Seconds whole = to_seconds(std::llround(time.count() * 1e9));
        const double expected = glpk_least_energy(frontier.pipeline(), whole);
        ASSERT_NEAR(frontier.effective(whole).count, expected, 1e-8 * std::abs(expected))
            << "pipeline " << k;
    }
}

TEST(Frontier, EveryCornerIsCertified) {
    std::mt19937_64 random{3};
    for (int k = 0; k < cases(); ++k) {
        const Frontier frontier{random_pipeline(random)};
        EXPECT_EQ(frontier.gap(), 0);
        const Corner* before = nullptr;
        for (const Corner& corner : frontier.corners()) {
            ASSERT_TRUE(corner.gap() == 0);
            if (before != nullptr) {
                ASSERT_LT(before->nanoseconds, corner.nanoseconds);
                ASSERT_TRUE(before->effective > corner.effective);
                // Nothing is dearer than the last nanosecond before the shortest time.
                const bool is_last = before == &frontier.corners().front();
                ASSERT_GE(before->microwatts, corner.microwatts + (is_last ? 0 : 1));
            }
            before = &corner;
        }
    }
}

TEST(Frontier, DurationsAtAnyTimeKeepItAndAreCertified) {
    std::mt19937_64 random{4};
    std::uniform_real_distribution<double> uniform{0, 1};
    for (int k = 0; k < cases(); ++k) {
        const Frontier frontier{random_pipeline(random)};
        const Pipeline& pipeline = frontier.pipeline();
        const Seconds span = frontier.frugal() - frontier.shortest();
        const Timing timing = frontier.timing(frontier.shortest() + span * uniform(random));
        EXPECT_TRUE(timing.effective == timing.bound);
        Femtojoules energy = 0;
        for (std::size_t i = 0; i < pipeline.operations.size(); ++i) {
            const Hull& hull = pipeline.curves[pipeline.operations[i].curve].hull();
            ASSERT_GE(timing.durations[i], hull.time.front());
            ASSERT_LE(timing.starts[i] + timing.durations[i], timing.nanoseconds);
            energy += hull.energy_at(timing.durations[i]);
        }
        EXPECT_TRUE(energy == timing.effective);
        for (const Dependency& d : pipeline.dependencies)
            ASSERT_LE(timing.starts[d.first] + timing.durations[d.first] + d.nanoseconds(),
                      timing.starts[d.then]);
        const double at_time = frontier.effective(to_seconds(timing.nanoseconds)).count;
        EXPECT_NEAR(to_joules(energy).count, at_time, 1e-9 * std::abs(at_time));
    }
}

TEST(Frontier, ThinningKeepsTheGapItPromises) {
    std::mt19937_64 random{5};
    std::uniform_real_distribution<double> uniform{0, 1};
    std::size_t fewer = 0;
    for (int k = 0; k < cases() / 3; ++k) {
        const Pipeline pipeline = random_pipeline(random);
        const Frontier exact{pipeline};
        const Frontier thin{pipeline, {0.01}};
        fewer += thin.corners().size() < exact.corners().size() ? 1U : 0U;
        EXPECT_LE(thin.gap(), 0.01);
        ASSERT_EQ(thin.shortest(), exact.shortest());
        ASSERT_EQ(thin.frugal(), exact.frugal());
        for (int trial = 0; trial < 20; ++trial) {
            const Seconds span = exact.frugal() - exact.shortest();
            const Seconds time = exact.shortest() + span * uniform(random);
            const double best = exact.effective(time).count;
            EXPECT_GE(thin.effective(time).count, best * (1 - 1e-9));
            EXPECT_LE(thin.effective(time).count, best * (1 + thin.gap() * 1.02) + 1e-9);
            const Timing timing = thin.timing(time);
            EXPECT_LE(to_joules(timing.bound).count, best * (1 + 1e-9));
        }
    }
    EXPECT_GT(fewer, 0U);
}

TEST(Frontier, FoldingMicrobatchesChangesNothing) {
    std::mt19937_64 random{8};
    std::size_t folded = 0;
    for (int k = 0; k < 20; ++k) {
        PipelineShape shape{Schedule::one_f_one_b, 1 + static_cast<std::uint32_t>(random() % 3), 1,
                            0};
        shape.microbatches = 5 * shape.stages + 5 + static_cast<std::uint32_t>(random() % 9);
        std::vector<Curve> curves;
        CurveIndex curve_of;
        for (std::uint32_t s = 0; s < shape.stages; ++s)
            for (const Pass pass : {Pass::forward, Pass::backward}) {
                curve_of[{s, pass, 0}] = static_cast<std::uint32_t>(curves.size());
                curves.push_back(random_curve(random, {60}));
            }
        const Pipeline pipeline = make_pipeline(shape, curve_of, curves, {60});
        const Frontier walked{pipeline, {0, false}};
        const Frontier frontier{pipeline, {0, true}};
        EXPECT_EQ(walked.folded_corners(), 0U);
        folded += frontier.folded_corners();
        ASSERT_EQ(frontier.corners().size(), walked.corners().size());
        for (std::size_t c = 0; c < walked.corners().size(); ++c) {
            ASSERT_EQ(frontier.corners()[c].nanoseconds, walked.corners()[c].nanoseconds);
            ASSERT_TRUE(frontier.corners()[c].effective == walked.corners()[c].effective);
            ASSERT_TRUE(frontier.corners()[c].gap() == 0);
        }
        const Seconds time = (walked.shortest() + walked.frugal()) / 2;
        EXPECT_TRUE(frontier.timing(time).effective == walked.timing(time).effective);
        EXPECT_TRUE(frontier.timing(time).bound == walked.timing(time).bound);
    }
    EXPECT_GT(folded, 0U);
}

TEST(Frontier, AnswersAStragglerWithItsTimeWithinTheFrontier) {
    std::mt19937_64 random{6};
    const Frontier frontier{random_pipeline(random)};
    EXPECT_EQ(frontier.answer(frontier.frugal() * 2), frontier.frugal());
    EXPECT_EQ(frontier.answer(Seconds{0}), frontier.shortest());
    const Seconds between = (frontier.frugal() + frontier.shortest()) / 2;
    EXPECT_EQ(frontier.answer(between), between);
}

TEST(Frontier, RejectsTimesThatAreTooShortAndGapsThatAreNone) {
    std::mt19937_64 random{7};
    const Pipeline pipeline = random_pipeline(random);
    const Frontier frontier{pipeline};
    EXPECT_THROW((void)frontier.effective(frontier.shortest() * 0.99), Error);
    EXPECT_THROW((void)frontier.timing(Seconds{std::nan("")}), Error);
    EXPECT_THROW(Frontier(pipeline, {-0.1}), Error);
    EXPECT_THROW(Frontier(pipeline, {std::nan("")}), Error);
}

}  // namespace
}  // namespace kdvfs::train
