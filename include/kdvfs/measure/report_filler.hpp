// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/energy_sums.hpp>
#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/measure/least_squares.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/report.hpp>

#include <gsl/assert>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// Solves the sums by plain least squares and writes the energies into a report.
class ReportFiller {
public:
    /// `kernels` must outlive the filler. A half-width beyond the share `widest_resolved` is not
    /// told.
    ReportFiller(const KernelTable& kernels, EnergySums sums, double widest_resolved)
        : kernels_{&kernels},
          sums_{std::move(sums)},
          squares_{sums_.equations.solve()},
          widest_told_{widest_resolved} {}

    /// Fills energies into the report's rows, which belong to `ids` one by one, and groups and
    /// totals; appends notes.
    void fill(Report& report, std::span<const KernelId> ids) const;

private:
    static constexpr std::size_t fewest_degrees = 3;
    static constexpr double any_width = std::numeric_limits<double>::infinity();

    [[nodiscard]] bool solved() const { return squares_.degrees_of_freedom() >= fewest_degrees; }
    [[nodiscard]] EnergyEstimate estimate(const std::vector<double>& seconds,
                                          double widest_resolved) const;
    void add_energy(ReportRow& row, KernelId kernel) const;
    void add_direct(ReportRow& row, KernelId kernel) const;
    void add_groups(Report& report) const;
    void add_totals(Report& report) const;
    void add_notes(Report& report) const;

    const KernelTable* kernels_;
    EnergySums sums_;
    LeastSquares squares_;
    double widest_told_;
};

inline void ReportFiller::fill(Report& report, std::span<const KernelId> ids) const {
    Expects(ids.size() == report.rows.size());
    for (std::size_t i = 0; i < ids.size(); ++i) add_energy(report.rows[i], ids[i]);
    report.groups.clear();
    if (solved()) add_groups(report);
    add_totals(report);
    add_notes(report);
}

/// Energy of a sum of columns. What the rows leave open is added to the half-width at the mean
/// power, as long as it is a sliver (a clock that a kernel met for a moment); beyond that the sum
/// cannot be told.
inline EnergyEstimate ReportFiller::estimate(const std::vector<double>& seconds,
                                             double widest_resolved) const {
    constexpr double sliver = 0.02;
    const Combination sum = squares_.combine(seconds);
    const double open = sum.open_seconds * sums_.mean_power().count;
    const double half_width = student_95(squares_.degrees_of_freedom()) * sum.standard_error + open;
    const bool told =
        sum.joules > 0 && open <= sliver * sum.joules && half_width <= widest_resolved * sum.joules;
    return told ? EnergyEstimate{{sum.joules}, {half_width}, true} : EnergyEstimate{};
}

inline void ReportFiller::add_energy(ReportRow& row, KernelId kernel) const {
    const std::vector<double> seconds = sums_.seconds_of(kernel);
    row.counted_time = Seconds{std::accumulate(seconds.begin(), seconds.end(), 0.0)};
    if (!solved() || row.counted_time <= Seconds{0}) return;
    row.energy = estimate(seconds, widest_told_);
    add_direct(row, kernel);
}

/// Sets the interpolated difference of long scopes beside the attributed power of the same columns.
inline void ReportFiller::add_direct(ReportRow& row, KernelId kernel) const {
    CountedJoules direct;
    std::vector<double> seconds(sums_.equations.columns());
    for (const auto& [applied, column] : sums_.columns.of(kernel)) {
        if (column >= sums_.direct.size()) continue;
        seconds[column] = sums_.direct[column].time.count();
        direct += sums_.direct[column];
    }
    if (direct.runs == 0) return;
    row.direct_power = Watts{direct.joules / direct.time.count()};
    const EnergyEstimate attributed = estimate(seconds, widest_told_);
    if (!attributed.resolved) return;
    // Within a counter period the counter is taken to grow evenly. A step of the power at a part u
    // of the period then errs by u (1 - u) of period times step: at either end of a run at most a
    // quarter, always to the same side, and the step is at most the power itself.
    const double interpolation = 0.5 * Seconds{sums_.counter_period}.count() *
                                 row.direct_power->count * static_cast<double>(direct.runs);
    row.direct_disagrees = std::abs(direct.joules - attributed.joules.count) >
                           attributed.half_width.count + interpolation;
}

/// Lists kernels that cannot be told one by one because they share a mix with others.
inline void ReportFiller::add_groups(Report& report) const {
    for (const std::vector<std::size_t>& mix : sums_.columns.mixes(squares_)) {
        KernelGroup group;
        std::vector<double> seconds(sums_.equations.columns());
        for (const std::size_t column : mix) {
            seconds[column] = sums_.seconds(column);
            if (column == EnergySums::idle_column) {
                group.with_idle = true;
                continue;
            }
            const KernelKey& key = kernels_->key(sums_.columns.kernel(column));
            if (std::find(group.kernels.begin(), group.kernels.end(), key) == group.kernels.end()) {
                group.kernels.push_back(key);
            }
        }
        const bool open = std::any_of(report.rows.begin(), report.rows.end(), [&](auto& row) {
            return !row.energy.resolved &&
                   std::count(group.kernels.begin(), group.kernels.end(), row.kernel) > 0;
        });
        if (!open || group.kernels.size() + (group.with_idle ? 1 : 0) < 2) continue;
        group.energy = estimate(seconds, any_width);
        report.groups.push_back(std::move(group));
    }
}

inline void ReportFiller::add_totals(Report& report) const {
    EnergyTotals& totals = report.totals;
    totals = {};
    totals.counter = sums_.counter;
    totals.outside = sums_.outside;
    totals.counted_time = sums_.counted_time;
    totals.idle_time = Seconds{sums_.seconds(EnergySums::idle_column)};
    totals.unexplained = totals.counter;
    if (!solved()) return;
    std::vector<double> kernels(sums_.equations.columns());
    for (std::size_t i = 0; i < kernels.size(); ++i) kernels[i] = sums_.seconds(i);
    std::vector<double> idle(kernels.size());
    std::swap(idle[EnergySums::idle_column], kernels[EnergySums::idle_column]);
    totals.kernels = estimate(kernels, any_width);
    totals.idle = estimate(idle, any_width);
    if (!totals.kernels.resolved) {
        // Kernels and idle always ran in one mix: together they can still be told.
        kernels[EnergySums::idle_column] = idle[EnergySums::idle_column];
        totals.idle = {};
        totals.kernels = estimate(kernels, any_width);
        if (totals.kernels.resolved) {
            report.notes.emplace_back(
                "idle time always ran in the same mix with kernels: its energy is among theirs");
        }
    }
    totals.unexplained = totals.counter - totals.kernels.joules - totals.idle.joules;
}

inline void ReportFiller::add_notes(Report& report) const {
    const auto note = [&](std::uint64_t count, const char* what) {
        if (count > 0) report.notes.push_back(std::to_string(count) + what);
    };
    if (!solved()) report.notes.emplace_back("too few counter samples to attribute any energy");
    note(sums_.late,
         " intervals or samples came too late, or were no numbers, and were not attributed");
    note(sums_.overflows, " times the buffers were full: energy may be with the wrong kernel");
    note(sums_.overflowed_rows,
         " counter intervals have more (kernel, clock) pairs than are told apart: unexplained");
    note(sums_.refused_rows, " counter intervals contradict all others: unexplained");
    for (const ReportRow& row : report.rows) {
        if (!row.direct_disagrees) continue;
        report.notes.push_back(to_string(row.kernel) +
                               ": attributed energy and counter difference disagree");
    }
}

}  // namespace kdvfs::measure
