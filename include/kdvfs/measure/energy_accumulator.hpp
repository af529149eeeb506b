// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/energy_counter.hpp>
#include <kdvfs/measure/energy_sums.hpp>
#include <kdvfs/measure/kernel_columns.hpp>
#include <kdvfs/measure/kernel_facts.hpp>
#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/report_filler.hpp>
#include <kdvfs/measure/robust_rows.hpp>
#include <kdvfs/measure/sample_join.hpp>
#include <kdvfs/report.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// How intervals and samples become energies.
struct AccumulatorSettings {
    Duration counter_period{0};       ///< of the device's counter; 0 where unknown
    std::size_t capacity = 1 << 16;   ///< intervals, and samples, that may wait for each other
    std::size_t most_columns = 1024;  ///< (kernel, clock) pairs told apart; later ones are not
    double widest_resolved = 0.10;    ///< a half-width beyond this share is `too_short_to_tell`
};

/// Adds up calls, times and clocks per kernel, and attributes the counter's joules to kernels by
/// streaming least squares: one unknown power per (kernel, applied clock), one for idle. Intervals,
/// samples and clock changes may come late and interleaved; they are joined when `advance` says
/// that nothing earlier is missing. Constant memory. Not thread-safe.
class EnergyAccumulator {
public:
    /// `kernels` must outlive the accumulator.
    explicit EnergyAccumulator(const KernelTable& kernels, AccumulatorSettings settings = {})
        : kernels_{&kernels},
          settings_{settings},
          join_{settings.capacity, direct_from(settings.counter_period)} {
        rows_.add_column();  // EnergySums::idle_column
    }

    /// One metered scope. Intervals of one or several tracks, in any order.
    void add(const KernelInterval& interval) {
        facts_.of(interval.kernel).add(interval);
        join_.add(interval, *this);
    }
    /// Scopes that were not metered: counted only.
    void add_unmetered(KernelId kernel, std::uint64_t calls = 1) {
        facts_.of(kernel).calls += calls;
    }
    /// The next sample of the counter, in order of time.
    void add(const EnergySample& sample) { join_.add(sample, *this); }
    /// From `at` on the device held these caps. In order of time.
    void clocks_applied(TimePoint at, ClockPoint applied) { join_.clocks_applied(at, applied); }
    /// From `at` on every scope is metered, or not. In order of time; metered at the start.
    /// Joules of unmetered time are kept apart (`EnergyTotals::outside`).
    void metering(TimePoint at, bool on) { join_.metering(at, on); }
    /// Promises that every interval which began before `until` has been added, and every sample
    /// and change; joins them up to there.
    void advance(TimePoint until) { join_.advance(until, *this); }

    /// The device's counter turned out to be updated so often.
    void counter_period(Duration period) {
        settings_.counter_period = period;
        join_.direct_from(direct_from(period));
    }

    /// Fills rows, groups and totals, and appends notes; leaves the rest of the report alone.
    void fill(Report& report) const;

    /// The sums so far, for other ways to attribute.
    [[nodiscard]] EnergySums sums() const;

private:
    static Duration direct_from(Duration period) {
        constexpr int periods = 20;  // so that an error of a period at each end is 5 % at most
        return period > Duration::zero() ? periods * period : Duration::max();
    }

    friend class SampleJoin;  // the sink's half
    void run(KernelId kernel, ClockPoint applied, Seconds share, bool in_row);
    void idle(Seconds time) { rows_.add(EnergySums::idle_column, time.count()); }
    void end_row(double joules, Seconds time, bool metered);
    void break_row();
    void measured_directly(KernelId kernel, ClockPoint applied, CountedJoules counted);

    const KernelTable* kernels_;
    AccumulatorSettings settings_;
    SampleJoin join_;
    RobustRows rows_;
    KernelColumns columns_;
    FactsByKernel facts_;
    std::vector<CountedJoules> direct_;  // by column

    bool row_overflowed_ = false;
    double counter_joules_ = 0;
    double outside_joules_ = 0;
    double counted_seconds_ = 0;
    std::uint64_t overflowed_rows_ = 0;
};

inline void EnergyAccumulator::run(KernelId kernel, ClockPoint applied, Seconds share,
                                   bool in_row) {
    facts_.of(kernel).applied.add(applied, std::chrono::duration_cast<Duration>(share));
    if (!in_row) return;
    auto column = columns_.find(kernel, applied);
    if (!column && rows_.columns() < settings_.most_columns) {
        column = rows_.add_column();
        columns_.insert(kernel, applied, *column);
    }
    if (column) {
        rows_.add(*column, share.count());
    } else {
        row_overflowed_ = true;
    }
}

inline void EnergyAccumulator::end_row(double joules, Seconds time, bool metered) {
    if (!metered) {
        outside_joules_ += joules;
        break_row();
        return;
    }
    counter_joules_ += joules;
    counted_seconds_ += time.count();
    if (row_overflowed_) {
        ++overflowed_rows_;
        break_row();
        return;
    }
    // Noise that is white in power grows a row's variance with its length.
    rows_.finish_row(joules, 1 / time.count());
}

inline void EnergyAccumulator::break_row() {
    rows_.discard_row();
    row_overflowed_ = false;
}

inline void EnergyAccumulator::measured_directly(KernelId kernel, ClockPoint applied,
                                                 CountedJoules counted) {
    const auto column = columns_.find(kernel, applied);
    if (!column) return;
    if (direct_.size() <= *column) direct_.resize(*column + 1);
    direct_[*column] += counted;
}

inline EnergySums EnergyAccumulator::sums() const {
    JudgedRows judged = rows_.judged();
    return {.equations = std::move(judged.equations),
            .refused_seconds = std::move(judged.refused_seconds),
            .columns = columns_,
            .direct = direct_,
            .counter_period = settings_.counter_period,
            .counter = {counter_joules_},
            .outside = {outside_joules_},
            .counted_time = Seconds{counted_seconds_},
            .squares = judged.squares,
            .refused_rows = judged.refused,
            .overflowed_rows = overflowed_rows_,
            .late = join_.late(),
            .overflows = join_.overflows()};
}

inline void EnergyAccumulator::fill(Report& report) const {
    report.rows.clear();
    for (const KernelId kernel : facts_.seen()) {
        ReportRow& row = report.rows.emplace_back();
        row.kernel = kernels_->key(kernel);
        facts_.at(kernel).fill(row);
    }
    ReportFiller{*kernels_, sums(), settings_.widest_resolved}.fill(report, facts_.seen());
}

}  // namespace kdvfs::measure
