// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/report_files.hpp>

#include <kdvfs/detail/io/json_writer.hpp>
#include <kdvfs/detail/io/text_stream.hpp>
#include <kdvfs/error.hpp>

#include <cstddef>
#include <fstream>
#include <iomanip>
#include <locale>
#include <optional>
#include <ostream>
#include <string>

#if KDVFS_DEFINES_ENGINE

namespace kdvfs::inline v0_3::measure {

KDVFS_INLINE void write_csv(std::ostream& out, const Report& report) {
    io::TextStream text;
    text << "kernel,variant,calls,metered_calls,time_s,counted_time_s,energy_j,"
            "energy_half_width_j,energy_status,asked_core_mhz,asked_memory_mhz,applied_core_mhz,"
            "applied_memory_mhz,held_core_mhz,held_share,direct_power_w,source,clocks\n";
    for (const ReportRow& row : report.rows) {
        const bool resolved = row.energy.resolved;
        text << kdvfs::detail::csv_field(row.kernel.name) << ',' << row.kernel.variant.index << ','
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
    out << text.str();
}

// What report.json has of each part of a report.

inline void write_fields(io::JsonFields& out, const EnergyEstimate& energy) {
    const auto known = [&](Joules joules) {
        return energy.resolved ? std::optional{joules} : std::nullopt;
    };
    out("joules", known(energy.joules))("half_width_95", known(energy.half_width));
    out("noise_half_width_95", known(energy.noise_half_width()));
    out("sensor_half_width_95", known(energy.sensor_half_width));
    out("status", energy.resolved ? "resolved" : "unresolved");
}

inline void write_fields(io::JsonFields& out, const GateRefusal& gate) {
    out("failed", gate.too_short ? "dwell" : "late_raise")("dwell_s", gate.dwell);
    out("switch_latency_s", gate.switch_latency)("least_latencies", gate.least_latencies);
    out("loss", gate.loss)("tolerated_loss", gate.tolerated_loss);
}

inline void write_fields(io::JsonFields& out, const KernelScopes& scopes) {
    out("asked", scopes.asked)("observed", scopes.observed)("missed", scopes.missed);
    out("switched", scopes.switched)("overtaken", scopes.overtaken);
    out("not_worth_it", scopes.not_worth_it)("gate", scopes.gate);
}

inline void write_fields(io::JsonFields& out, const RepeatedFigure& repeated) {
    out("power_w", repeated.power)("power_half_width_w", repeated.half_width);
    out("repeats", repeated.calls)("repeats_time_s", repeated.time);
    out("repeats_held_mhz", repeated.held);
}

inline void write_fields(io::JsonFields& out, const ClockShare& clock) {
    out("core_mhz", clock.clock)("share", clock.share);
}

inline std::optional<Seconds> known_time(Seconds time) {
    return time > Seconds{0} ? std::optional{time} : std::nullopt;
}

inline void write_fields(io::JsonFields& out, const ReportRow& row) {
    write_fields(out, row.kernel);
    out("calls", row.calls)("metered_calls", row.metered_calls)("time_s", row.time);
    out("call_time_half_width_s", known_time(row.call_time_half_width));
    out("counted_time_s", row.counted_time)("energy", row.energy)("repeated", row.repeated);
    // Each second name is the earlier one, kept until 0.4.
    for (const char* name : {"requested", "asked"}) out(name, row.asked);
    for (const char* name : {"reported", "applied"}) out(name, row.applied);
    for (const std::string name : {"measured", "held"}) {
        out(name + "_core_mhz", row.held)(name + "_share", row.held_share);
        out(name + "_clocks", row.held_clocks);
    }
    out("direct_power_w", row.direct_power)("direct_disagrees", row.direct_disagrees);
    out("kept", row.kept)("requested_share", row.asked_share)("asked_share", row.asked_share);
    out("scopes", row.scopes);
}

inline void write_fields(io::JsonFields& out, const KernelGroup& group) {
    out("kernels", group.kernels)("with_idle", group.with_idle)("energy", group.energy);
}

inline void write_fields(io::JsonFields& out, const EnergyLevel& level) {
    if (level.iteration) {
        out("level", "iteration")("kernel", std::nullopt)("variant", std::nullopt);
    } else {
        write_fields(out("level", "scope"), level.scope);
    }
    out("runs", level.runs)("time_s", level.time);
    out("run_time_half_width_s", known_time(level.run_time_half_width));
    out("counted_time_s", level.counted_time)("energy", level.energy);
    out("energy_per_run", level.per_run());
}

inline void write_fields(io::JsonFields& out, const ClockRest& rest) {
    out("clock", rest.clock)("time_s", rest.time)("energy", rest.energy);
}

inline void write_fields(io::JsonFields& out, const ReferenceTotals& reference) {
    out("name", reference.name)("joules", reference.joules)("time_s", reference.time);
    out("counter_j", reference.counter)("counter_time_s", reference.counter_time);
    out("counter_share", reference.ratio());
}

inline void write_fields(io::JsonFields& out, const EnergyTotals& totals) {
    out("counter_j", totals.counter)("kernels", totals.kernels)("idle", totals.idle);
    out("together", totals.together);
    out("unexplained_j", totals.unexplained);
    out("unexplained_half_width_j", totals.unexplained_half_width);
    out("counted_time_s", totals.counted_time)("idle_time_s", totals.idle_time);
    out("rests", totals.rests)("outside_j", totals.outside)("reference", totals.reference);
}

inline void write_fields(io::JsonFields& out, const FoundSensor& sensor) {
    out("delay_s", sensor.delay)("memory_s", sensor.memory);
    out("window_s", sensor.window)("rise_s", sensor.rise);
}

inline void write_fields(io::JsonFields& out, const AttributionFit& fit) {
    out("source", fit.source)("rows", fit.rows)("refused_rows", fit.refused_rows);
    out("refused_share", fit.refused_share())("autocorrelation", fit.autocorrelation);
    out("scatter_w", fit.scatter)("whitened", fit.whitened);
    out("repeated_scale", fit.repeated_scale)("repeated_spread", fit.repeated_spread);
    out("sensor", fit.sensor)("covariance_j2", fit.covariance);
}

inline void write_fields(io::JsonFields& out, const ScopeCounts& scopes) {
    out("scopes", scopes.scopes)("switches", scopes.switches);
    out("stream_redundant", scopes.stream_redundant)("device_redundant", scopes.device_redundant);
    out("not_worth_it", scopes.not_worth_it)("missed", scopes.missed);
    out("overtaken", scopes.overtaken)("pending", scopes.pending)("refused", scopes.refused);
    out("kept", scopes.kept)("captured", scopes.captured)("measured", scopes.measured);
    out("followed", scopes.followed)("unmetered", scopes.unmetered)("writes", scopes.writes);
    out("stream_elided", scopes.stream_redundant);  // earlier name, until 0.4
    out("device_elided", scopes.device_redundant);  // earlier name, until 0.4
}

inline void write_fields(io::JsonFields& out, const IdleClockShare& idle) {
    out("clock", idle.clock)("times", idle.times)("time_s", idle.time)("waking_s", idle.waking);
}

inline void write_fields(io::JsonFields& out, const FollowedShare& followed) {
    const auto mismatches = [&](io::JsonFields& all) {
        for (const auto& [kernel, times] : followed.mismatch) all(kernel, times);
    };
    out("share", followed.share())("launches", followed.launches);
    out("lost_launches", followed.lost_launches)("left_out", followed.left_out);
    out("added", followed.added)("swapped", followed.swapped)("replaced", followed.replaced);
    out("times_lost", followed.times_lost)("given_up", followed.given_up);
    out("mismatches", mismatches)("stumbled_over", mismatches);  // earlier name, until 0.4
}

KDVFS_INLINE void write_json(std::ostream& out, const Report& report) {
    std::string text;
    io::append_json(text, [&](io::JsonFields& fields) {
        fields("version", report_json_version);
        fields("device", [&](io::JsonFields& device) {
            const DeviceInfo& info = report.device;
            device("name", info.name)("address", info.address);
            device("architecture", info.architecture)("mechanism", info.mechanism);
            device("simulated", info.simulated);
        })("measure_only", report.measure_only);
        fields("scopes", report.scopes)("totals", report.totals)("fit", report.fit);
        fields("rows", io::JsonLines{report.rows})("groups", io::JsonLines{report.groups});
        fields("levels", io::JsonLines{report.levels})("followed", report.followed);
        fields("idle_clock", report.idle_clock)("notes", io::JsonLines{report.notes});
    });
    out << text << '\n';
}

namespace record_files {

template <class Write>
void write_file(const std::filesystem::path& path, Write write) {
    std::ofstream out{path};
    out.imbue(std::locale::classic());
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
