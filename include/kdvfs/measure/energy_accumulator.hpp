// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/kernel_interval.hpp>
#include <kdvfs/measure/energy_counter.hpp>
#include <kdvfs/measure/kernel_columns.hpp>
#include <kdvfs/measure/kernel_facts.hpp>
#include <kdvfs/measure/kernel_table.hpp>
#include <kdvfs/measure/normal_equations.hpp>
#include <kdvfs/measure/report.hpp>
#include <kdvfs/measure/sample_join.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
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
    double widest_told = 0.10;        ///< a half-width beyond this share is `too_short_to_tell`
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
          join_{settings.capacity, settings.counter_period > Duration::zero()
                                       ? 20 * settings.counter_period
                                       : Duration::max()} {
        idle_column_ = equations_.add_column();
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
    /// From `at` on the device held these caps. In order of time.
    void clocks_applied(TimePoint at, ClockPoint applied) { join_.clocks_applied(at, applied); }
    /// From `at` on every scope is metered, or not. In order of time; metered at the start.
    /// Joules of unmetered time are kept apart (`EnergyTotals::outside`).
    void metering(TimePoint at, bool on) { join_.metering(at, on); }
    /// Promises that every interval which began before `until` has been added, and every sample
    /// and change; joins them up to there.
    void advance(TimePoint until) { join_.advance(until, *this); }

    /// Fills rows, groups and totals, and appends notes; leaves the rest of the report alone.
    void fill(Report& report) const;

    /// The sums so far, for other solvers; column 0 is idle.
    [[nodiscard]] const NormalEquations& equations() const { return equations_; }

private:
    friend class SampleJoin;  // the sink's half
    void run(KernelId kernel, ClockPoint applied, Seconds share, bool in_row);
    void idle(Seconds time) { equations_.add(idle_column_, time.count()); }
    void end_row(double joules, Seconds time, bool metered);
    void break_row();
    void measured_directly(KernelId kernel, ClockPoint applied, CountedJoules counted);

    struct Solved {
        LeastSquares squares;
        Watts mean_power;
        double student;
    };
    [[nodiscard]] std::optional<Solved> solve() const;
    [[nodiscard]] EnergyEstimate estimate(const Solved& solved, const std::vector<double>& seconds,
                                          double widest_told) const;
    [[nodiscard]] std::vector<double> seconds_of(KernelId kernel) const;
    [[nodiscard]] ReportRow row(KernelId kernel, const std::optional<Solved>& solved) const;
    void add_direct(ReportRow& row, KernelId kernel, const Solved& solved) const;
    void add_groups(Report& report, const Solved& solved) const;
    void add_totals(Report& report, const std::optional<Solved>& solved) const;
    void add_notes(Report& report, const std::optional<Solved>& solved) const;

    const KernelTable* kernels_;
    AccumulatorSettings settings_;
    SampleJoin join_;
    NormalEquations equations_;
    KernelColumns columns_;
    FactsByKernel facts_;
    std::size_t idle_column_ = 0;
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
    if (!column && equations_.columns() < settings_.most_columns) {
        column = equations_.add_column();
        columns_.insert(kernel, applied, *column);
    }
    if (column) {
        equations_.add(*column, share.count());
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
    equations_.finish_row(joules, 1 / time.count());
}

inline void EnergyAccumulator::break_row() {
    equations_.discard_row();
    row_overflowed_ = false;
}

inline void EnergyAccumulator::measured_directly(KernelId kernel, ClockPoint applied,
                                                 CountedJoules counted) {
    const auto column = columns_.find(kernel, applied);
    if (!column) return;
    if (direct_.size() <= *column) direct_.resize(*column + 1);
    direct_[*column] += counted;
}

inline std::optional<EnergyAccumulator::Solved> EnergyAccumulator::solve() const {
    constexpr std::size_t fewest_degrees = 3;
    LeastSquares squares = equations_.solve();
    const std::size_t degrees = squares.degrees_of_freedom();
    if (degrees < fewest_degrees) return {};
    return Solved{std::move(squares), Watts{counter_joules_ / counted_seconds_},
                  student_95(degrees)};
}

/// Energy of a sum of columns. What the rows leave open is added to the half-width at the mean
/// power, as long as it is a sliver (a clock that a kernel met for a moment); beyond that the sum
/// cannot be told.
inline EnergyEstimate EnergyAccumulator::estimate(const Solved& solved,
                                                  const std::vector<double>& seconds,
                                                  double widest_told) const {
    constexpr double sliver = 0.02;
    const Combination sum = solved.squares.combine(seconds);
    const double open = sum.open_seconds * solved.mean_power.count;
    const double half_width = solved.student * sum.standard_error + open;
    const bool told =
        sum.joules > 0 && open <= sliver * sum.joules && half_width <= widest_told * sum.joules;
    return told ? EnergyEstimate{{sum.joules}, {half_width}, true} : EnergyEstimate{};
}

inline std::vector<double> EnergyAccumulator::seconds_of(KernelId kernel) const {
    std::vector<double> seconds(equations_.columns());
    for (const auto& [applied, column] : columns_.of(kernel)) {
        seconds[column] = equations_.time(column);
    }
    return seconds;
}

inline ReportRow EnergyAccumulator::row(KernelId kernel,
                                        const std::optional<Solved>& solved) const {
    ReportRow row;
    row.kernel = kernels_->key(kernel);
    facts_.at(kernel).fill(row);
    const std::vector<double> seconds = seconds_of(kernel);
    row.counted_time = Seconds{std::accumulate(seconds.begin(), seconds.end(), 0.0)};
    if (solved && row.counted_time > Seconds{0}) {
        row.energy = estimate(*solved, seconds, settings_.widest_told);
        add_direct(row, kernel, *solved);
    }
    return row;
}

/// Sets the interpolated difference of long scopes beside the attributed power of the same columns.
inline void EnergyAccumulator::add_direct(ReportRow& row, KernelId kernel,
                                          const Solved& solved) const {
    CountedJoules direct;
    std::vector<double> seconds(equations_.columns());
    for (const auto& [applied, column] : columns_.of(kernel)) {
        if (column >= direct_.size()) continue;
        seconds[column] = direct_[column].time.count();
        direct += direct_[column];
    }
    if (direct.runs == 0) return;
    row.direct_power = Watts{direct.joules / direct.time.count()};
    const EnergyEstimate attributed = estimate(solved, seconds, settings_.widest_told);
    if (!attributed.told) return;
    // Within a counter period the counter is taken to grow evenly. A step of the power at a part u
    // of the period then errs by u (1 - u) of period times step: at either end of a run at most a
    // quarter, always to the same side, and the step is at most the power itself.
    const double interpolation = 0.5 * Seconds{settings_.counter_period}.count() *
                                 row.direct_power->count * static_cast<double>(direct.runs);
    row.direct_disagrees = std::abs(direct.joules - attributed.joules.count) >
                           attributed.half_width.count + interpolation;
}

/// Lists kernels that cannot be told one by one because they share a mix with others.
inline void EnergyAccumulator::add_groups(Report& report, const Solved& solved) const {
    for (const std::vector<std::size_t>& mix : columns_.mixes(solved.squares)) {
        KernelGroup group;
        std::vector<double> seconds(equations_.columns());
        for (const std::size_t column : mix) {
            seconds[column] = equations_.time(column);
            if (column == idle_column_) {
                group.with_idle = true;
                continue;
            }
            const KernelKey& key = kernels_->key(columns_.kernel(column));
            if (std::find(group.kernels.begin(), group.kernels.end(), key) == group.kernels.end()) {
                group.kernels.push_back(key);
            }
        }
        const bool open = std::any_of(report.rows.begin(), report.rows.end(), [&](auto& row) {
            return !row.energy.told &&
                   std::count(group.kernels.begin(), group.kernels.end(), row.kernel) > 0;
        });
        if (!open || group.kernels.size() + (group.with_idle ? 1 : 0) < 2) continue;
        group.energy = estimate(solved, seconds, 1.0);
        report.groups.push_back(std::move(group));
    }
}

inline void EnergyAccumulator::add_totals(Report& report,
                                          const std::optional<Solved>& solved) const {
    EnergyTotals& totals = report.totals;
    totals = {};
    totals.counter = {counter_joules_};
    totals.outside = {outside_joules_};
    totals.counted_time = Seconds{counted_seconds_};
    totals.idle_time = Seconds{equations_.time(idle_column_)};
    totals.unexplained = totals.counter;
    if (!solved) return;
    std::vector<double> kernels(equations_.columns());
    std::vector<double> idle(equations_.columns());
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        (i == idle_column_ ? idle : kernels)[i] = equations_.time(i);
    }
    constexpr double any_width = std::numeric_limits<double>::infinity();
    totals.kernels = estimate(*solved, kernels, any_width);
    totals.idle = estimate(*solved, idle, any_width);
    if (!totals.kernels.told) {
        // Kernels and idle always ran in one mix: together they can still be told.
        kernels[idle_column_] = idle[idle_column_];
        totals.idle = {};
        totals.kernels = estimate(*solved, kernels, any_width);
        if (totals.kernels.told) {
            report.notes.emplace_back(
                "idle time always ran in the same mix with kernels: its energy is among theirs");
        }
    }
    totals.unexplained = totals.counter - totals.kernels.joules - totals.idle.joules;
}

