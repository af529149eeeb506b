// SPDX-License-Identifier: MIT
#include <tools/attach/meter_share.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

namespace {

using attach::MeterShare;

/// A program whose iterations scatter, drift and sometimes stall.
struct Program {
    double iteration = 0.01;   ///< s, without metering
    double metering_cost = 0;  ///< share of it
    double scatter = 0.03;
    double drift = 0;  ///< of the time, over a minute
};

struct Outcome {
    MeterShare share;
    double seconds = 0;  ///< in all
    double metered = 0;  ///< iterations of the last half, share of them
    double slowed = 0;   ///< the program, in the last half
};

Outcome run(const Program& program, double seconds, std::uint64_t seed) {
    std::mt19937_64 random{seed};
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    Outcome run;
    bool before = true;
    double with = 0;
    double without = 0;
    double iterations = 0;
    double metered = 0;
    while (run.seconds < seconds) {
        const auto now = kdvfs::TimePoint{std::chrono::duration_cast<kdvfs::Duration>(
            std::chrono::duration<double>{run.seconds})};
        const bool is_metered = run.share.begin(now);
        double time = program.iteration * (1 + program.drift * run.seconds / 60) *
                      std::exp(program.scatter * normal(random));
        if (uniform(random) < 0.001) time += 0.1;  // the host was busy with something else
        // Of an iteration behind a metered one, records are still to be taken.
        const double slowed = time * (1 + (is_metered || before ? program.metering_cost : 0));
        before = is_metered;
        run.seconds += slowed;
        if (run.seconds < seconds / 2) continue;
        with += slowed;
        without += time;
        iterations += 1;
        metered += is_metered ? 1 : 0;
    }
    run.metered = metered / iterations;
    run.slowed = with / without - 1;
    return run;
}

TEST(MeterShare, MetersFewerIterationsWhereItCostsMore) {
    std::mt19937_64 random{7};
    std::uniform_real_distribution<double> cost{0.03, 0.3};
    std::uniform_real_distribution<double> logarithm{std::log(0.0005), std::log(0.3)};
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        const Program program{.iteration = std::exp(logarithm(random)),
                              .metering_cost = cost(random),
                              .scatter = 0.05,
                              .drift = 0.02};
        const double seconds = std::max(180.0, 4000 * program.iteration);
        const Outcome its = run(program, seconds, seed);
        ASSERT_TRUE(its.share.cost()) << program.iteration;
        EXPECT_NEAR(its.share.cost()->share, program.metering_cost,
                    std::max(its.share.cost()->half_width * 2, 0.01));
        EXPECT_LE(its.slowed, 0.02) << program.iteration << ' ' << program.metering_cost;
        EXPECT_GT(its.metered, 0.5 * MeterShare::budget / program.metering_cost);
    }
}

TEST(MeterShare, MetersAllWhereItCostsLittle) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const Outcome its = run({.iteration = 0.02, .metering_cost = 0.002}, 240, seed);
        ASSERT_TRUE(its.share.cost());
        EXPECT_EQ(its.share.cost()->every, 1U) << its.share.cost()->share;
        EXPECT_EQ(its.metered, 1);
    }
}

TEST(MeterShare, MetersShortProgramsWhole) {
    MeterShare share;
    for (int i = 0; i < 490; ++i) {
        EXPECT_TRUE(share.begin(kdvfs::TimePoint{std::chrono::milliseconds{10 * i}})) << i;
    }
}

}  // namespace
