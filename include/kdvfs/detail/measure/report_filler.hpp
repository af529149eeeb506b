// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/measure/attribution.hpp>
#include <kdvfs/detail/measure/counted_loop.hpp>
#include <kdvfs/detail/measure/energy_sums.hpp>
#include <kdvfs/detail/measure/held_clocks.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/measure/sensor_finding.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <gsl/assert>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// How long each of a few values held. Allocates only for a value it has not seen.
template <class Value>
class TimeShares {
public:
    void add(const Value& value, Duration time) {
        total_ += time;
        for (auto& [known, held] : shares_) {
            if (known == value) {
                held += time;
                return;
            }
        }
        shares_.emplace_back(value, time);
    }

    [[nodiscard]] Duration total() const { return total_; }

    /// The value that held longest; a default value where there is none.
    [[nodiscard]] Value longest() const {
        const auto it = std::max_element(shares_.begin(), shares_.end(),
                                         [](auto& a, auto& b) { return a.second < b.second; });
        return it == shares_.end() ? Value{} : it->first;
    }

    /// All of them.
    [[nodiscard]] std::vector<std::pair<Value, Duration>> ascending() const {
        auto sorted = shares_;
        std::sort(sorted.begin(), sorted.end());
        return sorted;
    }

    /// The value in the middle of the time; a default value where there is none.
    [[nodiscard]] Value median() const {
        Duration passed{0};
        for (const auto& [value, time] : ascending()) {
            passed += time;
            if (2 * passed >= total_) return value;
        }
        return {};
    }

    /// The share of the time, 0 to 1, in which `accept(value)` held.
    template <class Accept>
    [[nodiscard]] double share(Accept accept) const {
        Duration accepted{0};
        for (const auto& [value, time] : shares_) {
            if (accept(value)) accepted += time;
        }
        return total_ > Duration::zero() ? Seconds{accepted} / Seconds{total_} : 0;
    }

private:
    std::vector<std::pair<Value, Duration>> shares_;
    Duration total_{0};
};

/// Of the 95 % interval of a mean time; 0 where it is not known.
inline Seconds half_width(const Batches<double>& times) {
    const double error = times.standard_error();
    return Seconds{error > 0 ? student_95(static_cast<double>(times.sums().size() - 1)) * error
                             : 0};
}

/// What is known of a kernel without any energy.
struct KernelFacts {
    std::uint64_t calls = 0;
    std::uint64_t metered_calls = 0;
    Duration time{0};
    Batches<double> call_seconds;  ///< of metered calls
    Duration of_call{0};           ///< of the call that has not ended
    TimeShares<ClockPoint> asked;
    TimeShares<ClockPoint> applied;
    TimeShares<Megahertz> held;  ///< in steps of 5 MHz, so that noise needs no more memory

    Duration judged{0};    ///< time whose clocks are known,
    Duration as_asked{0};  ///< and of it, at those that were asked for

    void add(const KernelInterval& interval, const HeldParts& clocks) {
        const Duration length = interval.end - interval.start;
        of_call += length;
        if (interval.ends_scope) {
            const Seconds call{std::exchange(of_call, Duration{0})};
            ++calls;
            if (interval.whole) {
                ++metered_calls;
                call_seconds.add(call.count());
            }
        }
        time += length;
        asked.add(interval.asked, length);
        for (const HeldParts::Part& part : clocks.all()) {
            held.add({(part.clock.count + 2) / 5 * 5}, part.time);
        }
        if (clocks.count == 0) return;
        judged += length;
        as_asked += clocks.as_asked;
    }

    [[nodiscard]] std::vector<ClockShare> clock_shares() const;

