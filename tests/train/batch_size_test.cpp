// SPDX-License-Identifier: MIT
#include <kdvfs/train/batch_size.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace kdvfs::train {
namespace {

constexpr Seconds now{1000};

BatchSizeOptions options(std::vector<std::uint32_t> sizes, std::uint32_t usual,
                         std::uint64_t seed = 1) {
    BatchSizeOptions options;
    options.sizes = std::move(sizes);
    options.usual = usual;
    options.seed = seed;
    return options;
}

/// A job with the laws of the literature, and a tenth of noise; sizes below `fails` never get
/// there.
struct SimulatedJob {
    double noise_scale = 1000;
    double step_cost = 200;
    std::uint32_t fails = 0;
    std::mt19937_64 random{5};
    double most_epochs = 200;
    double drift = 1;  ///< of the epochs
    double spread = 0.1;

    [[nodiscard]] double epoch_cost(std::uint32_t size) const { return 1 + step_cost / size; }
    [[nodiscard]] double mean_epochs(std::uint32_t size) const {
        return 20 * drift * (1 + size / noise_scale);
    }
    [[nodiscard]] double cost(std::uint32_t size) const {
        return epoch_cost(size) * mean_epochs(size);
    }
    /// One recurrence: what its runs cost until one has reached the target.
    double recur(BatchSize& sizes) {
        double spent = 0;
        for (int run = 0; run < 50; ++run) {
            const RunOutcome outcome = train(sizes, sizes.suggest(now));
            spent += outcome.cost;
            if (outcome.end == RunEnd::reached) return spent;
        }
        ADD_FAILURE() << "the target is never reached";
        return spent;
    }
    RunOutcome train(BatchSize& sizes, const SuggestedRun& run) {
        const double epoch = epoch_cost(run.batch_size);
        double most = run.most_cost;
        if (!run.profile) most = sizes.profiled(run.id, {Watts{150}, epoch});
        std::normal_distribution<double> normal{0, spread};
        const double needed =
            run.batch_size < fails
                ? std::numeric_limits<double>::infinity()
                : std::round(mean_epochs(run.batch_size) * std::exp(normal(random)));
        const double end = std::min({needed, std::max(1.0, std::floor(most / epoch)), most_epochs});
        const RunEnd how = end >= needed        ? RunEnd::reached
                           : end >= most_epochs ? RunEnd::failed
                                                : RunEnd::stopped;
        sizes.observe(run.id, {how, end, end * epoch});
        return {how, end, end * epoch};
    }
};

const std::vector<std::uint32_t> powers{8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

TEST(BatchSize, TriesTheUsualSizeFirst) {
    BatchSize sizes{options(powers, 256)};
    EXPECT_FALSE(sizes.best_known());
    const SuggestedRun run = sizes.suggest(now);
    EXPECT_EQ(run.batch_size, 256U);
    EXPECT_FALSE(run.profile);
    EXPECT_TRUE(std::isinf(run.most_cost));
    EXPECT_TRUE(std::isinf(sizes.profiled(run.id, {Watts{150}, 2})));
    sizes.observe(run.id, {RunEnd::reached, 20, 41});
    EXPECT_EQ(sizes.best_known(), 256U);
    EXPECT_DOUBLE_EQ(sizes.suggest(now).most_cost, 80);  // twice its epochs at what one costs
}

/// Runs until one reaches the target; more than `most` are a failure.
int runs_of_a_recurrence(SimulatedJob& job, BatchSize& sizes, int most = 3) {
    for (int run = 1; run <= most; ++run)
        if (job.train(sizes, sizes.suggest(now)).end == RunEnd::reached) return run;
    ADD_FAILURE() << "the target is not reached in " << most << " runs";
    return most + 1;
}

TEST(BatchSize, ReachesTheTargetInThreeRunsAfterADrift) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        SimulatedJob job;
        job.random.seed(seed);
        BatchSize sizes{options(powers, 256, seed)};
        for (int r = 0; r < 20; ++r) runs_of_a_recurrence(job, sizes);
        job.drift = 3;
        job.most_epochs = 2000;
        int runs = 0;
        for (int r = 0; r < 20; ++r) runs += runs_of_a_recurrence(job, sizes);
        EXPECT_LE(runs, 35) << seed;  // the drift is learned, not met again in each recurrence
        job.drift = 1;
        for (int r = 0; r < 20; ++r) runs_of_a_recurrence(job, sizes);
    }
}

