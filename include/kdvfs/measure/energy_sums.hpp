// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/kernel_columns.hpp>
#include <kdvfs/measure/normal_equations.hpp>
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

    NormalEquations equations;  ///< a column per (kernel, applied clock); column 0 is idle
    std::vector<double> refused_seconds;  ///< by column, of rows that are not in the equations
    KernelColumns columns;
    std::vector<CountedJoules> direct;  ///< by column, of long scopes; may be shorter
    Duration counter_period{0};

    Joules counter;           ///< trusted joules of the metered time
    Joules outside;           ///< trusted joules of the rest
    Seconds counted_time{0};  ///< metered time under trusted samples

    double squares = 0;                 ///< joules^2/s that believed rows lie beyond the columns
    std::uint64_t refused_rows = 0;     ///< far from what all other rows say
    std::uint64_t overflowed_rows = 0;  ///< with kernels beyond the last column
    std::uint64_t late = 0;  ///< intervals and samples after their time was joined, or no numbers
    std::uint64_t overflows = 0;  ///< times that buffers were full

    /// Seconds of a column under trusted samples. Its energy is its power over all of them; what a
    /// refused row's joules hold beyond that is unexplained.
    [[nodiscard]] double seconds(std::size_t column) const {
        return equations.time(column) +
               (column < refused_seconds.size() ? refused_seconds[column] : 0);
    }
    [[nodiscard]] std::vector<double> seconds_of(KernelId kernel) const {
        std::vector<double> seconds(equations.columns());
        for (const auto& [applied, column] : columns.of(kernel)) {
            seconds[column] = this->seconds(column);
        }
        return seconds;
    }
    /// Standard deviation of the counter's power over a second from what the columns explain. Noise
    /// that is white in power falls with the root of the time.
    [[nodiscard]] Watts scatter() const {
        const auto rows = static_cast<double>(equations.rows());
        const double free = rows - static_cast<double>(equations.solve().rank());
        return {free > 0 ? std::sqrt(squares / free) : 0};
    }
    [[nodiscard]] Watts mean_power() const { return counter / counted_time; }
};

}  // namespace kdvfs::measure
