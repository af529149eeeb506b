// SPDX-License-Identifier: MIT
#include <bench/recurring_jobs/limits.hpp>
#include <bench/recurring_jobs/made_up.hpp>
#include <bench/recurring_jobs/regret.hpp>
#include <bench/recurring_jobs/trace.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <vector>

namespace recurring_jobs {
namespace {

/// Zeus' published traces, which are no part of the project.
class PublishedTraces : public testing::Test {
protected:
    void SetUp() override {
        const std::filesystem::path folder = KDVFS_SOURCE_DIR "/../shared/data/zeus";
        if (!std::filesystem::exists(folder))
            GTEST_SKIP() << "no traces in " << folder << ": bench/recurring_jobs says which";
        jobs = read_jobs(folder / "train.csv", folder / "power_v100.csv");
        ASSERT_EQ(jobs.size(), 6U);
    }

    std::vector<Job> jobs;
};

TEST_F(PublishedTraces, PowerLimitsAreFoundWithFewWindows) {
    std::size_t windows = 0;
    std::size_t scanned = 0;
    std::size_t good = 0;
    for (const Job& job : jobs) {
        for (const auto& [batch_size, trace] : job.sizes) {
            const FoundLimit found = search_limit(job, trace);
            windows += found.measured.size();
            scanned += trace.limits.size();
            good += found.loss <= 0.01;
            EXPECT_LE(found.loss, 0.04) << job.dataset << " at " << batch_size;
        }
    }
    EXPECT_GE(good, 50U);
    EXPECT_LE(static_cast<double>(windows), 0.6 * static_cast<double>(scanned));
}

/// As in the RTX 6000's trace: limits between two rows are asked for, too.
TEST(SizeTraces, OfMissingLimitsAreReadBetweenTheirRows) {
    SizeTrace trace{{{100, {60, 90}}, {150, {50, 130}}, {250, {40, 150}}}, {4}};
    EXPECT_EQ(trace.at(150).time_s, 50);
    EXPECT_EQ(trace.at(200).time_s, 45);
    EXPECT_EQ(trace.at(200).watts, 140);
    EXPECT_EQ(trace.at(90).time_s, 60);
    EXPECT_EQ(trace.at(300).watts, 150);
    Job job{"none", 8, 10, {{8, trace}}, 250};
    const FoundLimit found = search_limit(job, trace);
    EXPECT_LE(found.loss, 0.01);
    EXPECT_EQ(divided_epoch_cost(job, trace, {200}), 0.5 * 45 * 140 + 0.5 * 250 * 45);
}

/// Boards and jobs that nobody has measured: few limits and sizes, rows that are missing, sizes
/// that seldom reach the target. The truth has no noise, the rows have.
TEST(MadeUpJobs, LimitsAreNearTheBestAndEveryRecurrenceReachesItsTarget) {
    for (const double noise : {0.0, 0.003, 0.01}) {
        const MadeUpLoss loss = made_up_limits(100, noise);
        std::printf(
            "made-up jobs, rows with %.1f %% of noise: power limits %.2f %% above the best on "
            "average, worst %.2f %%, %.0f %% of a scan's windows (a scan: %.2f, %.2f %%)\n",
            100 * noise, 100 * loss.mean, 100 * loss.worst, 100 * loss.windows,
            100 * loss.scan_mean, 100 * loss.scan_worst);
        EXPECT_LE(loss.mean, noise < 0.005 ? 0.002 : 0.006);
        EXPECT_LE(loss.windows, 0.6);
    }
    double logs = 0;
    int jobs = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const Job job = made_up_job(seed, 0.005);
        const double ours =
            mean_regret(job, 3, learned_regret).mean;  // throws where one does not end
        try {
            logs += std::log(std::max(ours, 0.1) /
                             std::max(mean_regret(job, 3, zeus_regret).mean, 0.1));
            ++jobs;
        } catch (
            const kdvfs::Error&) {  // Zeus' rules do not end where sizes seldom reach the target
        }
    }
    std::printf("made-up jobs: regret %.2f of Zeus' where that ends, %d of 20 jobs\n",
                std::exp(logs / jobs), jobs);
    EXPECT_LE(std::exp(logs / jobs), 1.5);
}

/// What a recurrence costs beyond the best one is spread widely over seeds: few of them here, and
/// no more than that learning pays; bench/recurring_jobs has the figures.
TEST_F(PublishedTraces, LearningTheBatchSizePays) {
    constexpr std::size_t seeds = 3;
    double logs = 0;
    for (const Job& job : jobs) {
        const double ours = mean_regret(job, seeds, learned_regret).mean;
        EXPECT_LE(ours, mean_regret(job, seeds, default_regret).mean) << job.dataset;
        logs += std::log(ours / mean_regret(job, 20, zeus_regret).mean) / 6;
    }
    EXPECT_LE(std::exp(logs), 0.7);
}

}  // namespace
}  // namespace recurring_jobs