    void fill(ReportRow& row) const {
        row.calls = calls;
        row.metered_calls = metered_calls;
        row.time = time;
        row.call_time_half_width = half_width(call_seconds);
        row.asked = asked.longest();
        row.applied = applied.longest();
        if (applied.total() > Duration::zero()) {
            row.asked_share = applied.share([&](ClockPoint point) { return point == row.asked; });
        }
        // What ran is better evidence than what was written; of the memory's clock there is none.
        if (2 * judged > time) {
            const double ran = Seconds{as_asked} / Seconds{judged};
            row.asked_share = row.asked.memory == auto_clock ? ran : std::min(ran, row.asked_share);
        }
        row.held_clocks = clock_shares();
        row.held = held.median();
        row.held_share = held.share([&](Megahertz clock) {
            const auto distance =
                std::abs(std::int64_t{clock.count} - std::int64_t{row.held.count});
            return distance * 50 <= row.held.count;
        });
    }
};

/// Clocks within 2 % of one another are one: that of most time among them.
inline std::vector<ClockShare> KernelFacts::clock_shares() const {
    std::vector<ClockShare> shares;
    std::uint32_t from = 0;
    double most = 0;
    for (const auto& [clock, held_for] : held.ascending()) {
        const double share = Seconds{held_for} / Seconds{held.total()};
        if (shares.empty() || clock.count * 50 > from * 51) {
            shares.push_back({clock, 0});
            from = clock.count;
            most = 0;
        }
        shares.back().share += share;
        if (share > most) shares.back().clock = clock;
        most = std::max(most, share);
    }
    std::stable_sort(shares.begin(), shares.end(),
                     [](const auto& a, const auto& b) { return a.share > b.share; });
    return shares;
}

/// Facts by kernel number; grows with the numbers, never per call.
class FactsByKernel {
public:
    KernelFacts& of(KernelId kernel) {
        if (facts_.size() <= kernel.value) facts_.resize(kernel.value + std::size_t{1});
        return facts_[kernel.value];
    }
    [[nodiscard]] const KernelFacts& at(KernelId kernel) const {
        Expects(kernel.value < facts_.size());
        return facts_[kernel.value];
    }
    /// Calls that have not ended will not.
    void forget_open() {
        for (KernelFacts& facts : facts_) facts.of_call = Duration{0};
    }
    /// Kernels with at least one call.
    [[nodiscard]] std::vector<KernelId> seen() const {
        std::vector<KernelId> kernels;
        for (std::uint32_t i = 0; i < facts_.size(); ++i) {
            if (facts_[i].calls > 0) kernels.push_back({i});
        }
        return kernels;
    }

private:
    std::vector<KernelFacts> facts_;
};

/// Attributes the sums' joules and writes them into a report, with what a reader must not miss.
class ReportFiller {
public:
    /// `kernels` must outlive the filler. A half-width beyond the share `widest_resolved` is not
    /// resolved.
    ReportFiller(const KernelTable& kernels, EnergySums sums, double widest_resolved)
        : kernels_{&kernels},
          sums_{std::move(sums)},
          attributing_{sums_, {widest_resolved}},
          found_{attributing_.result()} {}
    ReportFiller(const ReportFiller&) = delete;
    ReportFiller& operator=(const ReportFiller&) = delete;

    /// Fills energies into the report's rows, which belong to `ids` one by one, and groups, totals
    /// and the fit; appends notes.
    void fill(Report& report, std::span<const KernelId> ids) const;
    /// What a level drew. The joules of all that ran in it, whose errors may cancel: they are told
    /// where those of its kernels are not.
    [[nodiscard]] EnergyLevel level(LevelTime time) const;
    /// Says so where metered iterations are not like all that the counter counted.
    void compare(Report& report, const EnergyLevel& iteration, const CountedLoop& loop) const;

private:
    void add_energy(ReportRow& row, KernelId kernel) const;
    void add_direct(ReportRow& row, KernelId kernel) const;
    void add_covariance(Report& report, std::span<const KernelId> ids) const;
    void add_pool(Report& report, std::span<const KernelId> ids) const;
    void add_notes(Report& report) const;
    void add_alarms(Report& report) const;
    void add_impossible(Report& report) const;
    void add_outside_load(Report& report) const;

    const KernelTable* kernels_;
    EnergySums sums_;
    Attributing attributing_;
    Attribution found_;
};

