// SPDX-License-Identifier: MIT
#include <kdvfs/detail/tune/level_shift.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>

namespace kdvfs::tune::detail {
namespace {

int seeds() { return std::getenv("KDVFS_SOAK") != nullptr ? 2000 : 100; }

/// Iterations of a program: they scatter by `scatter`, one in 50 stalls, one in 200 writes a
/// checkpoint, and the board heats up by 3 % over 2000 of them.
class ShiftingProgram {
public:
    ShiftingProgram(std::uint64_t seed, double scatter) : random_{seed}, noise_{0, scatter} {}

    double iteration(double level = 1) {
        const double heat = 1 + 0.03 * (1 - std::exp(-static_cast<double>(count_) / 700));
        double time = level * heat * std::exp(noise_(random_));
        if (random_() % 50 == 0) time *= 1.2;
        if (count_ % 200 == 199) time += 3;
        ++count_;
        return time;
    }

private:
    std::mt19937_64 random_;
    std::normal_distribution<double> noise_;
    std::uint64_t count_ = 0;
};

TEST(LevelShift, IsFoundWithinTwentyIterations) {
    for (const double scatter : {0.0, 0.002, 0.01, 0.03})
        for (const double level : {0.5, 0.9, 1.12, 1.3, 3.0})
            for (int seed = 1; seed <= seeds(); ++seed) {
                if (std::abs(std::log(level)) < 3 * scatter) continue;
                ShiftingProgram program{static_cast<std::uint64_t>(seed), scatter};
                LevelShift shift;
                for (int i = 0; i < 300 + seed; ++i)
                    if (shift.add(program.iteration())) shift.settle();
                int needed = 1;
                while (!shift.add(program.iteration(level)) && needed < 100) ++needed;
                EXPECT_LE(needed, 20) << scatter << ' ' << level << ' ' << seed;
            }
}

TEST(LevelShift, StallsCheckpointsAndHeatAreNone) {
    for (const double scatter : {0.0, 0.002, 0.01, 0.03}) {
        int alarms = 0;
        for (int seed = 1; seed <= seeds(); ++seed) {
            ShiftingProgram program{static_cast<std::uint64_t>(seed), scatter};
            LevelShift shift;
            for (int i = 0; i < 10000; ++i)
                if (shift.add(program.iteration())) {
                    ++alarms;
                    shift.settle();
                }
        }
        std::printf("scatter %.3f: %.2f alarms in 10000 iterations\n", scatter,
                    static_cast<double>(alarms) / seeds());
        EXPECT_LE(alarms, seeds()) << scatter;  // each costs a look of some iterations
    }
}

TEST(LevelShift, KnowsWhatIsUsual) {
    ShiftingProgram program{5, 0.01};
    LevelShift shift;
    EXPECT_FALSE(shift.has_level());
    for (int i = 0; i < 3000; ++i) static_cast<void>(shift.add(program.iteration()));
    ASSERT_TRUE(shift.has_level());
    EXPECT_NEAR(shift.level(), 1.03, 0.01);
    EXPECT_TRUE(shift.is_usual(shift.level() * 1.004, 10));
    EXPECT_FALSE(shift.is_usual(shift.level() * 1.02, 10));
}

}  // namespace
}  // namespace kdvfs::tune::detail
