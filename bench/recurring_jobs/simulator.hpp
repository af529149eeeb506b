// SPDX-License-Identifier: MIT
#pragma once

#include <bench/recurring_jobs/trace.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <vector>

namespace recurring_jobs {

struct RunResult {
    double cost = 0;
    std::size_t epochs = 0;
    bool reached = false;
};

/// Draws training runs from a trace by the rules of Zeus' simulator (zeus/_legacy/simulate.py).
class Simulator {
public:
    Simulator(const Job& job, std::uint64_t seed) : job_{job}, random_{seed} {}

    /// One run, until the target is reached, before the epoch that would exceed `most_cost`, or
    /// to the job's limit of epochs. Its first epoch is divided evenly over `measured` limits, if
    /// any. A run that may not even begin its first epoch costs nothing and has no epochs.
    RunResult run(std::uint32_t batch_size, double limit, std::span<const double> measured,
                  double most_cost) {
        const SizeTrace& size = job_.sizes.at(batch_size);
        const double epoch = job_.cost(size.limits.at(limit));
        const auto target = size.targets[random_() % size.targets.size()];
        double most = static_cast<double>(job_.max_epochs);
        if (std::isfinite(most_cost)) most = std::min(most, std::floor(most_cost / epoch));
        if (most == 0) return {};
        const bool reached = target && *target <= most;
        const double epochs = reached ? *target : most;
        double cost = epochs * epoch;
        if (!measured.empty()) {
            double first = 0;
            for (const double one : measured) first += job_.cost(size.limits.at(one));
            cost += first / static_cast<double>(measured.size()) - epoch;
        }
        return {cost, static_cast<std::size_t>(epochs), reached};
    }

private:
    const Job& job_;
    std::mt19937_64 random_;
};

}  // namespace recurring_jobs