inline void ReportFiller::fill(Report& report, std::span<const KernelId> ids) const {
    Expects(ids.size() == report.rows.size());
    for (std::size_t i = 0; i < ids.size(); ++i) add_energy(report.rows[i], ids[i]);
    report.groups.clear();
    for (const AttributedGroup& found : found_.groups) {
        KernelGroup& group = report.groups.emplace_back();
        group.with_idle = found.with_idle;
        group.energy = found.energy;
        for (const KernelId kernel : found.kernels) group.kernels.push_back(kernels_->key(kernel));
    }
    add_pool(report, ids);
    report.totals = found_.totals;
    report.fit = found_.fit;
    add_covariance(report, ids);
    add_notes(report);
    add_alarms(report);
}

inline EnergyLevel ReportFiller::level(LevelTime time) const {
    EnergyLevel level;
    level.iteration = !time.scope;
    if (time.scope) level.scope = kernels_->key(*time.scope);
    level.runs = time.runs;
    level.run_time_half_width = half_width(time.run_seconds);
    level.counted_time = Seconds{time.counted_seconds};
    time.column_seconds.resize(sums_.columns_seen());
    for (const double seconds : time.column_seconds) level.time += Seconds{seconds};
    level.energy = attributing_.energy(time);
    return level;
}

/// Time between iterations is in no metered one: it may draw as much as an idle board.
inline void ReportFiller::compare(Report& report, const EnergyLevel& iteration,
                                  const CountedLoop& loop) const {
    constexpr double alarm = 1.5;    // intervals: 0.3 % of programs whose iterations differ
    constexpr double slack = 0.01;   // of the joules
    constexpr double waiting = 0.5;  // of the mean power, at most, where it is not known
    const EnergyEstimate metered = iteration.per_run();
    const CountedLoop::Sums all = loop.sums();
    if (!metered.resolved || all.iterations == 0) return;
    const auto count = static_cast<double>(all.iterations);
    const double joules = sums_.gain * all.joules / count;
    const double own = Seconds{iteration.time}.count() / static_cast<double>(iteration.runs);
    const double between = std::max(all.time.count() / count - own, 0.0);
    const EnergyTotals& totals = report.totals;
    const double rests = totals.idle.resolved ? (totals.idle.joules / totals.idle_time).count
                                              : waiting * joules * count / all.time.count();
    const double edges = 2 * sums_.gain * loop.longest_row() / count;
    const double allowed = alarm * metered.half_width.count + slack * metered.joules.count + edges;
    const double more = joules - metered.joules.count;
    if (more > -allowed && more < allowed + rests * between) return;
    report.notes.push_back(io::format_text(
        "the metered iterations drew %.4g +- %.2g J each, but by the counter all %.0f of the loop "
        "%.4g J: they differ, or something runs between them; meter every iteration "
        "(GpuOptions::meter_every = 1, kdvfs run --meter 1)",
        metered.joules.count, metered.half_width.count, count, joules));
}

inline void ReportFiller::add_energy(ReportRow& row, KernelId kernel) const {
    const auto found = std::find_if(found_.kernels.begin(), found_.kernels.end(),
                                    [&](const auto& k) { return k.kernel == kernel; });
    if (found == found_.kernels.end()) return;
    row.counted_time = found->time;
    row.energy = found->energy;
    if (attributing_.solved() && row.counted_time > Seconds{0}) add_direct(row, kernel);
}

/// Sets the interpolated difference of long scopes beside the attributed power of the same columns.
inline void ReportFiller::add_direct(ReportRow& row, KernelId kernel) const {
    CountedJoules direct;
    std::vector<double> seconds(sums_.columns_seen());
    for (const auto& [applied, column] : sums_.columns.of(kernel)) {
        if (column >= sums_.direct.size()) continue;
        seconds[column] = sums_.direct[column].time.count();
        direct += sums_.direct[column];
    }
    if (direct.runs == 0) return;
    row.direct_power = Watts{direct.joules / direct.time.count()};
    const EnergyEstimate attributed = attributing_.energy(seconds);
    // A sensor that lags shifts the difference, not what is attributed.
    if (!attributed.resolved || !sums_.hypotheses.empty()) return;
    // Between two samples, or updates, the counter is taken to grow evenly. A step of the power at
    // a part u of that time then errs by u (1 - u) of time times step: at either end of a run at
    // most a quarter, always to the same side, and the step is at most the power itself.
    const double updates =
        2 * Seconds{sums_.counter_period}.count() * static_cast<double>(direct.runs);
    const double interpolation =
        0.25 * std::max(direct.edges.count(), updates) * row.direct_power->count;
    row.direct_disagrees = std::abs(direct.joules - attributed.joules.count) >
                           attributed.half_width.count + interpolation;
}

