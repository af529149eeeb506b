// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/report_files.hpp>

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/report.hpp>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if KDVFS_DEFINES_ENGINE

namespace kdvfs::inline v0_3::measure {

KDVFS_INLINE void write_csv(std::ostream& out, const Report& report) {
    out << "kernel,variant,calls,metered_calls,time_s,counted_time_s,energy_j,"
           "energy_half_width_j,energy_status,asked_core_mhz,asked_memory_mhz,applied_core_mhz,"
           "applied_memory_mhz,held_core_mhz,held_share,direct_power_w,source,clocks\n";
    for (const ReportRow& row : report.rows) {
        const bool resolved = row.energy.resolved;
        out << kdvfs::detail::csv_field(row.kernel.name) << ',' << row.kernel.variant.index << ','
            << row.calls << ',' << row.metered_calls << ','
            << kdvfs::detail::json_number(row.time.count()) << ','
            << kdvfs::detail::json_number(row.counted_time.count()) << ','
            << (resolved ? kdvfs::detail::json_number(row.energy.joules.count) : "") << ','
            << (resolved ? kdvfs::detail::json_number(row.energy.half_width.count) : "") << ','
            << (resolved ? "resolved" : "unresolved") << ',' << row.asked.core.count << ','
            << row.asked.memory.count << ',' << row.applied.core.count << ','
            << row.applied.memory.count << ',' << row.held.count << ','
            << kdvfs::detail::json_number(row.held_share) << ','
            << (row.direct_power ? kdvfs::detail::json_number(row.direct_power->count) : "") << ','
            << (report.device.simulated ? "simulated" : "measured") << ','
            << (report.measure_only ? "measure_only" : "set") << '\n';
    }
}

namespace report_json {

inline void put(std::ostream& out, const EnergyEstimate& energy) {
    if (energy.resolved) {
        out << R"({"joules":)" << kdvfs::detail::json_number(energy.joules.count)
            << R"(,"half_width_95":)" << kdvfs::detail::json_number(energy.half_width.count)
            << R"(,"noise_half_width_95":)"
            << kdvfs::detail::json_number(energy.noise_half_width().count)
            << R"(,"sensor_half_width_95":)"
            << kdvfs::detail::json_number(energy.sensor_half_width.count)
            << R"(,"status":"resolved"})";
    } else {
        out << R"({"joules":null,"half_width_95":null,"noise_half_width_95":null,)"
            << R"("sensor_half_width_95":null,"status":"unresolved"})";
    }
}

inline std::string known_or_null(Seconds time) {
    return time > Seconds{0} ? kdvfs::detail::json_number(time.count()) : "null";
}

inline void put(std::ostream& out, ClockPoint point) {
    out << R"({"core_mhz":)" << point.core.count << R"(,"memory_mhz":)" << point.memory.count
        << '}';
}

inline void put(std::ostream& out, const KernelKey& key) {
    out << R"("kernel":)" << kdvfs::detail::json_string(key.name) << R"(,"variant":)"
        << key.variant.index;
}

inline void put(std::ostream& out, const GateRefusal& gate) {
    const auto seconds = [](Duration time) {
        return kdvfs::detail::json_number(Seconds{time}.count());
    };
    out << R"({"failed":")" << (gate.too_short ? "dwell" : "late_raise") << R"(","dwell_s":)"
        << seconds(gate.dwell) << R"(,"switch_latency_s":)" << seconds(gate.switch_latency)
        << R"(,"least_latencies":)" << kdvfs::detail::json_number(gate.least_latencies)
        << R"(,"loss":)" << kdvfs::detail::json_number(gate.loss) << R"(,"tolerated_loss":)"
        << kdvfs::detail::json_number(gate.tolerated_loss) << '}';
}

inline void put(std::ostream& out, const KernelScopes& scopes) {
    out << R"({"asked":)" << scopes.asked << R"(,"observed":)" << scopes.observed << R"(,"missed":)"
        << scopes.missed << R"(,"switched":)" << scopes.switched << R"(,"overtaken":)"
        << scopes.overtaken << R"(,"not_worth_it":)" << scopes.not_worth_it << R"(,"gate":)";
    if (scopes.gate) {
        put(out, *scopes.gate);
    } else {
        out << "null";
    }
    out << '}';
}

inline void put(std::ostream& out, const ReportRow& row) {
    out << '{';
    put(out, row.kernel);
    out << R"(,"calls":)" << row.calls << R"(,"metered_calls":)" << row.metered_calls
        << R"(,"time_s":)" << kdvfs::detail::json_number(row.time.count())
        << R"(,"call_time_half_width_s":)" << known_or_null(row.call_time_half_width)
        << R"(,"counted_time_s":)" << kdvfs::detail::json_number(row.counted_time.count())
        << R"(,"energy":)";
    put(out, row.energy);
    out << R"(,"repeated":)";
    if (row.repeated) {
        using kdvfs::detail::json_number;
        out << R"({"power_w":)" << json_number(row.repeated->power.count)
            << R"(,"power_half_width_w":)" << json_number(row.repeated->half_width.count)
            << R"(,"repeats":)" << row.repeated->calls << R"(,"repeats_time_s":)"
            << json_number(row.repeated->time.count()) << R"(,"repeats_held_mhz":)"
            << row.repeated->held.count << '}';
    } else {
        out << "null";
    }
    // Each second name is the earlier one, kept until 0.4.
    for (const char* name : {"requested", "asked"}) {
        out << ",\"" << name << "\":";
        put(out, row.asked);
    }
    for (const char* name : {"reported", "applied"}) {
        out << ",\"" << name << "\":";
        put(out, row.applied);
    }
    for (const std::string name : {"measured", "held"}) {
        out << ",\"" << name << "_core_mhz\":" << row.held.count << ",\"" << name
            << "_share\":" << kdvfs::detail::json_number(row.held_share) << ",\"" << name
            << "_clocks\":[";
        std::string_view comma;
        for (const ClockShare& each : row.held_clocks) {
            out << std::exchange(comma, ",") << R"({"core_mhz":)" << each.clock.count
                << R"(,"share":)" << kdvfs::detail::json_number(each.share) << '}';
        }
        out << ']';
    }
    out << R"(,"direct_power_w":)"
        << (row.direct_power ? kdvfs::detail::json_number(row.direct_power->count) : "null")
        << R"(,"direct_disagrees":)" << (row.direct_disagrees ? "true" : "false") << R"(,"kept":)"
        << (row.kept ? "true" : "false") << R"(,"requested_share":)"
        << kdvfs::detail::json_number(row.asked_share) << R"(,"asked_share":)"
        << kdvfs::detail::json_number(row.asked_share) << R"(,"scopes":)";
    put(out, row.scopes);
    out << '}';
}

inline void put(std::ostream& out, const KernelGroup& group) {
    out << R"({"kernels":[)";
    std::string_view comma;
    for (const KernelKey& kernel : group.kernels) {
        out << comma << '{';
        put(out, kernel);
        out << '}';
        comma = ",";
    }
    out << R"(],"with_idle":)" << (group.with_idle ? "true" : "false") << R"(,"energy":)";
    put(out, group.energy);
    out << '}';
}

inline void put(std::ostream& out, const EnergyLevel& level) {
    out << R"({"level":)";
    if (level.iteration) {
        out << R"("iteration","kernel":null,"variant":null)";
    } else {
        out << R"("scope",)";
        put(out, level.scope);
    }
    out << R"(,"runs":)" << level.runs << R"(,"time_s":)"
        << kdvfs::detail::json_number(level.time.count()) << R"(,"run_time_half_width_s":)"
        << known_or_null(level.run_time_half_width) << R"(,"counted_time_s":)"
        << kdvfs::detail::json_number(level.counted_time.count()) << R"(,"energy":)";
    put(out, level.energy);
    out << R"(,"energy_per_run":)";
    put(out, level.per_run());
    out << '}';
}

inline void put(std::ostream& out, const EnergyTotals& totals) {
    out << R"({"counter_j":)" << kdvfs::detail::json_number(totals.counter.count)
        << R"(,"kernels":)";
    put(out, totals.kernels);
    out << R"(,"idle":)";
    put(out, totals.idle);
    out << R"(,"unexplained_j":)" << kdvfs::detail::json_number(totals.unexplained.count)
        << R"(,"unexplained_half_width_j":)"
        << kdvfs::detail::json_number(totals.unexplained_half_width.count)
        << R"(,"counted_time_s":)" << kdvfs::detail::json_number(totals.counted_time.count())
        << R"(,"idle_time_s":)" << kdvfs::detail::json_number(totals.idle_time.count())
        << R"(,"rests":[)";
    for (std::size_t i = 0; i < totals.rests.size(); ++i) {
        const ClockRest& rest = totals.rests[i];
        out << (i > 0 ? "," : "") << R"({"clock":)";
        put(out, rest.clock);
        out << R"(,"time_s":)" << kdvfs::detail::json_number(rest.time.count()) << R"(,"energy":)";
        put(out, rest.energy);
        out << '}';
    }
    out << R"(],"outside_j":)" << kdvfs::detail::json_number(totals.outside.count)
        << R"(,"reference":)";
    if (!totals.reference) {
        out << "null}";
        return;
    }
    out << R"({"name":)" << kdvfs::detail::json_string(totals.reference->name) << R"(,"joules":)"
        << kdvfs::detail::json_number(totals.reference->joules.count) << R"(,"time_s":)"
        << kdvfs::detail::json_number(totals.reference->time.count()) << R"(,"counter_j":)"
        << kdvfs::detail::json_number(totals.reference->counter.count) << R"(,"counter_time_s":)"
        << kdvfs::detail::json_number(totals.reference->counter_time.count())
        << R"(,"counter_share":)" << kdvfs::detail::json_number(totals.reference->ratio()) << "}}";
}

inline void put(std::ostream& out, const AttributionFit& fit) {
    using kdvfs::detail::json_number;
    out << R"({"source":)" << kdvfs::detail::json_string(fit.source) << R"(,"rows":)" << fit.rows
        << R"(,"refused_rows":)" << fit.refused_rows << R"(,"refused_share":)"
        << json_number(fit.refused_share()) << R"(,"autocorrelation":)"
        << json_number(fit.autocorrelation) << R"(,"scatter_w":)" << json_number(fit.scatter.count)
        << R"(,"whitened":)" << (fit.whitened ? "true" : "false") << R"(,"repeated_scale":)"
        << json_number(fit.repeated_scale) << R"(,"repeated_spread":)"
        << json_number(fit.repeated_spread) << R"(,"sensor":)";
    if (fit.sensor) {
        out << R"({"delay_s":)" << json_number(fit.sensor->delay.count()) << R"(,"memory_s":)"
            << json_number(fit.sensor->memory.count()) << R"(,"window_s":)"
            << json_number(fit.sensor->window.count()) << R"(,"rise_s":)"
            << json_number(fit.sensor->rise.count()) << '}';
    } else {
        out << "null";
    }
    out << R"(,"covariance_j2":[)";
    const char* line = "";
    for (const std::vector<double>& row : fit.covariance) {
        out << line << '[';
        const char* comma = "";
        for (const double value : row) {
            out << comma << json_number(value);
            comma = ",";
        }
        out << ']';
        line = ",";
    }
    out << "]}";
}

inline void put(std::ostream& out, const ScopeCounts& scopes) {
    out << R"({"scopes":)" << scopes.scopes << R"(,"switches":)" << scopes.switches
        << R"(,"stream_redundant":)" << scopes.stream_redundant << R"(,"device_redundant":)"
        << scopes.device_redundant << R"(,"not_worth_it":)" << scopes.not_worth_it
        << R"(,"missed":)" << scopes.missed << R"(,"overtaken":)" << scopes.overtaken
        << R"(,"pending":)" << scopes.pending << R"(,"refused":)" << scopes.refused << R"(,"kept":)"
        << scopes.kept << R"(,"captured":)" << scopes.captured << R"(,"measured":)"
        << scopes.measured << R"(,"followed":)" << scopes.followed << R"(,"unmetered":)"
        << scopes.unmetered << R"(,"writes":)" << scopes.writes;
    out << R"(,"stream_elided":)" << scopes.stream_redundant;         // earlier name, until 0.4
    out << R"(,"device_elided":)" << scopes.device_redundant << '}';  // earlier name, until 0.4
}

inline void put(std::ostream& out, const std::optional<IdleClockShare>& idle) {
    if (!idle) {
        out << "null";
        return;
    }
    out << R"({"clock":)";
    put(out, idle->clock);
    out << R"(,"times":)" << idle->times << R"(,"time_s":)"
        << kdvfs::detail::json_number(idle->time.count()) << R"(,"waking_s":)"
        << kdvfs::detail::json_number(idle->waking.count()) << '}';
}

inline void put(std::ostream& out, const std::optional<FollowedShare>& followed) {
    if (!followed) {
        out << "null";
        return;
    }
    out << R"({"share":)" << kdvfs::detail::json_number(followed->share()) << R"(,"launches":)"
        << followed->launches << R"(,"lost_launches":)" << followed->lost_launches
        << R"(,"left_out":)" << followed->left_out << R"(,"added":)" << followed->added
        << R"(,"swapped":)" << followed->swapped << R"(,"replaced":)" << followed->replaced
        << R"(,"times_lost":)" << followed->times_lost << R"(,"given_up":)"
        << (followed->given_up ? "true" : "false") << R"(,"mismatches":{)";
    std::string all;
    for (const auto& [kernel, times] : followed->mismatch)
        all += (all.empty() ? "" : ",") + kdvfs::detail::json_string(kernel) + ':' +
               std::to_string(times);
    out << all << R"(},"stumbled_over":{)" << all << "}}";  // earlier name, until 0.4
}

inline void put(std::ostream& out, const std::string& text) {
    out << kdvfs::detail::json_string(text);
}

template <class Items>
void put_list(std::ostream& out, const Items& items) {
    out << '[';
    std::string_view comma;
    for (const auto& item : items) {
        out << comma << '\n';
        put(out, item);
        comma = ",";
    }
    out << ']';
}

}  // namespace report_json

KDVFS_INLINE void write_json(std::ostream& out, const Report& report) {
    const DeviceInfo& device = report.device;
    out << R"({"device":{"name":)" << kdvfs::detail::json_string(device.name) << R"(,"address":)"
        << kdvfs::detail::json_string(device.address) << R"(,"architecture":)"
        << kdvfs::detail::json_string(device.architecture) << R"(,"mechanism":)"
        << kdvfs::detail::json_string(device.mechanism) << R"(,"simulated":)"
        << (device.simulated ? "true" : "false") << R"(},"measure_only":)"
        << (report.measure_only ? "true" : "false") << R"(,"scopes":)";
    report_json::put(out, report.scopes);
    out << R"(,"totals":)";
    report_json::put(out, report.totals);
    out << R"(,"fit":)";
    report_json::put(out, report.fit);
    out << R"(,"rows":)";
    report_json::put_list(out, report.rows);
    out << R"(,"groups":)";
    report_json::put_list(out, report.groups);
    out << R"(,"levels":)";
    report_json::put_list(out, report.levels);
    out << R"(,"followed":)";
    report_json::put(out, report.followed);
    out << R"(,"idle_clock":)";
    report_json::put(out, report.idle_clock);
    out << R"(,"notes":)";
    report_json::put_list(out, report.notes);
    out << "}\n";
}

namespace record_files {

template <class Write>
void write_file(const std::filesystem::path& path, Write write) {
    std::ofstream out{path};
    write(out);
    out.close();
    if (!out) {
        throw Error{Errc::io, {"write", path.string(), "", "name a folder that can be written to"}};
    }
}

}  // namespace record_files

KDVFS_INLINE void write_record(const std::filesystem::path& folder, const MeterRecord& record) {
    using record_files::write_file;
    write_file(folder / "runs.csv", [&](std::ostream& out) {
        out << "kernel,place,start_ns,length_ns,ends_scope\n";
        const auto line = [&](const KernelInterval& run, int ends_scope) {
            out << run.kernel.value << ',' << run.place << ','
                << run.start.time_since_epoch().count() << ',' << (run.end - run.start).count()
                << ',' << ends_scope << '\n';
        };
        for (const auto& [run, window] : record.runs) line(run, run.ends_scope ? 1 : 0);
        for (const KernelInterval& end : record.ends) line(end, 2);
    });
    write_file(folder / "samples.csv", [&](std::ostream& out) {
        out << std::setprecision(12) << "time_ns,joules,segment\n";
        for (const auto& sample : record.samples) {
            out << sample.at.time_since_epoch().count() << ',' << sample.total.count << ','
                << sample.segment << '\n';
        }
    });
    write_file(folder / "power.csv", [&](std::ostream& out) {
        out << "time_ns,watts\n";
        for (const auto& sample : record.power) {
            out << sample.sampled_at.time_since_epoch().count() << ',' << sample.watts.count
                << '\n';
        }
    });
    write_file(folder / "marks.csv", [&](std::ostream& out) {
        out << "what,first,second,third\n";
        for (std::size_t i = 0; i < record.kernels.size(); ++i) {
            const KernelKey& kernel = record.kernels[i];
            out << "kernel," << i << ',' << kernel.name << ',' << kernel.variant.index << '\n';
        }
        for (const auto& [parent, enclosing] : record.places) {
            out << "place," << parent << ',' << enclosing.value << ",\n";
        }
        for (const auto& [at, on] : record.metering) {
            out << "metering," << at.time_since_epoch().count() << ',' << (on ? 1 : 0) << ",\n";
        }
        for (const auto& [at, mark] : record.iterations) {
            out << "iteration," << at.time_since_epoch().count() << ',' << static_cast<int>(mark)
                << ",\n";
        }
        for (const auto& [kernel, applied, figure] : record.repeated) {
            out << "repeated," << kernel.value << ',' << figure.power.count << ','
                << figure.half_width.count << ',' << figure.calls << ',' << figure.time.count()
                << '\n';
        }
    });
}

}  // namespace kdvfs::inline v0_3::measure

#endif
