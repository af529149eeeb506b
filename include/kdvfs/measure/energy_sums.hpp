// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/kernel_columns.hpp>
#include <kdvfs/measure/row_sums.hpp>
#include <kdvfs/measure/sample_join.hpp>
#include <kdvfs/units.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kdvfs::measure {

/// All that attribution needs to know of a stretch of work, however long it was.
struct EnergySums {
    static constexpr std::size_t idle_column = 0;

    RowSums rows;  ///< a column per (kernel, applied clock); column 0 is idle
    KernelColumns columns;
    std::vector<double> column_seconds;  ///< by column, under trusted samples
    std::vector<CountedJoules> direct;   ///< by column, of long scopes; may be shorter
    Duration counter_period{0};

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
