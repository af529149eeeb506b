// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/report.hpp>

#include <filesystem>
#include <iosfwd>

namespace kdvfs::inline v0_3::measure {

/// One line per kernel. The columns are stable; new ones are added at the end.
/// - kernel, variant: the key;
/// - calls, metered_calls: scopes, and those of them whose interval is known;
/// - time_s: wall time of the metered calls;
/// - counted_time_s: of it, under trusted counter samples, shared by 1/n among overlapping kernels;
/// - energy_j, energy_half_width_j: over counted_time_s, 95 %; empty where not resolved;
/// - energy_status: `resolved` or `unresolved`;
/// - asked_core_mhz, asked_memory_mhz, applied_core_mhz, applied_memory_mhz: caps, 0 = auto;
/// - held_core_mhz, held_share: median clock by cycles, 0 = not counted; time share within 2 %;
/// - direct_power_w: by counter differences of long scopes; empty where there were none;
/// - source: `simulated` or `measured`;
/// - clocks: `set` or `measure_only`.
KDVFS_INLINE void write_csv(std::ostream& out, const Report& report);

/// Of what `write_json` writes. Keys are added without a change of it.
constexpr int report_json_version = 1;

/// The whole report as one JSON object, field by field in docs/report.md. An energy that was not
/// resolved is null, never 0.
KDVFS_INLINE void write_json(std::ostream& out, const Report& report);

/// What a meter was told, as it came, in a folder: to be attributed again, as `attribute_training`
/// does (bench/nvidia_round). Times are the host's steady clock, in ns.
/// - runs.csv: kernel, place, start_ns, length_ns, ends_scope: 1, or 2 for the end of a scope that
///   only encloses others;
/// - samples.csv: time_ns, joules, segment, of the energy counter;
/// - power.csv: time_ns, watts, of the power log;
/// - marks.csv: kernels by number with name and variant, places with parent and enclosing scope,
///   metering, iterations, and what was repeated: kernel, watts, half-width, calls, seconds.
/// @throws Error (io) where the folder, which must be there, cannot be written to
KDVFS_INLINE void write_record(const std::filesystem::path& folder, const MeterRecord& record);

}  // namespace kdvfs::inline v0_3::measure

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/measure/report_files.hpp>
#endif
