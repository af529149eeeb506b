// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/report.hpp>
#include <kdvfs/measure/text_escape.hpp>

#include <ostream>
#include <string>

namespace kdvfs::measure {

/// One line per kernel. The columns are stable; new ones are added at the end.
/// | column | what |
/// |---|---|
/// | kernel, variant | the key |
/// | calls, metered_calls | scopes; those whose interval is known |
/// | time_s | wall time of the metered calls |
/// | counted_time_s | of it, under trusted counter samples, shared by 1/n among overlapping kernels
/// | | energy_j, energy_half_width_j | over counted_time_s, 95 %; empty where not told | |
/// energy_status | `told` or `too_short_to_tell` | | asked_core_mhz ... applied_memory_mhz | caps,
/// 0 = auto | | held_core_mhz, held_share | median clock by cycles, 0 = not counted; time share
/// within 2 % | | direct_power_w | by counter differences of long scopes; empty where there were
/// none | | source | `simulated` or `measured` | | clocks | `set` or `measure_only` |
inline void write_csv(std::ostream& out, const Report& report) {
    out << "kernel,variant,calls,metered_calls,time_s,counted_time_s,energy_j,"
           "energy_half_width_j,energy_status,asked_core_mhz,asked_memory_mhz,applied_core_mhz,"
           "applied_memory_mhz,held_core_mhz,held_share,direct_power_w,source,clocks\n";
    for (const ReportRow& row : report.rows) {
        const bool told = row.energy.told;
        out << csv_field(row.kernel.name) << ',' << row.kernel.variant.index << ',' << row.calls
            << ',' << row.metered_calls << ',' << json_number(row.time.count()) << ','
            << json_number(row.counted_time.count()) << ','
            << (told ? json_number(row.energy.joules.count) : "") << ','
            << (told ? json_number(row.energy.half_width.count) : "") << ','
            << (told ? "told" : "too_short_to_tell") << ',' << row.asked.core.count << ','
            << row.asked.memory.count << ',' << row.applied.core.count << ','
            << row.applied.memory.count << ',' << row.held.count << ','
            << json_number(row.held_share) << ','
            << (row.direct_power ? json_number(row.direct_power->count) : "") << ','
            << (report.device.simulated ? "simulated" : "measured") << ','
            << (report.measure_only ? "measure_only" : "set") << '\n';
    }
}

}  // namespace kdvfs::measure
