// SPDX-License-Identifier: MIT
#pragma once

#include <bench/recurring_jobs/trace.hpp>
#include <kdvfs/train/power_limit.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <vector>

namespace recurring_jobs {

/// What the search for the best power limit came to on one batch size of a trace.
struct FoundLimit {
    double limit = 0;
    std::vector<double> measured;  ///< limits, from the lowest
    double loss = 0;               ///< of the cost, as a share of the best limit's
};

/// The least distance between two rows: others may be missing. @pre there are two
inline double limit_step(const SizeTrace& size) {
    double step = HUGE_VAL;
    for (auto row = size.limits.begin(); std::next(row) != size.limits.end(); ++row)
        step = std::min(step, std::next(row)->first - row->first);
    return step;
}

/// Trains on a trace, all of whose steps under a limit are alike, until the limit is found.
inline FoundLimit search_limit(const Job& job, const SizeTrace& size) {
    using namespace kdvfs;
    const double low = size.limits.begin()->first;
    const double high = size.limits.rbegin()->first;
    train::PowerLimitOptions options;
    if (size.limits.size() > 1) options.step = {limit_step(size)};
    train::PowerLimit search{{{low}, {high}}, options};
    train::RankWindow counters{};
    double limit = high;
    while (!search.is_done()) {
        if (const auto next = search.begin_step(counters)) limit = next->count;
        const EpochCost epoch = size.at(limit);
        counters.time += Seconds{epoch.time_s / 1000};
        counters.energy += Joules{epoch.energy_j() / 1000};
    }
    FoundLimit found{search.best()->count, {}, 0};
    for (const train::LimitWindow& window : search.profile())
        found.measured.push_back(window.limit.count);
    found.loss = job.cost(size.at(found.limit)) / job.least_epoch_cost(size) - 1;
    return found;
}

/// What an epoch costs that is divided evenly over limits, as the traces' own simulator has it.
inline double divided_epoch_cost(const Job& job, const SizeTrace& size,
                                 const std::vector<double>& limits) {
    double sum = 0;
    for (const double limit : limits) sum += job.cost(size.at(limit));
    return sum / static_cast<double>(limits.size());
}

}  // namespace recurring_jobs
