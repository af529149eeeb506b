// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/kernel_interval.hpp>
#include <kdvfs/measure/energy_counter.hpp>
#include <kdvfs/measure/kernel_table.hpp>
#include <kdvfs/measure/report.hpp>

#include <cstddef>
#include <cstdint>

namespace kdvfs::measure {

/// How intervals and samples become energies.
struct AccumulatorSettings {
    Duration counter_period{0};      ///< of the device's counter; 0 where unknown
    std::size_t capacity = 1 << 16;  ///< intervals, and samples, that may wait for each other
    double widest_told = 0.10;       ///< a half-width beyond this share is `too_short_to_tell`
};

/// Adds up calls, times and clocks per kernel, and attributes the counter's joules to kernels by
/// streaming least squares. Intervals, samples and clock changes may come late and interleaved;
/// they are joined when `advance` says that nothing earlier is missing. Constant memory. Not
/// thread-safe.
class EnergyAccumulator {
public:
    explicit EnergyAccumulator(const KernelTable& kernels, AccumulatorSettings settings = {});

    /// One metered scope. Intervals of one or several lanes, in any order.
    void add(const KernelInterval& interval);
    /// Scopes that were not metered: counted only.
    void add_unmetered(KernelId kernel, std::uint64_t calls = 1);
    /// The next sample of the counter, in order of time.
    void add(const EnergySample& sample);
    /// From `at` on the device held these caps. In order of time.
    void clocks_applied(TimePoint at, ClockPoint applied);
    /// From `at` on every scope is metered, or not. In order of time; metered at the start.
    /// Joules of unmetered time are kept apart (`EnergyTotals::outside`).
    void metering(TimePoint at, bool on);
    /// Promises that every interval which began before `complete_until` has been added, and every
    /// sample and change; joins them up to there.
    void advance(TimePoint complete_until);

    /// Fills rows, groups, totals and its own notes; leaves the rest of the report alone.
    void fill(Report& report) const;
};

}  // namespace kdvfs::measure