/// In the order of the report's rows, empty for one without a column; of a kernel without counted
/// time nothing is uncertain.
inline void ReportFiller::add_covariance(Report& report, std::span<const KernelId> ids) const {
    const auto& found = found_.fit.covariance;
    report.fit.covariance.assign(found.empty() ? 0 : ids.size() + 1, {});
    if (found.empty()) return;
    for (std::size_t i = 0; i <= ids.size(); ++i) {
        // Many may have no column: most of a square of all would be zeros.
        if (i < ids.size() && sums_.pool && sums_.columns.of(ids[i]).empty()) continue;
        report.fit.covariance[i].resize(ids.size() + 1);
    }
    std::vector<std::size_t> places;
    for (const AttributedKernel& kernel : found_.kernels) {
        const auto at = std::find(ids.begin(), ids.end(), kernel.kernel);
        places.push_back(static_cast<std::size_t>(at - ids.begin()));
    }
    places.push_back(ids.size());
    for (std::size_t a = 0; a < places.size(); ++a) {
        for (std::size_t b = 0; b < places.size(); ++b) {
            report.fit.covariance[places[a]][places[b]] = found[a][b];
        }
    }
}

/// Kernels that have too little time to be attributed one by one are a group.
inline void ReportFiller::add_pool(Report& report, std::span<const KernelId> ids) const {
    if (!sums_.pool) return;
    KernelGroup group;
    for (const KernelId kernel : ids) {
        if (sums_.is_pooled(kernel)) group.kernels.push_back(kernels_->key(kernel));
    }
    const std::vector<double> seconds = sums_.seconds_of_pool();
    group.energy = attributing_.energy(seconds);
    report.notes.push_back(io::format_text(
        "%zu kernels have too little time to be attributed one by one: together %.3g s",
        group.kernels.size(), std::accumulate(seconds.begin(), seconds.end(), 0.0)));
    if (group.energy.resolved) report.groups.push_back(std::move(group));
}

inline void ReportFiller::add_notes(Report& report) const {
    const auto note = [&](std::uint64_t count, const char* what) {
        if (count > 0) report.notes.push_back(std::to_string(count) + what);
    };
    if (!attributing_.solved()) {
        report.notes.emplace_back("too few counter samples to attribute any energy");
    } else if (!found_.totals.idle.resolved && found_.totals.idle_time > Seconds{0}) {
        report.notes.emplace_back(
            found_.totals.kernels.resolved
                ? "idle time always ran in the same mix with kernels: its energy is among theirs"
                : "idle time always ran in the same mix with kernels: only the energy of both "
                  "together is known");
    }
    note(sums_.late,
         " intervals or samples came too late, or were no numbers, and were not attributed");
    note(sums_.overflows, " times the buffers were full: energy may be with the wrong kernel");
    note(sums_.overflowed_rows,
         " counter intervals have more (kernel, clock) pairs than can be separated: unexplained");
    for (const ReportRow& row : report.rows) {
        if (!row.direct_disagrees) continue;
        report.notes.push_back(to_string(row.kernel) +
                               ": attributed energy and counter difference disagree");
    }
}

