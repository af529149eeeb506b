// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/source_choice.hpp>
#include <kdvfs/report.hpp>

#include <string>

namespace attach {

/// Takes the joules of ranges that are too short for a power log from a report, and says so.
///
/// A range draws now this and now that, which one power for each does not explain. Where joules are
/// from a power log and a range is over before the log shows much of it, what is left over was
/// taken for other ranges' power: attention and mlp of 0.8 and 1.1 ms had 118 and 972 W, each +- 2
/// % (bench/results/h200/attach). 5 ms are a quarter of such a log's period.
inline void unresolve_short_ranges(kdvfs::measure::Report& report) {
    constexpr double shortest = 5e-3;  // s
    if (report.fit.source == to_string(kdvfs::measure::EnergyFrom::counter)) return;
    std::string names;
    for (kdvfs::measure::ReportRow& row : report.rows) {
        const bool is_short = row.time.count() < shortest * static_cast<double>(row.metered_calls);
        if (!row.energy.resolved || !is_short) continue;
        row.energy = {};
        names += ' ' + row.kernel.name;
    }
    if (names.empty()) return;
    report.notes.push_back(
        "ranges under 5 ms, whose joules power samples do not resolve (ask for --level kernel, or "
        "for "
        "longer ranges):" +
        names);
}

}  // namespace attach
