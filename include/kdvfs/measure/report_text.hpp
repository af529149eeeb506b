// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/report.hpp>
#include <kdvfs/measure/text_escape.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

namespace kdvfs::measure {

/// "12.3 J +- 0.4", or "too_short_to_tell".
inline std::string to_string(const EnergyEstimate& energy) {
    if (!energy.told) return "too_short_to_tell";
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
    const bool told = row.energy.told && counted > 0;
    // Joules of a part of the time say of which part.
    const std::string part =
        counted < 0.99 * row.time.count() ? " in " + number("%.3g s", counted) : std::string{};
    return {shortened(to_string(row.kernel)),
            std::to_string(row.calls),
            std::to_string(row.metered_calls),
            number("%.6g", row.time.count()),
            row.metered_calls == 0 ? "-"
            : told                 ? to_string(row.energy) + part
                                   : "too_short_to_tell",
            told ? number("%.1f", row.energy.joules.count / counted) : "-",
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
}

inline void print_group(std::ostream& out, const KernelGroup& group) {
    out << "group, always in the same mix:";
    for (const KernelKey& kernel : group.kernels) out << ' ' << to_string(kernel);
    if (group.with_idle) out << " (idle)";
    out << ": " << to_string(group.energy) << '\n';
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
        << scopes.device_elided << ", not worth it " << scopes.not_worth_it << ", refused "
        << scopes.refused << ", kept " << scopes.kept << ", captured " << scopes.captured
        << "; unmetered " << scopes.unmetered << '\n';
    std::vector<report_text::Cells> table{{"kernel", "calls", "metered", "time s",
                                           report.device.simulated ? "simulated energy" : "energy",
                                           "W", "asked", "applied", "held MHz"}};
    for (const ReportRow& row : report.rows) {
        table.push_back(report_text::cells(row));
        if (report.measure_only) table.back().emplace_back("measure only");
    }
    if (report.measure_only) table.front().emplace_back("clocks");
    report_text::print(out, table);
    for (const KernelGroup& group : report.groups) report_text::print_group(out, group);
    report_text::print_totals(out, report.totals);
    for (const std::string& note : report.notes) out << "note: " << note << '\n';
    return out;
}

}  // namespace kdvfs::measure
