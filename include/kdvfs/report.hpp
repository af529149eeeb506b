// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// An energy with its 95 % interval, joules +- half_width; or, where the samples do not say, not a
/// number at all: `resolved` is false, `joules` is 0, and reports print "too_short_to_tell".
struct EnergyEstimate {
    Joules joules;
    Joules half_width;
    bool resolved = false;
};

/// Why the gate kept a scope from switching: at least one of two inequalities failed,
/// `dwell >= least_latencies * switch_latency` or `loss <= tolerated_loss`.
struct GateRefusal {
    Duration dwell{};  ///< how long the scope lasts: the median of those seen, else planned
    Duration switch_latency{};   ///< from the marker to the clock's effect
    double least_latencies = 0;  ///< `GateOptions::least_latencies`
    double loss = 0;             ///< share of the scope's time lost to a late raise behind it
    double tolerated_loss = 0;   ///< `GateOptions::tolerated_loss`
    bool too_short = false;      ///< the first inequality failed, else the second did
};

/// What became of the scopes of one kernel and variant; `ScopeCounts` says it for all of them.
struct KernelScopes {
    std::uint64_t asked = 0;            ///< put a request of their own into their stream
    std::uint64_t observed = 0;         ///< of them, seen by the listener
    std::uint64_t missed = 0;           ///< of them, over between two looks of the listener
    std::uint64_t switched = 0;         ///< of those observed, the device was changed for them
    std::uint64_t overtaken = 0;        ///< of those observed, over before their turn came
    std::uint64_t not_worth_it = 0;     ///< did not ask: the gate refused
    std::optional<GateRefusal> gate{};  ///< its last refusal
};

/// What a kernel drew while its work was called again and again in place (`GpuOptions::repeat`).
struct RepeatedFigure {
    Watts power;
    Watts half_width;             ///< of the 95 % interval, of what the meter saw then
    std::uint64_t calls = 0;      ///< of the work
    Seconds time{0};              ///< of all calls
    Megahertz held = auto_clock;  ///< core clock by cycles meanwhile; 0 = not counted
};

/// One kernel and variant. Energies and times are those of the metered calls.
struct ReportRow {
    KernelKey kernel;
    std::uint64_t calls = 0;          ///< scopes that ended, metered or not
    std::uint64_t metered_calls = 0;  ///< calls whose interval is known
    Seconds time{0};                  ///< wall time of the metered calls
    Seconds counted_time{0};          ///< of it, under trusted counter samples, shared by 1/n
    EnergyEstimate energy;            ///< over `counted_time`
    ClockPoint asked;                 ///< for most of the time
    ClockPoint applied;               ///< for most of the time
    Megahertz held = auto_clock;      ///< median over time of cycles / wall time; 0 = not counted
    double held_share = 0;            ///< share of the time within 2 % of `held`, 0 to 1
    /// Mean power by interpolated counter differences, of scopes longer than 20 counter periods.
    std::optional<Watts> direct_power;
    bool direct_disagrees = false;  ///< `direct_power` lies outside the attributed interval
    bool kept = false;              ///< bound to `KeepClock`: listed, not counted
    KernelScopes scopes{};
    /// Share of the time, 0 to 1, in which the device held the clock that was asked for.
    double asked_share = 1;
    /// What `energy` starts from, where the kernel was repeated.
    std::optional<RepeatedFigure> repeated{};
};

/// Kernels that always ran in the same mix: their energy is known together and not one by one.
struct KernelGroup {
    std::vector<KernelKey> kernels;
    bool with_idle = false;  ///< the time between kernels belongs to the mix as well
    EnergyEstimate energy;
};

/// The joules of an iteration, or of a scope that encloses others (forward, backward, optimizer):
/// of all that ran in it, counted once. They are told where those of its kernels may not be.
struct EnergyLevel {
    bool iteration = false;
    KernelKey scope;          ///< of an enclosing scope
    std::uint64_t runs = 0;   ///< metered ones that have ended
    Seconds time{0};          ///< of the runs
    Seconds counted_time{0};  ///< of it, under trusted counter samples
    EnergyEstimate energy;    ///< over `time`: what ran outside the samples drew as within

