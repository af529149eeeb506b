// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/measure/row_sums.hpp>
#include <kdvfs/measure/sample_join.hpp>
#include <kdvfs/units.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// Which column of the normal equations a kernel under a clock has. A kernel meets few clocks, so
/// its columns are searched one by one.
class KernelColumns {
public:
    using Columns = std::vector<std::pair<ClockPoint, std::size_t>>;

    [[nodiscard]] std::optional<std::size_t> find(KernelId kernel, ClockPoint applied) const {
        if (kernel.value >= by_kernel_.size()) return {};
        for (const auto& [clock, column] : by_kernel_[kernel.value]) {
            if (clock == applied) return column;
        }
        return {};
    }

    void insert(KernelId kernel, ClockPoint applied, std::size_t column) {
        if (by_kernel_.size() <= kernel.value) by_kernel_.resize(kernel.value + std::size_t{1});
        by_kernel_[kernel.value].emplace_back(applied, column);
        if (by_column_.size() <= column) by_column_.resize(column + 1);
        by_column_[column] = kernel;
    }

    [[nodiscard]] const Columns& of(KernelId kernel) const {
        static const Columns none;
        return kernel.value < by_kernel_.size() ? by_kernel_[kernel.value] : none;
    }

    /// The kernel that a column belongs to; of a column that was inserted.
    [[nodiscard]] KernelId kernel(std::size_t column) const { return by_column_.at(column); }

    /// Kernels that have a column.
    [[nodiscard]] std::vector<KernelId> kernels() const {
        std::vector<KernelId> found;
        for (std::uint32_t i = 0; i < by_kernel_.size(); ++i) {
            if (!by_kernel_[i].empty()) found.push_back({i});
        }
        return found;
    }

private:
    std::vector<Columns> by_kernel_;
    std::vector<KernelId> by_column_;
};

/// All that attribution needs to know of a stretch of work, however long it was.
struct EnergySums {
    static constexpr std::size_t idle_column = 0;

    RowSums rows;  ///< a column per (kernel, applied clock); column 0 is idle
    KernelColumns columns;
    std::vector<double> column_seconds;  ///< by column, under trusted samples
    std::vector<double> column_edges;    ///< of them, those at runs' ends that markers take
    /// By column, W; a width of 0 where the kernel was not repeated. May be shorter.
    std::vector<PowerBelief> repeated;
    std::vector<CountedJoules> direct;  ///< by column, of long scopes; may be shorter
    Duration counter_period{0};
    /// The counter's joules over those of the rows, where these are of a power log, and its
    /// relative standard error. All joules below are the counter's; the rows' powers are not.
    double gain = 1;
    double gain_deviation = 0;

    Joules counter;           ///< trusted joules of the metered time
    Joules outside;           ///< trusted joules of the rest
    Seconds counted_time{0};  ///< metered time under trusted samples

    std::uint64_t row_count = 0;        ///< metered counter intervals that were fitted
    bool by_power = false;              ///< they come from samples of the power
    std::uint64_t refused_rows = 0;     ///< whose reading is impossible
    std::uint64_t overflowed_rows = 0;  ///< with kernels beyond the last column
    std::uint64_t late = 0;  ///< intervals and samples after their time was joined, or no numbers
    std::uint64_t overflows = 0;  ///< times that buffers were full

    [[nodiscard]] std::size_t columns_seen() const { return column_seconds.size(); }
    [[nodiscard]] double seconds(std::size_t column) const { return column_seconds[column]; }
    [[nodiscard]] std::vector<double> seconds_of(KernelId kernel) const {
        std::vector<double> seconds(columns_seen());
        for (const auto& [applied, column] : columns.of(kernel)) {
            seconds[column] = this->seconds(column);
        }
        return seconds;
    }
    /// Standard deviation of a row's power from what the columns explain.
    [[nodiscard]] Watts scatter() const {
        return {rows.rows > 0 ? std::sqrt(rows.scatter / rows.rows) : 0};
    }
    [[nodiscard]] Watts mean_power() const { return counter / counted_time; }
};

}  // namespace kdvfs::measure