TEST(BatchSize, ReachesTheTargetInThreeRunsWhateverTheSpread) {
    for (const double spread : {0.1, 0.3, 0.5}) {
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            SimulatedJob job;
            job.spread = spread;
            job.most_epochs = 2000;
            job.random.seed(seed);
            BatchSize sizes{options(powers, 256, seed)};
            for (int r = 0; r < 30; ++r) runs_of_a_recurrence(job, sizes);
        }
    }
}

/// Jobs whose usual size is nearly the best, whose runs spread, whose data drift, or one of whose
/// runs ends far too cheaply by mistake: what the sizes chosen later cost, as a share of the usual
/// one's.
TEST(BatchSize, SizesChosenLaterCostNoMoreThanTheUsualOne) {
    const char* given = std::getenv("KDVFS_SEEDS");
    const std::uint64_t seeds = given != nullptr ? std::stoul(given) : 20;
    struct Case {
        const char* name;
        double spread;
        double drift;
        bool has_mistake;
    };
    for (const Case& each : {Case{"spread 10 %", 0.1, 1, false},
                             {"spread 30 %", 0.3, 1, false},
                             {"spread 50 %", 0.5, 1, false},
                             {"drift to 2.5 times", 0.1, 2.5, false},
                             {"one wrong outcome", 0.1, 1, true}}) {
        std::uint64_t kept = 0;
        int most_runs = 0;
        double sum = 0;
        for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
            SimulatedJob job;
            job.spread = each.spread;
            job.most_epochs = 2000;
            job.random.seed(seed);
            BatchSize sizes{options(powers, 256, seed)};
            double cost = 0;
            for (int r = 1; r <= 30; ++r) {
                if (r == 16) job.drift = each.drift;
                if (each.has_mistake && r == 5) {
                    const SuggestedRun run = sizes.suggest(now);
                    if (!run.profile)
                        sizes.profiled(run.id, {Watts{150}, job.epoch_cost(run.batch_size)});
                    sizes.observe(run.id, {RunEnd::reached, 1, job.epoch_cost(run.batch_size)});
                }
                std::uint32_t last = 0;
                int runs = 0;
                for (RunEnd end = RunEnd::stopped; end != RunEnd::reached && runs < 20; ++runs) {
                    const SuggestedRun run = sizes.suggest(now);
                    last = run.batch_size;
                    end = job.train(sizes, run).end;
                }
                most_runs = std::max(most_runs, runs);
                const bool counts = each.drift > 1 ? r > 15 : r > 10;
                if (counts) cost += job.cost(last) / job.cost(256) / (each.drift > 1 ? 15 : 20);
            }
            kept += cost <= 1.03 ? 1U : 0U;
            sum += cost / static_cast<double>(seeds);
        }
        const double share = static_cast<double>(kept) / static_cast<double>(seeds);
        std::cout << each.name << ", " << seeds << " seeds: sizes chosen later cost " << sum
                  << " of the usual one, at most 1.03 in " << 100 * share
                  << " % of seeds; the target is reached in " << most_runs << " runs at most\n";
        EXPECT_LE(most_runs, 3) << each.name;
        // Of 200 seeds it is 94.5 and 89.5 % where runs spread by a third and by half.
        EXPECT_GE(share, each.spread < 0.2 ? 0.95 : 0.8) << each.name;
    }
}