    /// The mean energy of a run.
    [[nodiscard]] EnergyEstimate per_run() const {
        if (!energy.resolved || runs == 0) return {};
        const double share = 1 / static_cast<double>(runs);
        return {energy.joules * share, energy.half_width * share, true};
    }
};

/// A sensor outside the GPU beside the board's counter, since the GPU was opened.
struct ReferenceTotals {
    std::string name;
    Joules joules;            ///< by the sensor
    Seconds time{0};          ///< in this time
    Joules counter;           ///< by the board's counter
    Seconds counter_time{0};  ///< in this time; it begins and ends up to a counter's period apart

    /// The counter's mean power as a multiple of the sensor's; 0 where the latter shows none.
    [[nodiscard]] double ratio() const {
        const double watts = (joules / time).count;
        return watts > 0 ? (counter / counter_time).count / watts : 0;
    }
};

/// Where the joules of the counter went: `kernels + idle + unexplained = counter`.
struct EnergyTotals {
    Joules counter;                    ///< trusted joules of the metered time
    EnergyEstimate kernels;            ///< all kernels together, resolved or not one by one
    EnergyEstimate idle;               ///< time with no kernel
    Joules unexplained;                ///< the rest: printed, never spread
    Seconds counted_time{0};           ///< metered time under trusted samples
    Seconds idle_time{0};              ///< of it, with no kernel
    Joules outside;                    ///< trusted joules outside the metered time
    Joules unexplained_half_width{0};  ///< of the 95 % interval of `unexplained`
    std::optional<ReferenceTotals> reference{};  ///< where `GpuOptions::reference` names a sensor
};

/// What the attribution rests on.
struct AttributionFit {
    std::string source = "energy counter";
    std::uint64_t rows = 0;          ///< metered counter intervals
    std::uint64_t refused_rows = 0;  ///< more of them, whose reading is impossible
    double autocorrelation = 0;      ///< of what a row leaves unexplained with the row before
    Watts scatter{0};       ///< standard deviation of an interval's power from what is explained
    bool whitened = false;  ///< rows were fitted less what those before them foretell
    /// Where kernels were repeated: what their powers are in place, as a multiple of those
    /// repeated, and the relative standard deviation of one kernel's from that multiple.
    double repeated_scale = 1;
    double repeated_spread = 0;
    /// Of the energies' errors, J^2: of all kernels, as `Report::rows` has them, then of idle.
    std::vector<std::vector<double>> covariance;

    [[nodiscard]] double refused_share() const {
        const auto all = static_cast<double>(rows + refused_rows);
        return all > 0 ? static_cast<double>(refused_rows) / all : 0;
    }
};

/// What became of the scopes: each is in exactly one of the counts from `switches` to `followed`.
struct ScopeCounts {
    std::uint64_t scopes = 0;
    std::uint64_t switches = 0;       ///< the device was changed for them
    std::uint64_t stream_elided = 0;  ///< an enclosing scope had the same request
    std::uint64_t device_elided = 0;  ///< the verified state already held
    std::uint64_t not_worth_it = 0;   ///< the gate refused: see each kernel's `scopes.gate`
    std::uint64_t missed = 0;         ///< over between two looks of the listener
    std::uint64_t overtaken = 0;      ///< over before their turn came
    std::uint64_t pending = 0;        ///< not yet reached by their stream, or under way
    std::uint64_t refused = 0;        ///< the controller is disarmed
    std::uint64_t kept = 0;           ///< `KeepClock`
    std::uint64_t captured = 0;       ///< recorded into a graph; its replays are not counted
    std::uint64_t measured = 0;       ///< of a GPU that is measured only
    std::uint64_t followed = 0;       ///< between two boundaries of a plan that is followed
    std::uint64_t unmetered = 0;      ///< of all scopes, those without an interval
    std::uint64_t writes = 0;         ///< clock points written to the device
};

