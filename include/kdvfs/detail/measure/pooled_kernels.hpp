// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/measure/energy_sums.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/measure/power_windows.hpp>
#include <kdvfs/detail/measure/unlike_runs.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// What the column of kernels that have none is made of: kernels of little time, and the first
/// calls of others. Bounded but for a few numbers per kernel. Not thread-safe.
class PooledKernels {
public:
    using Entry = PowerRows::Entry;

    static constexpr std::size_t most_parts = 256;  ///< each costs a solution of the equations
    /// In a `SensorSample` each part has a column of its own, from this number on.
    static constexpr std::size_t first_label = std::size_t{1} << 20U;

    /// A kernel ran under a clock.
    /// @returns its number here
    std::size_t number(KernelId kernel, ClockPoint applied) {
        if (const auto known = numbers_.find(kernel, applied)) return *known;
        const std::size_t next = times_.size();
        numbers_.insert(kernel, applied, next);
        times_.push_back({kernel, applied, 0});
        if (next < most_parts) {
            shares_.push_back(0);
            cross_.emplace_back();
        }
        return next;
    }
    /// Beyond as many as there may be, kernels share a part, as if what they differ by were one.
    [[nodiscard]] static std::size_t label(std::size_t number) {
        return first_label + number % most_parts;
    }
    /// @param weighed in the row that is under way
    void add(std::size_t number, double seconds, double weighed) {
        row_.push_back({number, seconds, weighed});
    }
    /// @param time    of the row, s
    /// @param columns what the row has of columns, in weighed seconds
    void end_row(double time, std::span<const Entry> columns, std::span<const Entry> insides) {
        for (const Ran& ran : row_) {
            times_[ran.number].seconds += ran.seconds;
            const std::size_t part = ran.number % most_parts;
            shares_[part] += ran.weighed / time;
            for (const std::span<const Entry>& entries : {columns, insides}) {
                for (const Entry& entry : entries) {
                    std::vector<double>& cross = cross_[part];
                    if (cross.size() <= entry.column) cross.resize(entry.column + 1);
                    cross[entry.column] += ran.weighed * entry.share / time;
                }
            }
        }
    }
    void discard_row() { row_.clear(); }
    /// The time of a kernel's column, which is the one of all from here on.
    void merge(KernelId kernel, ClockPoint applied, double seconds) {
        times_[number(kernel, applied)].seconds += seconds;
    }

    [[nodiscard]] const std::vector<PooledTime>& times() const { return times_; }
    [[nodiscard]] std::size_t parts() const { return shares_.size(); }
    /// @param column that they share
    [[nodiscard]] ColumnParts parts_of(std::size_t column) const {
        return {column, shares_, cross_};
    }

private:
    struct Ran {
        std::size_t number;
        double seconds;
        double weighed;
    };

    KernelColumns numbers_;
    std::vector<PooledTime> times_;           // by number
    std::vector<double> shares_;              // by part, of rows
    std::vector<std::vector<double>> cross_;  // by part, of them and the columns' shares
    std::vector<Ran> row_;                    // under way
};

}  // namespace kdvfs::inline v0_3::measure
