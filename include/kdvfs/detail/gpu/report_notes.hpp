// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/scope_gate.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <set>
#include <string>

/// What a GPU says in its report beside the figures of its meter.
namespace kdvfs::inline v0_3::detail {

/// A misspelt name beside a `Default` would have no effect in silence.
inline void add_unseen(measure::Report& report, const std::set<std::string>& names) {
    if (names.empty()) return;
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    report.notes.push_back(
        "no scope of these kernels has been entered, their bindings had no effect: " + list);
}

/// Whether kernels' energies were resolved by when they ran.
[[nodiscard]] inline bool rests_on_sensor(const measure::Report& report) {
    const auto is_attributed = [](const measure::ReportRow& row) {
        return row.energy.resolved && !row.direct_power && !row.repeated;
    };
    return std::count_if(report.rows.begin(), report.rows.end(), is_attributed) > 1;
}
/// Says why scopes were held back where that can be helped, and where nothing can be gained.
inline void add_gate_notes(measure::Report& report, const ScopeGate& gate) {
    if (report.scopes.not_worth_it == 0 && !gate.was_measured()) return;
    const auto milliseconds = [](Duration time) {
        const auto tenths = (time.count() + 50'000) / 100'000;
        return std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10) + " ms";
    };
    if (gate.was_measured()) {
        report.notes.push_back("the switching latency was found by a scope of this run: " +
                               milliseconds(*gate.latency()));
    }
    if (!gate.latency()) {
        report.notes.push_back("no switching latency is known: scopes that would not pay at " +
                               milliseconds(ScopeGate::assumed) +
                               " were held back; measure it (kdvfs measure-latency) and give "
                               "GpuOptions::switch_latency");
    } else if (!gate.has_lowered()) {
        report.notes.push_back(
            "nothing to gain here: no scope lasts long enough for a switch "
            "of " +
            milliseconds(*gate.latency()) + "; clocks were left alone");
    }
}

/// Whose error the intervals of kernels do not hold, where they rest on it.
inline void add_sensor_note(measure::Report& report) {
    if (report.fit.sensor || !rests_on_sensor(report)) return;
    report.notes.emplace_back(
        "the intervals of kernels hold noise, not the error of what is assumed of the "
        "board's sensor: where it is half a millisecond later than that, they may miss the "
        "truth (docs/measuring.md); those of iterations and of repeated kernels do not "
        "depend on it");
}

}  // namespace kdvfs::inline v0_3::detail