TEST(BatchSize, AsksAgainForARunThatIsFarTooCheap) {
    BatchSize sizes{options({128, 256}, 256)};
    const auto recur = [&](double epochs) {
        const SuggestedRun run = sizes.suggest(now);
        if (!run.profile) sizes.profiled(run.id, {Watts{150}, 1});
        sizes.observe(run.id, {RunEnd::reached, epochs, epochs});
        return run.batch_size;
    };
    recur(20);
    const std::uint32_t wrong = recur(1);
    EXPECT_EQ(sizes.state().least_cost, 20);
    EXPECT_EQ(recur(20), wrong);  // asked again: it was a mistake
    EXPECT_FALSE(sizes.state().doubtful);
    EXPECT_EQ(sizes.state().least_cost, 20);

    const std::uint32_t cheap = recur(1);
    EXPECT_EQ(recur(1.1), cheap);  // confirmed: it counts
    EXPECT_FALSE(sizes.state().doubtful);
    EXPECT_EQ(sizes.state().sizes.at(cheap).reached.back(), 1.1);
}

TEST(BatchSize, LearnsTheBestFromAnyUsualSize) {
    for (const std::uint32_t usual : {32U, 256U, 2048U}) {
        double regret = 0;
        const SimulatedJob truth;
        double least = std::numeric_limits<double>::infinity();
        for (const std::uint32_t size : powers) least = std::min(least, truth.cost(size));
        constexpr int seeds = 5;
        for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
            SimulatedJob job;
            job.random.seed(seed);
            BatchSize sizes{options(powers, usual, seed)};
            for (int r = 0; r < 80; ++r) regret += job.recur(sizes) / least - 1;
            EXPECT_LE(truth.cost(*sizes.best_known()), 1.1 * least);
        }
        // Beside first runs at the usual size: less than a tenth of what never learning costs.
        EXPECT_LE(regret / seeds, 4 + 4 * (truth.cost(usual) / least - 1)) << usual;
    }
}

TEST(BatchSize, StopsAHopelessRunAfterItsFirstEpoch) {
    BatchSize sizes{options({128, 256}, 256)};
    SuggestedRun run = sizes.suggest(now);
    sizes.profiled(run.id, {Watts{150}, 1});
    sizes.observe(run.id, {RunEnd::reached, 20, 20});
    while (run.batch_size != 128) {
        run = sizes.suggest(now);
        if (run.batch_size == 256) sizes.observe(run.id, {RunEnd::reached, 20, 20});
    }
    // An epoch as dear as half of the best run: no number of epochs makes up for that.
    EXPECT_EQ(sizes.profiled(run.id, {Watts{150}, 10}), 0);
    sizes.observe(run.id, {RunEnd::stopped, 1, 10});
    for (int r = 0; r < 30; ++r) {
        run = sizes.suggest(now);
        EXPECT_EQ(run.batch_size, 256U);
        sizes.observe(run.id, {RunEnd::reached, 20, 20});
    }
}

TEST(BatchSize, LeavesFailingSizesAndThoseBeyondAlone) {
    SimulatedJob job{.noise_scale = 100, .step_cost = 10, .fails = 100};  // lures it downwards
    BatchSize sizes{options(powers, 512)};
    for (int r = 0; r < 60; ++r) job.recur(sizes);
    EXPECT_EQ(sizes.best_known(), 128U);
    for (const std::uint32_t size : {8U, 16U, 32U}) {
        EXPECT_TRUE(sizes.state().sizes.at(size).reached.empty());
        EXPECT_TRUE(sizes.state().sizes.at(size).stopped.empty()) << size;
    }

    BatchSize memory{options(powers, 256)};
    SuggestedRun run = memory.suggest(now);
    memory.observe(run.id, {RunEnd::reached, 20, 20.0 / 16});
    std::set<std::uint32_t> tried;
    for (int r = 0; r < 60; ++r) {
        run = memory.suggest(now);
        tried.insert(run.batch_size);
        const double epoch = 1 / std::sqrt(run.batch_size);  // bigger is better, but
        const bool fits = run.batch_size <= 512;
        if (fits) memory.profiled(run.id, {Watts{150}, epoch});
        memory.observe(run.id, fits ? RunOutcome{RunEnd::reached, 20, 20 * epoch}
                                    : RunOutcome{RunEnd::failed, 0, 0});
    }
    EXPECT_TRUE(tried.contains(1024));
    EXPECT_FALSE(tried.contains(2048));
    EXPECT_EQ(memory.best_known(), 512U);
}