/// Which powers were refused, and why.
inline void ReportFiller::add_impossible(Report& report) const {
    constexpr std::size_t most = 4;
    if (found_.impossible.empty()) return;
    std::string note = "refused powers that the board cannot draw:";
    for (std::size_t i = 0; i < std::min(found_.impossible.size(), most); ++i) {
        const ImpossiblePower& each = found_.impossible[i];
        const std::string name = each.kernel ? to_string(kernels_->key(*each.kernel))
                                 : sums_.idle_seconds()[each.column] > 0 ? "idle"
                                                                         : "short kernels";
        note += io::format_text("%s %s at %.0f +- %.0f W", i > 0 ? "," : "", name.c_str(),
                                each.power.count, each.half_width.count);
    }
    if (found_.impossible.size() > most) {
        note += ", and " + std::to_string(found_.impossible.size() - most) + " more";
    }
    const PossiblePower& possible = sums_.possible;
    if (possible.limit > 0) {
        note += io::format_text("; it draws %.0f W at rest, its limit is %.0f W", possible.lowest,
                                possible.limit);
    }
    report.notes.push_back(
        note +
        ". Their intervals and those of kernels beside them are too narrow for something: "
        "work that no scope covers, another process, or the sensor's delay");
}

/// What draws power beside the kernels.
inline void ReportFiller::add_outside_load(Report& report) const {
    for (const UnscopedWork& each : found_.unscoped) {
        report.notes.push_back(io::format_text(
            "in gaps behind %s, together %.3g s, the board draws %.0f +- %.0f W, more "
            "than at rest: work that no scope covers; kernels beside it are not resolved",
            (each.after ? to_string(kernels_->key(*each.after)) : "other kernels").c_str(),
            each.time.count(), each.power.count, each.half_width.count));
    }
    if (sums_.hides_work) {
        report.notes.emplace_back(
            "in gaps between kernels the board draws more than at rest: work that no scope covers; "
            "no kernel is resolved");
    }
    if (sums_.uneven > SensorFinding::most_uneven) {
        report.notes.push_back(io::format_text(
            "powers change by %.0f %% inside runs, or inside gaps: %s", 100 * sums_.uneven,
            sums_.too_uneven() ? "no kernel is resolved"
                               : "intervals are wider for it, and may still be too narrow"));
    }
    if (sums_.possible.rests_too_high()) {
        report.notes.push_back(io::format_text(
            "the board draws %.0f W at rest, others of its kind at most %.0f W: something "
            "else draws power, such as another process; no kernel is resolved",
            sums_.possible.lowest, sums_.possible.kind.most.count));
    }
    if (const double hidden = sums_.possible.may_hide(); hidden > 0) {
        report.notes.push_back(io::format_text(
            "a load of up to %.0f W from outside may pass for power at rest: that is in the "
            "intervals",
            hidden));
    }
    if (!sums_.power_wanders()) return;
    report.notes.push_back(io::format_text(
        "the board's power wanders by %.0f W from second to second while the same kernels "
        "run: something else draws power, such as another process; no kernel is resolved",
        sums_.gain * sums_.wanders));
}

/// What says that the attribution's picture of the board is wrong.
inline void ReportFiller::add_alarms(Report& report) const {
    constexpr double most_refused = 0.02;
    constexpr double rounding = 1e-3;  // of the power
    constexpr double much = 5e-3;      // of the joules
    const AttributionFit& fit = found_.fit;
    const EnergyTotals& totals = found_.totals;
    if (fit.refused_share() > most_refused) {
        report.notes.push_back(io::format_text(
            "%.1f %% of the counter's intervals are impossible and were refused: the counter or "
            "its clock is at fault",
            100 * fit.refused_share()));
    }
    if (!attributing_.solved()) return;
    add_impossible(report);
    add_outside_load(report);
    const double beyond = std::abs(totals.unexplained.count) - totals.unexplained_half_width.count;
    if (beyond < rounding * totals.counter.count) return;
    if (totals.unexplained < Joules{0}) {
        report.notes.push_back(io::format_text(
            "kernels and idle have %.1f J more than the counter, beyond the interval of %.1f J: "
            "do not rely on the joules",
            -totals.unexplained.count, totals.unexplained_half_width.count));
    } else if (totals.unexplained > totals.counter * much) {
        report.notes.push_back(io::format_text(
            "%.1f J of the counter, beyond the interval of %.1f J, were drawn by something that no "
            "scope covers: unexplained",
            totals.unexplained.count, totals.unexplained_half_width.count));
    }
}

}  // namespace kdvfs::inline v0_3::measure
