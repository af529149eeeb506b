// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/measure/held_clocks.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/settings.hpp>
#include <kdvfs/report.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kdvfs::inline v0_3::measure {

struct EnergySums;
struct PowerSample;
struct SourceChoice;

/// Adds up calls, times and clocks per kernel, and attributes the counter's joules to kernels by
/// streaming least squares: one unknown power per (kernel, applied clock), one for idle. Intervals,
/// samples and clock changes may come late and interleaved; they are joined when `advance` says
/// that nothing earlier is missing. Constant memory. Not thread-safe.
class EnergyAccumulator {
public:
    /// `kernels` must outlive the accumulator.
    explicit EnergyAccumulator(const KernelTable& kernels, AccumulatorSettings settings = {});
    EnergyAccumulator(const EnergyAccumulator& other);
    /// An accumulator that has been moved from may be destroyed only.
    EnergyAccumulator(EnergyAccumulator&&) noexcept;
    EnergyAccumulator& operator=(EnergyAccumulator other) noexcept;
    ~EnergyAccumulator();

    /// One metered scope. Intervals of one or several tracks, in any order.
    /// @returns the clocks that held, by the changes that have been given so far
    HeldParts add(const KernelInterval& interval);
    /// A scope that only encloses others has ended: a level without work, hence without a row, of
    /// its own.
    /// @param end an interval without time
    void end_enclosing(const KernelInterval& end);
    /// Scopes that were not metered: counted only.
    void add_unmetered(KernelId kernel, std::uint64_t calls = 1);
    /// The next sample of the counter, in order of time.
    void add(const EnergySample& sample);
    /// The next sample of the power log, in order of time. Both the log's and the counter's are
    /// held back for some seconds, until it is clear which tells kernels apart (`SourceFinder`).
    void add(const PowerReading& reading);
    /// The next mean of a power meter over a known window, in order of time, where joules are taken
    /// from these.
    void add(const PowerSample& sample);
    /// From `at` on the device held these caps. In order of time.
    void clocks_applied(TimePoint at, ClockPoint applied);
    /// From `at` on every scope is metered, or not. In order of time; metered at the start.
    /// Joules of unmetered time are kept apart (`EnergyTotals::outside`).
    void metering(TimePoint at, bool on);
    /// What iterations, or the scopes that are open, do at `at`. In order of time.
    /// @param number of the iteration that begins, counted from 1 on, metered or not; 0: not known
    void iteration(TimePoint at, IterationMark mark, std::uint64_t number = 0);
    /// Intervals at the next place, counted from 1, lie directly in a scope of `enclosing` at
    /// `parent`.
    void add_place(std::uint32_t parent, KernelId enclosing);
    /// What a kernel drew while it was repeated under a clock: what its power is expected to be
    /// near.
    void add_repeated(const RepeatedPower& power);
    /// Promises that every interval which began before `until` has been added, and every sample
    /// and change; joins them up to there.
    void advance(TimePoint until);

    /// How many intervals can be added before some have to be attributed.
    [[nodiscard]] std::size_t room() const;

    /// The device's counter turned out to be updated so often.
    void counter_period(Duration period);
    /// The board's power limit, where it has changed; the highest one counts.
    void power_limit(Watts limit);
    /// Boards of its kind draw so much at rest, and others may or may not work on it.
    void rests_at(RestRange rests, bool others_may_work);
    /// Between the counter and the power log; null until the latter has shown enough.
    [[nodiscard]] const SourceChoice* source() const;

    /// Fills rows, groups and totals, and appends notes; leaves the rest of the report alone.
    void fill(Report& report) const;

    /// The sums so far, for other ways to attribute.
    [[nodiscard]] EnergySums sums() const;

private:
    class Work;
    std::unique_ptr<Work> work_;
};

}  // namespace kdvfs::inline v0_3::measure

// libkdvfs compiles it once: tools/library/reports.cpp.
#if !KDVFS_COMPILED
#include <kdvfs/detail/measure/accumulator_work.hpp>
#endif