/// How well a plan of segments was followed. Times are those of the plan's own figures.
struct FollowedShare {
    std::uint64_t launches = 0;
    std::uint64_t lost_launches = 0;  ///< that came while their place in the plan was not known
    Seconds time{0};
    Seconds lost_time{0};
    std::uint64_t left_out = 0;  ///< launches of the plan that did not come
    std::uint64_t added = 0;
    std::uint64_t swapped = 0;
    std::uint64_t replaced = 0;
    std::uint64_t times_lost = 0;
    std::vector<std::pair<std::string, std::uint64_t>> mismatch;  ///< most often first
    bool given_up = false;  ///< the plan is of another program

    /// Of the time, or of the launches where the plan knows no times.
    [[nodiscard]] double share() const {
        if (time > Seconds{0}) return 1 - lost_time / time;
        if (launches == 0) return 0;
        return 1 - static_cast<double>(lost_launches) / static_cast<double>(launches);
    }
};

/// What a GPU did under kdvfs.
struct Report {
    DeviceInfo device;
    bool measure_only = false;  ///< clocks were not set, by explicit choice
    ScopeCounts scopes;
    std::vector<ReportRow> rows;
    std::vector<KernelGroup> groups;
    std::vector<EnergyLevel> levels;  ///< the iteration first, then the longest first
    EnergyTotals totals;
    AttributionFit fit;
    std::optional<FollowedShare> followed;  ///< where a plan of segments is followed
    std::vector<std::string> notes;         ///< sentences a reader must not miss
};

/// "12.3 J +- 0.4", or "too_short_to_tell".
inline std::string to_string(const EnergyEstimate& energy) {
    if (!energy.resolved) return "too_short_to_tell";
    std::array<char, 64> text;
    const double width = energy.half_width.count;
    // As many decimals as the interval has digits that mean something.
    const double decimals = width > 0 ? std::clamp(1 - std::floor(std::log10(width)), 0.0, 9.0) : 3;
    std::snprintf(text.data(), text.size(), "%.*f J +- %.*f", static_cast<int>(decimals),
                  energy.joules.count, static_cast<int>(decimals), width);
    return text.data();
}

