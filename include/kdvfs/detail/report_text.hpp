// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/report.hpp>

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/io/text_stream.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::measure {

KDVFS_INLINE std::string to_string(const EnergyEstimate& energy) {
    if (!energy.resolved) return "unresolved";
    const double width = energy.half_width.count;
    // As many decimals as the interval has digits that mean something.
    const double decimals = width > 0 ? std::clamp(1 - std::floor(std::log10(width)), 0.0, 9.0) : 3;
    return io::format_text("%.*f J +- %.*f", static_cast<int>(decimals), energy.joules.count,
                           static_cast<int>(decimals), width);
}

namespace report_text {

using io::format_text;

/// "1100/auto" for core and memory; "auto" for both.
inline std::string point(ClockPoint clocks) {
    const auto one = [](Megahertz clock) {
        return clock == auto_clock ? std::string{"auto"} : std::to_string(clock.count);
    };
    return clocks.is_auto() ? "auto" : one(clocks.core) + '/' + one(clocks.memory);
}

inline std::string held(const ReportRow& row) {
    if (row.held == auto_clock) return "-";
    const auto text = [](Megahertz clock, double share) {
        return std::to_string(clock.count) + " (" + format_text("%.0f", 100 * share) + " %)";
    };
    constexpr double least = 0.05;
    std::string all;
    for (const ClockShare& each : row.held_clocks) {
        if (each.share >= least) all += (all.empty() ? "" : ", ") + text(each.clock, each.share);
    }
    return all.empty() ? text(row.held, row.held_share) : all;
}

using Cells = std::vector<std::string>;

inline Cells cells(const ReportRow& row) {
    const double counted = row.counted_time.count();
    const bool resolved = row.energy.resolved && counted > 0;
    // Joules of a part of the time say of which part.
    const std::string part =
        counted < 0.99 * row.time.count() ? " in " + format_text("%.3g s", counted) : std::string{};
    return {detail::shortened(to_string(row.kernel)),
            std::to_string(row.calls),
            std::to_string(row.metered_calls),
            format_text("%.6g", row.time.count()),
            row.metered_calls == 0 ? "-"
            : resolved ? to_string(row.energy) + part + (row.repeated ? " repeated" : "")
                       : "unresolved",
            resolved ? format_text("%.1f", row.energy.joules.count / counted) : "-",
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
    const auto joules = [](Joules energy) { return format_text("%.6g J", energy.count); };
    out << "counter " << joules(totals.counter) << " over "
        << format_text("%.6g s", totals.counted_time.count()) << " = ";
    if (totals.kernels.resolved || !totals.together.resolved) {
        out << "kernels " << to_string(totals.kernels) << ", idle " << to_string(totals.idle);
    } else {
        out << "kernels and idle " << to_string(totals.together);
    }
    out << " (" << format_text("%.6g s", totals.idle_time.count()) << "), unexplained "
        << joules(totals.unexplained) << '\n';
    // The microseconds between two kernels are no gap that a clock matters in.
    if (totals.rests.size() > 1 && totals.idle_time.count() > 1e-3 * totals.counted_time.count())
        for (const ClockRest& rest : totals.rests)
            out << "idle at " << to_string(rest.clock) << ": "
                << format_text("%.6g s", rest.time.count()) << ", " << to_string(rest.energy)
                << '\n';
    if (totals.outside.count != 0) out << "not metered: " << joules(totals.outside) << '\n';
    if (const auto& reference = totals.reference) {
        out << "reference " << reference->name << ": " << joules(reference->joules) << " over "
            << format_text("%.6g s", reference->time.count()) << ", the counter "
            << joules(reference->counter) << " over "
            << format_text("%.6g s", reference->counter_time.count()) << ": "
            << format_text("%.4f", reference->ratio()) << " of its power\n";
    }
}

/// Why scopes of a kernel did not switch, and whether its clock held.
inline void print_scopes(std::ostream& out, const ReportRow& row) {
    const auto microseconds = [](Duration time) {
        return format_text("%.4g us", static_cast<double>(time.count()) * 1e-3);
    };
    if (const auto& gate = row.scopes.gate) {
        out << "not worth it: " << to_string(row.kernel) << ", " << row.scopes.not_worth_it
            << " scopes: ";
        if (gate->too_short) {
            out << "lasts " << microseconds(gate->dwell) << ", under "
                << format_text("%g", gate->least_latencies) << " switching latencies of "
                << microseconds(gate->switch_latency) << '\n';
        } else {
            out << "the raise behind it would come late and cost "
                << format_text("%.2g", 100 * gate->loss) << " % of its time, over the tolerated "
                << format_text("%.2g", 100 * gate->tolerated_loss) << " %\n";
        }
    }
    if (row.asked_share < 0.5 && row.metered_calls > 0 && row.scopes.asked > 0) {
        out << "late clock: " << to_string(row.kernel) << " had the clock it asked for in "
            << format_text("%.0f", 100 * row.asked_share) << " % of its time (" << row.scopes.missed
            << " of " << row.scopes.asked << " scopes missed, " << row.scopes.overtaken
            << " overtaken)" << (row.asked_share < 0.05 ? ": shorter than the switch" : "") << '\n';
    }
}

/// "without work 12.3 s at 345 MHz core, in 45 rests; waking took 0.05 s at most".
inline void print_idle_clock(std::ostream& out, const IdleClockShare& idle) {
    out << "without work " << format_text("%.3f", idle.time.count()) << " s at "
        << to_string(idle.clock) << ", in " << idle.times << " rests; waking took "
        << format_text("%.4f", idle.waking.count()) << " s at most\n";
}

/// "plan followed 98.7 % of the time, 12000 launches; left out 3, ... ; most often at: gelu (2)".
inline void print_followed(std::ostream& out, const FollowedShare& followed) {
    if (followed.given_up) {
        out << "plan not followed: it is of another program, the clocks stay on auto\n";
        return;
    }
    out << "plan followed " << format_text("%.2f", 100 * followed.share()) << " % of the time, "
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
    out << "repeated: " << to_string(row.kernel) << ' ' << format_text("%.1f W", found.power.count)
        << format_text(" +- %.1f", found.half_width.count) << " at " << clock(found.held) << ", "
        << found.calls << " calls of "
        << format_text("%.4g us", 1e6 * found.time.count() / static_cast<double>(found.calls))
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
        << format_text("%.4g s", level.time.count() / static_cast<double>(level.runs));
    if (level.energy.resolved) {
        out << " (" << format_text("%.1f W", level.energy.joules.count / level.time.count()) << ')';
    }
    out << ", the mean of " << level.runs << '\n';
}

}  // namespace report_text

KDVFS_INLINE std::ostream& operator<<(std::ostream& out, const Report& report) {
    io::TextStream text;
    text << "kdvfs report: " << (report.device.simulated ? "SIMULATED GPU " : "")
         << to_string(report.device) << ", clocks by " << report.device.mechanism
         << (report.measure_only ? ", MEASURE ONLY: clocks were not set" : "") << '\n';
    const ScopeCounts& scopes = report.scopes;
    text << "scopes " << scopes.scopes << ": switches " << scopes.switches
         << ", redundant in the stream " << scopes.stream_redundant << ", on the device "
         << scopes.device_redundant << ", not worth it " << scopes.not_worth_it << ", missed "
         << scopes.missed << ", overtaken " << scopes.overtaken << ", pending " << scopes.pending
         << ", refused " << scopes.refused << ", kept " << scopes.kept << ", captured "
         << scopes.captured << ", measured " << scopes.measured;
    if (scopes.followed > 0) text << ", between a plan's boundaries " << scopes.followed;
    text << "; unmetered " << scopes.unmetered << "; the device was written " << scopes.writes
         << " times\n";
    std::vector<report_text::Cells> table{{"kernel", "calls", "metered", "time s",
                                           report.device.simulated ? "simulated energy" : "energy",
                                           "W", "requested", "reported", "measured MHz"}};
    for (const ReportRow& row : report.rows) {
        table.push_back(report_text::cells(row));
        if (report.measure_only) table.back().emplace_back("measure only");
    }
    if (report.measure_only) table.front().emplace_back("clocks");
    report_text::print(text, table);
    for (const ReportRow& row : report.rows) report_text::print_scopes(text, row);
    for (const ReportRow& row : report.rows) report_text::print_repeated(text, row);
    for (const KernelGroup& group : report.groups) report_text::print_group(text, group);
    for (const EnergyLevel& level : report.levels) report_text::print_level(text, level);
    report_text::print_totals(text, report.totals);
    if (report.followed) report_text::print_followed(text, *report.followed);
    if (report.idle_clock) report_text::print_idle_clock(text, *report.idle_clock);
    for (const std::string& note : report.notes) text << "note: " << note << '\n';
    return out << text.str();
}

}  // namespace kdvfs::inline v0_3::measure
