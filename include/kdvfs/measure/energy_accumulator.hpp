// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/energy_counter.hpp>
#include <kdvfs/measure/energy_levels.hpp>
#include <kdvfs/measure/energy_sums.hpp>
#include <kdvfs/measure/kernel_facts.hpp>
#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/power_windows.hpp>
#include <kdvfs/measure/report_filler.hpp>
#include <kdvfs/measure/row_fit.hpp>
#include <kdvfs/measure/sample_join.hpp>
#include <kdvfs/report.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// How intervals and samples become energies.
struct AccumulatorSettings {
    Duration counter_period{0};       ///< of the device's counter; 0 where unknown
    std::size_t capacity = 1 << 16;   ///< intervals, and samples, that may wait for each other
    std::size_t most_columns = 1024;  ///< (kernel, clock) pairs told apart; later ones are not
    double widest_resolved = 0.10;    ///< a half-width beyond this share is `too_short_to_tell`
    /// More is no power of a board: the reading is refused.
    Watts highest_power = CounterLimits{}.highest_power;
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
          join_{settings.capacity, direct_from(settings.counter_period)},
          windows_{settings.highest_power} {
        add_column();  // EnergySums::idle_column
    }

    /// One metered scope. Intervals of one or several lanes, in any order.
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
    /// The next sample of a power meter, in order of time, where joules are taken from one and not
    /// from a counter.
    void add(const PowerSample& sample) {
        by_power_ = true;
        for (const EnergySample& end : windows_.take(sample)) add(end);
    }
    /// From `at` on the device held these caps. In order of time.
    void clocks_applied(TimePoint at, ClockPoint applied) { join_.clocks_applied(at, applied); }
    /// From `at` on every scope is metered, or not. In order of time; metered at the start.
    /// Joules of unmetered time are kept apart (`EnergyTotals::outside`).
    void metering(TimePoint at, bool on) { join_.metering(at, on); }
    /// What iterations do at `at`. In order of time.
    void iteration(TimePoint at, IterationMark mark) { join_.iteration(at, mark); }
    /// Intervals at the next place, counted from 1, lie directly in a scope of `enclosing` at
    /// `parent`.
    void add_place(std::uint32_t parent, KernelId enclosing) {
        levels_.add_place(parent, enclosing);
    }
    /// What a kernel drew while it was repeated under a clock: what its power is expected to be
    /// near.
    void add_repeated(KernelId kernel, ClockPoint applied, const RepeatedFigure& figure) {
        repeated_.push_back({kernel, applied, figure});
    }
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
    static constexpr std::size_t nowhere = ~std::size_t{0};

    static Duration direct_from(Duration period) {
        constexpr int periods = 20;  // so that an error of a period at each end is 5 % at most
        return period > Duration::zero() ? periods * period : Duration::max();
    }

    friend class SampleJoin;  // the sink's half
    void run(KernelId kernel, ClockPoint applied, std::uint32_t place, Seconds share, bool in_row);
    void idle(Seconds time, bool in_row) {
        levels_.idle(EnergySums::idle_column, time.count(), in_row);
        if (in_row) add_time(EnergySums::idle_column, time.count());
    }
    void scope_ended(KernelId kernel) {
        if (levels_.any()) levels_.end_run(kernel);
    }
    void mark_iteration(IterationMark mark) { levels_.mark_iteration(mark); }
    void end_row(double joules, Seconds time, bool metered);
    void break_row(bool impossible);
    void measured_directly(KernelId kernel, ClockPoint applied, CountedJoules counted);

    std::size_t add_column();
    void add_time(std::size_t column, double seconds);
    void discard_row();
    void fit_if_full();
    [[nodiscard]] std::vector<double> column_edges() const;
    [[nodiscard]] std::vector<PowerBelief> beliefs() const;
    void note_unrepeated(Report& report) const;

    const KernelTable* kernels_;
    AccumulatorSettings settings_;
    SampleJoin join_;
    PowerWindows windows_;
    bool by_power_ = false;
    RowSums sums_;                       // of rows that were fitted
    PowerRows waiting_;                  // for the fit
    std::vector<PowerRows::Entry> row_;  // under construction, in seconds
    std::vector<std::size_t> place_;     // of a column in it
    std::vector<double> column_seconds_;
    KernelColumns columns_;
    struct Repeated {
        KernelId kernel;
        ClockPoint applied;
        RepeatedFigure figure;
    };
    std::vector<Repeated> repeated_;
    EnergyLevels levels_;
    FactsByKernel facts_;
    std::vector<CountedJoules> direct_;  // by column

    bool row_overflowed_ = false;
    bool follows_ = false;  // the next row begins where the last one ended
    std::uint64_t row_count_ = 0;
    std::uint64_t refused_rows_ = 0;
    double counter_joules_ = 0;
    double outside_joules_ = 0;
    double counted_seconds_ = 0;
    std::uint64_t overflowed_rows_ = 0;
};

inline void EnergyAccumulator::run(KernelId kernel, ClockPoint applied, std::uint32_t place,
                                   Seconds share, bool in_row) {
    facts_.of(kernel).applied.add(applied, std::chrono::duration_cast<Duration>(share));
    auto column = columns_.find(kernel, applied);
    if (!column && (in_row || levels_.any()) && place_.size() < settings_.most_columns) {
        column = add_column();
        columns_.insert(kernel, applied, *column);
    }
    if (!column) {
        row_overflowed_ = row_overflowed_ || in_row;
        return;
    }
    if (levels_.any()) levels_.run(kernel, place, *column, share.count(), in_row);
    if (in_row) add_time(*column, share.count());
}

