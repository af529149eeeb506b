// SPDX-License-Identifier: MIT
// Recurring training jobs on the published traces of Zeus: how good the power limits are that a
// bracket search finds, and with how many windows; and what it costs to learn the batch size,
// beside Zeus and beside always taking the default.
#include <bench/recurring_jobs/limits.hpp>
#include <bench/recurring_jobs/made_up.hpp>
#include <bench/recurring_jobs/regret.hpp>
#include <bench/recurring_jobs/trace.hpp>
#include <kdvfs/error.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

using namespace recurring_jobs;

void print_limits(const std::vector<Job>& jobs, bool all) {
    std::size_t windows = 0;
    std::size_t scanned = 0;
    std::size_t series = 0;
    std::size_t good = 0;
    double worst = 0;
    for (const Job& job : jobs) {
        for (const auto& [batch_size, trace] : job.sizes) {
            const FoundLimit found = search_limit(job, trace);
            ++series;
            windows += found.measured.size();
            scanned += trace.limits.size();
            good += found.loss <= 0.01;
            worst = std::max(worst, found.loss);
            if (all)
                std::printf("%-14s %6u: %3.0f W, %zu of %zu windows, cost %+.2f %%\n",
                            job.dataset.c_str(), batch_size, found.limit, found.measured.size(),
                            trace.limits.size(), 100 * found.loss);
        }
    }
    std::printf(
        "power limit: %zu windows, %.1f %% of a full scan's %zu; cost within 1 %% of the best on "
        "%zu of %zu series, worst %+.2f %%\n",
        windows, 100 * static_cast<double>(windows) / static_cast<double>(scanned), scanned, good,
        series, 100 * worst);
}

void print_regrets(const std::vector<Job>& jobs, std::size_t seeds) {
    std::printf("batch size: regret in costs of the best run, mean of %zu seeds +- its error\n",
                seeds);
    std::printf("%-14s %6s %17s %17s %17s %7s\n", "job", "runs", "kdvfs", "Zeus", "default",
                "/ Zeus");
    double logs = 0;
    for (const Job& job : jobs) {
        const MeanRegret ours = mean_regret(job, seeds, learned_regret);
        const MeanRegret zeus = mean_regret(job, seeds, zeus_regret);
        const MeanRegret usual = mean_regret(job, seeds, default_regret);
        logs += std::log(ours.mean / zeus.mean) / static_cast<double>(jobs.size());
        std::printf("%-14s %6zu %9.2f +- %4.2f %9.2f +- %4.2f %9.2f +- %4.2f %7.2f\n",
                    job.dataset.c_str(), job.recurrences(), ours.mean, ours.error, zeus.mean,
                    zeus.error, usual.mean, usual.error, ours.mean / zeus.mean);
    }
    std::printf("geometric mean of regret, of Zeus': %.3f\n", std::exp(logs));
}

/// Power limits of jobs that nobody has run, by the noise of what is measured.
void print_made_up(std::size_t jobs) {
    for (const double noise : {0.0, 0.003, 0.01, 0.02}) {
        const MadeUpLoss loss = made_up_limits(jobs, noise);
        std::printf(
            "%zu made-up jobs, rows with %.1f %% of noise: cost %+.2f %% on average, worst %+.2f "
            "%%, "
            "%.1f %% of a full scan's windows; the scan %+.2f %%, worst %+.2f %%\n",
            jobs, 100 * noise, 100 * loss.mean, 100 * loss.worst, 100 * loss.windows,
            100 * loss.scan_mean, 100 * loss.scan_worst);
    }
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Power limits and batch sizes of recurring jobs, on Zeus' traces"};
    std::string train;
    std::string power;
    std::size_t seeds = 40;
    bool all = false;
    std::size_t made_up = 0;
    app.add_option("train", train, "train.csv: epochs to the target by batch size");
    app.add_option("power", power, "power_*.csv: time and power of epochs by limit");
    app.add_option("--made-up", made_up, "look at so many made-up jobs instead");
    app.add_option("--seeds", seeds, "how many times each job is simulated")
        ->check(CLI::PositiveNumber);
    app.add_flag("--all", all, "print every series of the power limits");
    CLI11_PARSE(app, argc, argv);
    try {
        if (made_up > 0) {
            print_made_up(made_up);
            return 0;
        }
        const std::vector<Job> jobs = read_jobs(train, power);
        print_limits(jobs, all);
        print_regrets(jobs, seeds);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