namespace report_text {

inline std::string number(const char* format, double value) {
    std::array<char, 64> text;
    std::snprintf(text.data(), text.size(), format, value);
    return text.data();
}

/// "1100/auto" for core and memory; "auto" for both.
inline std::string point(ClockPoint clocks) {
    const auto one = [](Megahertz clock) {
        return clock == auto_clock ? std::string{"auto"} : std::to_string(clock.count);
    };
    return clocks.is_auto() ? "auto" : one(clocks.core) + '/' + one(clocks.memory);
}

inline std::string held(const ReportRow& row) {
    if (row.held == auto_clock) return "-";
    return std::to_string(row.held.count) + " (" + number("%.0f", 100 * row.held_share) + " %)";
}

using Cells = std::vector<std::string>;

inline Cells cells(const ReportRow& row) {
    const double counted = row.counted_time.count();
    const bool resolved = row.energy.resolved && counted > 0;
    // Joules of a part of the time say of which part.
    const std::string part =
        counted < 0.99 * row.time.count() ? " in " + number("%.3g s", counted) : std::string{};
    return {detail::shortened(to_string(row.kernel)),
            std::to_string(row.calls),
            std::to_string(row.metered_calls),
            number("%.6g", row.time.count()),
            row.metered_calls == 0 ? "-"
            : resolved ? to_string(row.energy) + part + (row.repeated ? " repeated" : "")
                       : "too_short_to_tell",
            resolved ? number("%.1f", row.energy.joules.count / counted) : "-",
            row.kept ? "kept" : point(row.asked),
            point(row.applied),
            held(row)};
}

/// Columns as wide as their widest cell; the first is flush left, the others right.
inline void print(std::ostream& out, const std::vector<Cells>& table) {
    std::vector<std::size_t> widths(table.front().size());
    for (const Cells& line : table) {
        for (std::size_t i = 0; i < line.size(); ++i) {
            widths[i] = std::max(widths[i], line[i].size());
        }
    }
    for (const Cells& line : table) {
        out << "  " << line[0] << std::string(widths[0] - line[0].size(), ' ');
        for (std::size_t i = 1; i < line.size(); ++i) {
            out << "  " << std::string(widths[i] - line[i].size(), ' ') << line[i];
        }
        out << '\n';
    }
}

inline void print_totals(std::ostream& out, const EnergyTotals& totals) {
    const auto joules = [](Joules energy) { return number("%.6g J", energy.count); };
    out << "counter " << joules(totals.counter) << " over "
        << number("%.6g s", totals.counted_time.count()) << " = kernels "
        << to_string(totals.kernels) << ", idle " << to_string(totals.idle) << " ("
        << number("%.6g s", totals.idle_time.count()) << "), unexplained "
        << joules(totals.unexplained) << '\n';
    if (totals.outside.count != 0) out << "not metered: " << joules(totals.outside) << '\n';
    if (const auto& reference = totals.reference) {
        out << "reference " << reference->name << ": " << joules(reference->joules) << " over "
            << number("%.6g s", reference->time.count()) << ", the counter "
            << joules(reference->counter) << " over "
            << number("%.6g s", reference->counter_time.count()) << ": "
            << number("%.4f", reference->ratio()) << " of its power\n";
    }
}

/// Why scopes of a kernel did not switch, and whether its clock held.
inline void print_scopes(std::ostream& out, const ReportRow& row) {
    const auto microseconds = [](Duration time) {
        return number("%.4g us", static_cast<double>(time.count()) * 1e-3);
    };
    if (const auto& gate = row.scopes.gate) {
        out << "not worth it: " << to_string(row.kernel) << ", " << row.scopes.not_worth_it
            << " scopes: ";
        if (gate->too_short) {
            out << "lasts " << microseconds(gate->dwell) << ", under "
                << number("%g", gate->least_latencies) << " switching latencies of "
                << microseconds(gate->switch_latency) << '\n';
        } else {
            out << "the raise behind it would come late and cost "
                << number("%.2g", 100 * gate->loss) << " % of its time, over the tolerated "
                << number("%.2g", 100 * gate->tolerated_loss) << " %\n";
        }
    }
    if (row.asked_share < 0.5 && row.metered_calls > 0 && row.scopes.asked > 0) {
        out << "late clock: " << to_string(row.kernel) << " had the clock it asked for in "
            << number("%.0f", 100 * row.asked_share) << " % of its time (" << row.scopes.missed
            << " of " << row.scopes.asked << " scopes missed, " << row.scopes.overtaken
            << " overtaken)\n";
    }
}

/// "plan followed 98.7 % of the time, 12000 launches; left out 3, ... ; most often at: gelu (2)".
inline void print_followed(std::ostream& out, const FollowedShare& followed) {
    if (followed.given_up) {
        out << "plan not followed: it is of another program, the clocks stay on auto\n";
        return;
    }
    out << "plan followed " << number("%.2f", 100 * followed.share()) << " % of the time, "
        << followed.launches << " launches; left out " << followed.left_out << ", added "
        << followed.added << ", swapped " << followed.swapped << ", replaced " << followed.replaced
        << ", lost " << followed.times_lost << " times";
    constexpr std::size_t shown = 3;
    for (std::size_t i = 0; i < std::min(shown, followed.mismatch.size()); ++i) {
        const auto& [kernel, times] = followed.mismatch[i];
        out << (i == 0 ? "; most often at: " : ", ") << kernel << " (" << times << ')';
    }
    out << '\n';
}

/// "repeated: gelu 512.0 W +- 3.1 at 1980 MHz, 1843 calls of 58.2 us; in place at 1965 MHz".
inline void print_repeated(std::ostream& out, const ReportRow& row) {
    if (!row.repeated) return;
    const RepeatedFigure& found = *row.repeated;
    const auto clock = [](Megahertz held) {
        return held == auto_clock ? std::string{"an unknown clock"}
                                  : std::to_string(held.count) + " MHz";
    };
    out << "repeated: " << to_string(row.kernel) << ' ' << number("%.1f W", found.power.count)
        << number(" +- %.1f", found.half_width.count) << " at " << clock(found.held) << ", "
        << found.calls << " calls of "
        << number("%.4g us", 1e6 * found.time.count() / static_cast<double>(found.calls))
        << "; in place at " << clock(row.held) << '\n';
}

inline void print_group(std::ostream& out, const KernelGroup& group) {
    out << "group, always in the same mix:";
    for (const KernelKey& kernel : group.kernels) out << ' ' << to_string(kernel);
    if (group.with_idle) out << " (idle)";
    out << ": " << to_string(group.energy) << '\n';
}

/// "iteration: 160.6 J +- 0.3 in 0.332 s (484 W), the mean of 179".
inline void print_level(std::ostream& out, const EnergyLevel& level) {
    out << (level.iteration ? "iteration" : "scope " + to_string(level.scope)) << ": ";
    if (level.runs == 0) {
        out << "no run of it has ended\n";
        return;
    }
    out << to_string(level.per_run()) << " in "
        << number("%.4g s", level.time.count() / static_cast<double>(level.runs));
    if (level.energy.resolved) {
        out << " (" << number("%.1f W", level.energy.joules.count / level.time.count()) << ')';
    }
    out << ", the mean of " << level.runs << '\n';
}

}  // namespace report_text

