// SPDX-License-Identifier: MIT
#pragma once

#include <bench/recurring_jobs/trace.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <vector>

namespace recurring_jobs {

/// Zeus' choice of batch sizes as its artifact has it (PruningGTSBatchSizeOptimizer): two rounds of
/// pruning, then Thompson sampling with a Gaussian of its own for every size.
class ZeusSizes {
public:
    ZeusSizes(const Job& job, std::uint64_t seed) : start_{job.default_size}, random_{seed} {
        for (const auto& [size, trace] : job.sizes) sizes_.push_back(size);
        begin_round();
    }

    std::uint32_t suggest() { return round_ < rounds ? queue_[next_] : sample(); }

    void observe(std::uint32_t size, double cost, bool reached) {
        costs_[size].push_back(cost);
        if (round_ == rounds) return;
        if (reached) {
            good_.push_back(size);
            if (cost < best_) {
                best_ = cost;
                start_ = size;
            }
        }
        // A failure ends a direction.
        next_ = reached ? next_ + 1 : next_ < down_ ? down_ : queue_.size();
        if (next_ < queue_.size()) return;
        std::sort(good_.begin(), good_.end());
        sizes_ = good_;
        if (++round_ < rounds) begin_round();
    }

private:
    static constexpr int rounds = 2;

    void begin_round() {
        good_.clear();
        queue_.clear();
        best_ = std::numeric_limits<double>::infinity();
        next_ = 0;
        const auto start = std::find(sizes_.begin(), sizes_.end(), start_);
        for (auto size = start + 1; size != sizes_.begin(); --size) queue_.push_back(*(size - 1));
        down_ = queue_.size();
        queue_.insert(queue_.end(), start + 1, sizes_.end());
    }

    /// The size whose sampled mean cost is least. Two equal costs have no variance: then the mean.
    std::uint32_t sample() {
        std::uint32_t chosen = sizes_.front();
        double least = std::numeric_limits<double>::infinity();
        for (const std::uint32_t size : sizes_) {
            const std::vector<double>& costs = costs_[size];
            const auto n = static_cast<double>(costs.size());
            double mean = 0;
            for (const double cost : costs) mean += cost / n;
            double variance = 0;
            for (const double cost : costs) variance += (cost - mean) * (cost - mean) / n;
            std::normal_distribution<double> normal;
            const double sampled = mean + std::sqrt(variance / n) * normal(random_);
            if (sampled >= least) continue;
            least = sampled;
            chosen = size;
        }
        return chosen;
    }

    std::vector<std::uint32_t> sizes_;
    std::uint32_t start_;
    std::vector<std::uint32_t> queue_;  ///< of this round: downwards first, then upwards
    std::size_t down_ = 0;              ///< how many of the queue lie downwards
    std::size_t next_ = 0;
    std::vector<std::uint32_t> good_;
    double best_ = 0;
    int round_ = 0;
    std::map<std::uint32_t, std::vector<double>> costs_;
    std::mt19937_64 random_;
};

}  // namespace recurring_jobs
