// SPDX-License-Identifier: MIT
#pragma once

#include <bench/recurring_jobs/limits.hpp>
#include <bench/recurring_jobs/trace.hpp>
#include <bench/recurring_jobs/zeus.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/batch_size.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

/// What a job's recurrences cost beyond those of its best size and limit, in costs of a run there.
/// A recurrence goes on until a run has reached the target, and costs what all its runs do. The
/// rules are those of Zeus' simulator (zeus/_legacy/simulate.py).
namespace recurring_jobs {

/// Draws one of the training runs that were recorded.
class Runs {
public:
    Runs(const Job& job, std::uint64_t seed) : job_{job}, random_{seed} {}

    /// Epochs until a new run at this size reaches the target; infinite where it never does.
    double draw(std::uint32_t size) {
        const auto& targets = job_.sizes.at(size).targets;
        return targets[random_() % targets.size()].value_or(HUGE_VAL);
    }

private:
    const Job& job_;
    std::mt19937_64 random_;
};

/// A recurrence that does not end.
[[noreturn]] inline void fail_endless(const Job& job) {
    throw kdvfs::Error{kdvfs::Errc::not_supported,
                       {"simulate a job's recurrence", job.dataset,
                        "its target was not reached in 100 runs", "choose another default size"}};
}
inline constexpr int most_runs = 100;

/// Always the default size at the highest limit.
inline double default_regret(const Job& job, std::uint64_t seed) {
    Runs runs{job, seed};
    const double epoch = job.cost(job.sizes.at(job.default_size).limits.rbegin()->second);
    const auto most = static_cast<double>(job.max_epochs);
    double spent = 0;
    for (std::size_t r = 0; r < job.recurrences(); ++r) {
        for (int tries = 0;; ++tries) {
            if (tries == most_runs) fail_endless(job);
            const double target = runs.draw(job.default_size);
            spent += std::min(target, most) * epoch;
            if (target <= most) break;
        }
    }
    return spent / job.best_cost() - static_cast<double>(job.recurrences());
}

/// Zeus: power limits by a full scan in a size's first epoch, sizes by pruning and sampling. A run
/// whose first epoch would be too dear is not begun, costs nothing, and counts as 200 times the
/// best.
inline double zeus_regret(const Job& job, std::uint64_t seed) {
    Runs runs{job, seed};
    ZeusSizes sizes{job, seed + 1'000'003};
    std::set<std::uint32_t> profiled;
    double least = HUGE_VAL;
    double spent = 0;
    for (std::size_t r = 0; r < job.recurrences(); ++r) {
        double cost_of_all = 0;
        for (int tries = 0;; ++tries) {
            if (tries == most_runs) fail_endless(job);
            const std::uint32_t size = sizes.suggest();
            const SizeTrace& trace = job.sizes.at(size);
            const double epoch = job.least_epoch_cost(trace);
            const double target = runs.draw(size);
            const double most =
                std::min(static_cast<double>(job.max_epochs),
                         std::isfinite(least) ? std::floor(2 * least / epoch) : HUGE_VAL);
            const bool is_new = profiled.insert(size).second;
            if (most == 0) {
                sizes.observe(size, 200 * least, false);
                continue;
            }
            double cost = std::min(target, most) * epoch;
            if (is_new) {
                std::vector<double> limits;
                for (const auto& [limit, measured] : trace.limits) limits.push_back(limit);
                cost += divided_epoch_cost(job, trace, limits) - epoch;
            }
            cost_of_all += cost;
            sizes.observe(size, cost, target <= most);
            if (target <= most) break;
        }
        least = std::min(least, cost_of_all);
        spent += cost_of_all;
    }
    return spent / job.best_cost() - static_cast<double>(job.recurrences());
}

/// kdvfs: power limits by `PowerLimit` in a size's first epoch, sizes by `BatchSize`. A run whose
/// first epoch is too dear costs what it may before it is stopped.
class LearnedJob {
public:
    LearnedJob(const Job& job, std::uint64_t seed)
        : job_{job}, runs_{job, seed}, sizes_{options(job, seed)} {}

    double regret() {
        double spent = 0;
        for (std::size_t r = 0; r < job_.recurrences(); ++r) {
            for (int tries = 0;; ++tries) {
                if (tries == most_runs) fail_endless(job_);
                const kdvfs::train::RunOutcome outcome = run(sizes_.suggest(kdvfs::Seconds{0}));
                spent += outcome.cost;
                if (outcome.end == kdvfs::train::RunEnd::reached) break;
            }
        }
        return spent / job_.best_cost() - static_cast<double>(job_.recurrences());
    }

private:
    static kdvfs::train::BatchSizeOptions options(const Job& job, std::uint64_t seed) {
        kdvfs::train::BatchSizeOptions options;
        for (const auto& [size, trace] : job.sizes) options.sizes.push_back(size);
        options.usual = job.default_size;
        options.seed = seed;
        return options;
    }

    kdvfs::train::RunOutcome run(const kdvfs::train::SuggestedRun& suggested) {
        using kdvfs::train::RunEnd;
        const SizeTrace& trace = job_.sizes.at(suggested.batch_size);
        const double target = runs_.draw(suggested.batch_size);
        const auto job_end = static_cast<double>(job_.max_epochs);
        double most = suggested.most_cost;
        kdvfs::train::RunOutcome outcome{RunEnd::stopped, 0, 0};
        double epoch = suggested.profile ? suggested.profile->cost : 0;
        if (!suggested.profile) {
            const FoundLimit found = search_limit(job_, trace);
            epoch = job_.cost(trace.at(found.limit));
            const double first = divided_epoch_cost(job_, trace, found.measured);
            outcome.cost = std::min(first, most);
            outcome.epochs = outcome.cost / first;
            most = sizes_.profiled(suggested.id, {kdvfs::Watts{found.limit}, epoch});
        }
        if (outcome.cost < most) {
            const double more = std::floor((most - outcome.cost) / epoch);
            const double end = std::min({target, job_end, outcome.epochs + more});
            outcome.cost += (end - outcome.epochs) * epoch;
            outcome.epochs = end;
        }
        if (outcome.epochs >= target)
            outcome.end = RunEnd::reached;
        else if (outcome.epochs >= job_end)
            outcome.end = RunEnd::failed;
        sizes_.observe(suggested.id, outcome);
        return outcome;
    }

    const Job& job_;
    Runs runs_;
    kdvfs::train::BatchSize sizes_;
};

inline double learned_regret(const Job& job, std::uint64_t seed) {
    return LearnedJob{job, seed}.regret();
}

/// The mean over seeds, and its standard error.
struct MeanRegret {
    double mean = 0;
    double error = 0;
};

template <class Policy>
MeanRegret mean_regret(const Job& job, std::size_t seeds, Policy policy) {
    double sum = 0;
    double squares = 0;
    for (std::size_t seed = 1; seed <= seeds; ++seed) {
        const double regret = policy(job, seed);
        sum += regret;
        squares += regret * regret;
    }
    const auto n = static_cast<double>(seeds);
    const double variance = std::max(0.0, squares / n - sum / n * (sum / n));
    return {sum / n, std::sqrt(variance / n)};
}

}  // namespace recurring_jobs
