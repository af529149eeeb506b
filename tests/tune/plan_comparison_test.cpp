// SPDX-License-Identifier: MIT
#include <kdvfs/detail/tune/plan_comparison.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <vector>

namespace kdvfs::tune::detail {
namespace {

using namespace std::chrono_literals;

/// A program whose iterations take 100 ms at 300 W as found and 110 ms at 200 W by the plan; one
/// that follows the other kind takes 30 ms more, in which clocks change.
class ComparedProgram {
public:
    explicit ComparedProgram(ComparedBlocks& blocks) : blocks_{blocks} {}

    void run(int iterations, int lost_sample = -1) {
        for (int i = 0; i < iterations; ++i) {
            const bool planned = blocks_.next(now_);
            const Duration changes = planned == before_ ? 0ms : 30ms;
            before_ = planned;
            const Duration time = (planned ? 110ms : 100ms) + changes;
            for (Duration step = 0ms; step < time; step += 10ms) {
                now_ += 10ms;
                total_ += Watts{planned ? 200. : 300.} * Seconds{10ms};
                if (i == lost_sample) ++segment_;
                const measure::EnergySample sample{now_, total_, segment_};
                blocks_.add({&sample, 1});
            }
            followed.push_back(planned);
        }
    }

    std::vector<bool> followed;

private:
    ComparedBlocks& blocks_;
    TimePoint now_{};
    Joules total_{};
    std::uint32_t segment_ = 0;
    bool before_ = true;
};

BlockOptions short_blocks() {
    BlockOptions chosen;
    chosen.switch_latency = 10ms;
    chosen.measured = 500ms;
    chosen.counter_rows = 20;
    return chosen;
}

TEST(PlanComparison, MeasuresIterationsOfBothWays) {
    ComparedBlocks blocks{short_blocks(), 10ms, 7};
    ComparedProgram program{blocks};
    program.run(400);
    // A pair takes two blocks of one iteration that does not count and five or six that do.
    ASSERT_GE(blocks.pairs().size(), 25U);
    for (const ComparedPair& pair : blocks.pairs()) {
        EXPECT_NEAR(pair.planned.time.count(), 0.110, 1e-9);
        EXPECT_NEAR(pair.found.time.count(), 0.100, 1e-9);
        EXPECT_NEAR(pair.planned.energy.count, 22, 1e-6);
        EXPECT_NEAR(pair.found.energy.count, 30, 1e-6);
    }
}

TEST(PlanComparison, BeginsPairsInRandomOrderEachWayAsOften) {
    std::size_t plan_first = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        ComparedBlocks blocks{short_blocks(), 10ms, seed};
        ComparedProgram program{blocks};
        program.run(60);
        // The first block, whose iterations follow the plan, belongs to no pair.
        std::size_t i = 0;
        while (program.followed[i]) ++i;
        plan_first += i > 14 ? 1 : 0;
        std::size_t planned = 0;
        for (const bool each : program.followed) planned += each ? 1 : 0;
        EXPECT_NEAR(static_cast<double>(planned), 30, 12) << "seed " << seed;
    }
    EXPECT_GE(plan_first, 10U);
    EXPECT_LE(plan_first, 30U);
}

TEST(PlanComparison, FollowsThePlanForLongEnoughToSeeWhetherItIsTheProgramsOwn) {
    ComparedBlocks blocks{short_blocks(), 10ms, 1};
    ComparedProgram program{blocks};
    program.run(static_cast<int>(ComparedBlocks::first_iterations));
    for (const bool planned : program.followed) EXPECT_TRUE(planned);
}

TEST(PlanComparison, DropsPairsInWhichTheCounterLostEnergy) {
    ComparedBlocks whole{short_blocks(), 10ms, 3};
    ComparedProgram{whole}.run(100);
    ComparedBlocks lost{short_blocks(), 10ms, 3};
    ComparedProgram{lost}.run(100, 50);
    EXPECT_EQ(lost.pairs().size() + 1, whole.pairs().size());
}

}  // namespace
}  // namespace kdvfs::tune::detail