TEST(BatchSize, LooksElsewhereWhereTheUsualSizeFails) {
    BatchSize sizes{options({64, 128, 256}, 128)};
    std::set<std::uint32_t> tried;
    for (int r = 0; r < 3; ++r) {
        const SuggestedRun run = sizes.suggest(now);
        EXPECT_TRUE(tried.insert(run.batch_size).second);
        sizes.observe(run.id, {RunEnd::failed, 100, 100});
    }
    try {
        sizes.suggest(now);
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::not_supported);
    }
}

TEST(BatchSize, ConcurrentRunsUseTheBestSizeKnown) {
    SimulatedJob job;
    BatchSize sizes{options(powers, 256, 3)};
    const SuggestedRun first = sizes.suggest(now);
    EXPECT_EQ(sizes.suggest(now).batch_size, 256U);  // nothing else is known
    job.train(sizes, first);
    // The second of the two is under way; it explores no other size, but nothing is known yet that
    // it could be compared with, so it still counts until it ends.
    for (int r = 0; r < 20; ++r) job.recur(sizes);
    BatchSizeState state = sizes.state();
    state.pending.clear();
    BatchSize later{options(powers, 256, 3), state};
    SuggestedRun exploring = later.suggest(now);
    while (exploring.batch_size == *later.best_known()) exploring = later.suggest(now);
    for (int r = 0; r < 5; ++r)
        EXPECT_EQ(later.suggest(now + Seconds{60}).batch_size, *later.best_known());
    // Given up as lost, it keeps nobody from exploring, and its outcome is still welcome.
    std::set<std::uint32_t> tried;
    for (int r = 0; r < 60; ++r) {
        const SuggestedRun run = later.suggest(now + Seconds{2 * 86400});
        tried.insert(run.batch_size);
        later.observe(run.id, {RunEnd::lost, 0, 0});
    }
    EXPECT_GT(tried.size(), 1U);
    EXPECT_NO_THROW(later.observe(exploring.id, {RunEnd::reached, 20, 30}));
}

TEST(BatchSize, IsDeterministicAndGoesOnFromItsState) {
    SimulatedJob job;
    BatchSize one{options(powers, 256)};
    for (int r = 0; r < 10; ++r) job.recur(one);
    SimulatedJob same = job;
    BatchSize other{options(powers, 256), one.state()};
    for (int r = 0; r < 20; ++r) EXPECT_EQ(job.recur(one), same.recur(other));
}

TEST(BatchSize, RejectsWhatMakesNoSense) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THROW(BatchSize{options({}, 1)}, Error);
    EXPECT_THROW((BatchSize{options({32, 32}, 32)}), Error);
    EXPECT_THROW((BatchSize{options({0, 32}, 32)}), Error);
    EXPECT_THROW((BatchSize{options({16, 32}, 64)}), Error);
    BatchSizeOptions early = options({16, 32}, 32);
    early.stop_at = 1;
    EXPECT_THROW(BatchSize{early}, Error);
    BatchSizeState other;
    other.sizes[64];
    EXPECT_THROW((BatchSize{options({16, 32}, 32), other}), Error);

    BatchSize sizes{options({16, 32}, 32)};
    EXPECT_THROW(sizes.observe(1, {RunEnd::reached, 5, 5}), Error);
    const SuggestedRun run = sizes.suggest(now);
    EXPECT_THROW(sizes.profiled(run.id + 1, {Watts{100}, 5}), Error);
    EXPECT_THROW(sizes.profiled(run.id, {Watts{100}, nan}), Error);
    EXPECT_THROW(sizes.profiled(run.id, {Watts{-1}, 5}), Error);
    EXPECT_THROW(sizes.observe(run.id, {RunEnd::reached, 0, 5}), Error);
    EXPECT_THROW(sizes.observe(run.id, {RunEnd::reached, 5, nan}), Error);
    EXPECT_THROW(sizes.observe(run.id, {RunEnd::stopped, -1, 5}), Error);
    EXPECT_TRUE(sizes.state().sizes.at(32).reached.empty());
    sizes.observe(run.id, {RunEnd::reached, 5, 5});
    EXPECT_THROW(sizes.observe(run.id, {RunEnd::reached, 5, 5}), Error);  // a second time
}

}  // namespace
}  // namespace kdvfs::train