inline std::size_t EnergyAccumulator::add_column() {
    sums_.add_column();
    column_seconds_.push_back(0);
    place_.push_back(nowhere);
    return place_.size() - 1;
}

inline void EnergyAccumulator::add_time(std::size_t column, double seconds) {
    if (seconds <= 0) return;
    std::size_t& place = place_[column];
    if (place == nowhere) {
        place = row_.size();
        row_.push_back({column, 0});
    }
    row_[place].share += seconds;
}

inline void EnergyAccumulator::end_row(double joules, Seconds time, bool metered) {
    if (!metered) {
        outside_joules_ += joules;
        break_row(false);
        return;
    }
    if (joules > settings_.highest_power.count * time.count()) {
        break_row(true);
        return;
    }
    counter_joules_ += joules;
    counted_seconds_ += time.count();
    if (row_overflowed_ || row_.empty()) {
        overflowed_rows_ += row_overflowed_ ? 1 : 0;
        break_row(false);
        return;
    }
    for (const auto& [column, seconds] : row_) column_seconds_[column] += seconds;
    waiting_.push(row_, joules, follows_);
    ++row_count_;
    discard_row();
    follows_ = true;
    fit_if_full();
}

inline void EnergyAccumulator::break_row(bool impossible) {
    refused_rows_ += impossible ? 1 : 0;
    discard_row();
    follows_ = false;
}

inline void EnergyAccumulator::discard_row() {
    for (const PowerRows::Entry& entry : row_) place_[entry.column] = nowhere;
    row_.clear();
    row_overflowed_ = false;
}

/// Many rows at a time: enough to know the noise by, and to share the cost of solving.
inline void EnergyAccumulator::fit_if_full() {
    constexpr std::size_t fewest = 4096;
    if (waiting_.size() < std::max(fewest, 8 * place_.size())) return;
    RowFit{waiting_, sums_}.add_to(sums_);
    waiting_.clear();
}

inline void EnergyAccumulator::measured_directly(KernelId kernel, ClockPoint applied,
                                                 CountedJoules counted) {
    const auto column = columns_.find(kernel, applied);
    if (!column) return;
    if (direct_.size() <= *column) direct_.resize(*column + 1);
    direct_[*column] += counted;
}

inline std::vector<double> EnergyAccumulator::column_edges() const {
    // A marker takes 0.9 to 2.1 us of its stream (HARDWARE tables: H100, H200).
    constexpr double marker = 2e-6;
    std::vector<double> edges(column_seconds_.size());
    for (const KernelId kernel : columns_.kernels()) {
        const KernelFacts& facts = facts_.at(kernel);
        const double share = marker * static_cast<double>(facts.metered_calls) /
                             std::max(Seconds{facts.time}.count(), 1e-12);
        for (const auto& [applied, column] : columns_.of(kernel)) {
            edges[column] = std::min(share, 1.0) * column_seconds_[column];
        }
    }
    return edges;
}

inline std::vector<PowerBelief> EnergyAccumulator::beliefs() const {
    constexpr double half_widths = 1.96;  // a deviation's in a 95 % interval
    std::vector<PowerBelief> beliefs(repeated_.empty() ? 0 : column_seconds_.size());
    for (const auto& [kernel, applied, figure] : repeated_) {
        const auto column = columns_.find(kernel, applied);
        if (!column) continue;
        const double least = 1e-6 * figure.power.count;  // 0 would say that nothing is known
        beliefs[*column] = {figure.power.count,
                            std::max(figure.half_width.count / half_widths, least)};
    }
    return beliefs;
}

inline void EnergyAccumulator::note_unrepeated(Report& report) const {
    std::string names;
    for (const ReportRow& row : report.rows) {
        if (!row.repeated && row.metered_calls > 0) names += ' ' + to_string(row.kernel);
    }
    if (repeated_.empty() || names.empty()) return;
    report.notes.push_back("not repeated, for they are plain scopes or marked as `runs_once`:" +
                           names);
}

inline EnergySums EnergyAccumulator::sums() const {
    RowSums rows = sums_;
    RowFit{waiting_, sums_}.add_to(rows);
    return {.rows = std::move(rows),
            .columns = columns_,
            .column_seconds = column_seconds_,
            .column_edges = column_edges(),
            .repeated = beliefs(),
            .direct = direct_,
            .counter_period = settings_.counter_period,
            .counter = {counter_joules_},
            .outside = {outside_joules_},
            .counted_time = Seconds{counted_seconds_},
            .row_count = row_count_,
            .by_power = by_power_,
            .refused_rows = refused_rows_ + windows_.implausible(),
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
        for (const Repeated& known : repeated_) {
            if (known.kernel == kernel) row.repeated = known.figure;
        }
    }
    const ReportFiller filler{*kernels_, sums(), settings_.widest_resolved};
    filler.fill(report, facts_.seen());
    note_unrepeated(report);
    report.levels.clear();
    for (LevelTime& level : levels_.levels()) {
        report.levels.push_back(filler.level(std::move(level)));
    }
    std::stable_sort(report.levels.begin(), report.levels.end(), [](const auto& a, const auto& b) {
        return a.iteration != b.iteration ? a.iteration : a.counted_time > b.counted_time;
    });
}

}  // namespace kdvfs::measure