/// A plain, aligned table. Simulated joules are called simulated in the heading.
inline std::ostream& operator<<(std::ostream& out, const Report& report) {
    out << "kdvfs report: " << (report.device.simulated ? "SIMULATED GPU " : "")
        << to_string(report.device) << ", clocks by " << report.device.mechanism
        << (report.measure_only ? ", MEASURE ONLY: clocks were not set" : "") << '\n';
    const ScopeCounts& scopes = report.scopes;
    out << "scopes " << scopes.scopes << ": switches " << scopes.switches
        << ", elided in the stream " << scopes.stream_elided << ", on the device "
        << scopes.device_elided << ", not worth it " << scopes.not_worth_it << ", missed "
        << scopes.missed << ", overtaken " << scopes.overtaken << ", pending " << scopes.pending
        << ", refused " << scopes.refused << ", kept " << scopes.kept << ", captured "
        << scopes.captured << ", measured " << scopes.measured;
    if (scopes.followed > 0) out << ", between a plan's boundaries " << scopes.followed;
    out << "; unmetered " << scopes.unmetered << "; the device was written " << scopes.writes
        << " times\n";
    std::vector<report_text::Cells> table{{"kernel", "calls", "metered", "time s",
                                           report.device.simulated ? "simulated energy" : "energy",
                                           "W", "asked", "applied", "held MHz"}};
    for (const ReportRow& row : report.rows) {
        table.push_back(report_text::cells(row));
        if (report.measure_only) table.back().emplace_back("measure only");
    }
    if (report.measure_only) table.front().emplace_back("clocks");
    report_text::print(out, table);
    for (const ReportRow& row : report.rows) report_text::print_scopes(out, row);
    for (const ReportRow& row : report.rows) report_text::print_repeated(out, row);
    for (const KernelGroup& group : report.groups) report_text::print_group(out, group);
    for (const EnergyLevel& level : report.levels) report_text::print_level(out, level);
    report_text::print_totals(out, report.totals);
    if (report.followed) report_text::print_followed(out, *report.followed);
    for (const std::string& note : report.notes) out << "note: " << note << '\n';
    return out;
}

}  // namespace kdvfs::inline v0_3::measure
