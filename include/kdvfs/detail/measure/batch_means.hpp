// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace kdvfs::inline v0_3::measure {

/// The mean of a sequence, and how well it is known where neighbours resemble each other: means of
/// 16 to 31 batches of equal length, which grow with the sequence (batch means; Law, Simulation
/// Modeling and Analysis, 9.5.3). Constant memory.
class BatchMeans {
public:
    void add(double value) {
        sum_ += value;
        if (++in_batch_ < batch_) return;
        means_[count_++] = sum_ / static_cast<double>(batch_);
        sum_ = 0;
        in_batch_ = 0;
        if (count_ < means_.size()) return;
        for (std::size_t i = 0; i < means_.size() / 2; ++i) {
            means_[i] = (means_[2 * i] + means_[2 * i + 1]) / 2;
        }
        count_ = means_.size() / 2;
        batch_ *= 2;
    }
    /// Standard error of the mean; 0 where fewer than eight values say nothing of it.
    [[nodiscard]] double standard_error() const {
        if (count_ < fewest) return 0;
        const auto n = static_cast<double>(count_);
        double mean = 0;
        for (std::size_t i = 0; i < count_; ++i) mean += means_[i] / n;
        double square = 0;
        for (std::size_t i = 0; i < count_; ++i) square += std::pow(means_[i] - mean, 2);
        return std::sqrt(square / (n - 1) / n);
    }
    /// From how many batches.
    [[nodiscard]] std::size_t batches() const { return count_; }

private:
    static constexpr std::size_t fewest = 8;

    std::array<double, 32> means_{};
    std::size_t count_ = 0;
    std::uint64_t batch_ = 1;
    std::uint64_t in_batch_ = 0;
    double sum_ = 0;
};

}  // namespace kdvfs::inline v0_3::measure
