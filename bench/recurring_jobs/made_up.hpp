// SPDX-License-Identifier: MIT
#pragma once

#include <bench/recurring_jobs/limits.hpp>
#include <bench/recurring_jobs/trace.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

/// Jobs that nobody has run, drawn from ranges: boards of other power, few sizes, sizes that seldom
/// reach their target, rows that are missing.
namespace recurring_jobs {

/// @param noise of each row's time, relative; of its power, twice that
inline Job made_up_job(std::uint64_t seed, double noise) {
    std::mt19937_64 random{seed};
    const auto between = [&](double low, double high) {
        return std::uniform_real_distribution<double>{low, high}(random);
    };
    std::normal_distribution<double> normal;
    Job job{"made up " + std::to_string(seed), 0, 100, {}, 0};
    const double step = random() % 2 == 0 ? 25 : 10;
    const double highest = step * std::round(between(180, 320) / step);
    const double lowest = step * std::round(highest * between(0.3, 0.5) / step);
    const double missing = random() % 2 == 0 ? 0 : between(0.1, 0.5);
    const std::size_t sizes = 2 + random() % 6;
    const double best = between(0, static_cast<double>(sizes));
    const double fewest = between(5, 20);
    const double bends = between(0.05, 0.4);
    std::uint32_t size = 8;
    for (std::size_t s = 0; s < sizes; ++s, size *= 2) {
        SizeTrace trace;
        const double draws = highest * between(0.35, 1.05);  // without a limit
        const double least = highest * between(0.15, 0.4);   // at the lowest clock
        const double slows = between(0.3, 1.5);              // time against power: an exponent
        const double insensitive = between(0, 0.8);          // share of time
        const double epoch = 100 / (1 + 0.3 * static_cast<double>(s));
        for (double limit = lowest; limit <= highest; limit += step) {
            const bool is_end = limit == lowest || limit + step > highest;
            if (!is_end && between(0, 1) < missing) continue;
            const double watts = std::clamp(limit, std::min(least, draws), draws);
            const double slower = insensitive + (1 - insensitive) * std::pow(draws / watts, slows);
            trace.limits[limit] = {epoch * slower * std::exp(noise * normal(random)),
                                   watts * std::exp(2 * noise * normal(random))};
            job.max_power = std::max(job.max_power, limit);
        }
        const double reached = s == 0 ? 1 : random() % 3 == 0 ? between(0.1, 0.6) : 1;
        // Epochs rise to both sides of the size that needs the fewest.
        const double needs = fewest *
                             (1 + bends * std::pow(std::abs(static_cast<double>(s) - best), 1.5)) *
                             between(0.95, 1.05);
        for (int run = 0; run < 4; ++run)
            trace.targets.push_back(run > 0 && between(0, 1) > reached
                                        ? std::nullopt
                                        : std::optional{std::round(needs * between(0.8, 1.25))});
        job.sizes[size] = std::move(trace);
    }
    job.default_size = job.sizes.begin()->first;
    return job;
}

/// How far the limits that are found on made-up jobs are from the best, in costs; and those of a
/// scan of the same rows.
struct MadeUpLoss {
    double mean = 0;
    double worst = 0;
    double windows = 0;  ///< as a share of a scan's
    double scan_mean = 0;
    double scan_worst = 0;
};
inline MadeUpLoss made_up_limits(std::size_t jobs, double noise) {
    MadeUpLoss loss;
    double count = 0;
    double scanned = 0;
    for (std::uint64_t seed = 1; seed <= jobs; ++seed) {
        const Job truth = made_up_job(seed, 0);
        const Job job = made_up_job(seed, noise);
        for (const auto& [size, rows] : job.sizes) {
            const SizeTrace& exact = truth.sizes.at(size);
            const double least = truth.least_epoch_cost(exact);
            const auto beyond = [&](double limit) {
                return truth.cost(exact.at(limit)) / least - 1;
            };
            const FoundLimit found = search_limit(job, rows);
            double cheapest = HUGE_VAL;
            double best = 0;
            for (double limit = rows.limits.rbegin()->first;
                 limit >= rows.limits.begin()->first - 1e-6; limit -= limit_step(rows)) {
                ++scanned;
                if (const double cost = job.cost(rows.at(limit)); cost < cheapest) {
                    cheapest = cost;
                    best = limit;
                }
            }
            ++count;
            loss.windows += static_cast<double>(found.measured.size());
            loss.mean += beyond(found.limit);
            loss.worst = std::max(loss.worst, beyond(found.limit));
            loss.scan_mean += beyond(best);
            loss.scan_worst = std::max(loss.scan_worst, beyond(best));
        }
    }
    loss.windows /= scanned;
    loss.mean /= count;
    loss.scan_mean /= count;
    return loss;
}

}  // namespace recurring_jobs