inline void EnergyAccumulator::add_notes(Report& report,
                                         const std::optional<Solved>& solved) const {
    if (!solved) report.notes.emplace_back("too few counter samples to attribute any energy");
    if (join_.late() > 0) {
        report.notes.push_back(std::to_string(join_.late()) +
                               " intervals or samples came too late and were not attributed");
    }
    if (join_.overflows() > 0) {
        report.notes.push_back("buffers were full " + std::to_string(join_.overflows()) +
                               " times: some energy may be with the wrong kernel");
    }
    if (overflowed_rows_ > 0) {
        report.notes.push_back(
            std::to_string(overflowed_rows_) + " counter intervals have kernels beyond the first " +
            std::to_string(settings_.most_columns) + " (kernel, clock) pairs: unexplained");
    }
    for (const ReportRow& row : report.rows) {
        if (!row.direct_disagrees) continue;
        report.notes.push_back(to_string(row.kernel) +
                               ": attributed energy and counter difference disagree");
    }
}

inline void EnergyAccumulator::fill(Report& report) const {
    const std::optional<Solved> solved = solve();
    report.rows.clear();
    report.groups.clear();
    for (const KernelId kernel : facts_.seen()) report.rows.push_back(row(kernel, solved));
    if (solved) add_groups(report, *solved);
    add_totals(report, solved);
    add_notes(report, solved);
}

}  // namespace kdvfs::measure
