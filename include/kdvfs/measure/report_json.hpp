// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/report.hpp>
#include <kdvfs/measure/text_escape.hpp>

#include <ostream>
#include <string_view>
#include <vector>

namespace kdvfs::measure {

namespace report_json {

inline void put(std::ostream& out, const EnergyEstimate& energy) {
    if (energy.told) {
        out << R"({"joules":)" << json_number(energy.joules.count) << R"(,"half_width_95":)"
            << json_number(energy.half_width.count) << R"(,"status":"told"})";
    } else {
        out << R"({"joules":null,"half_width_95":null,"status":"too_short_to_tell"})";
    }
}

inline void put(std::ostream& out, ClockPoint point) {
    out << R"({"core_mhz":)" << point.core.count << R"(,"memory_mhz":)" << point.memory.count
        << '}';
}

inline void put(std::ostream& out, const KernelKey& key) {
    out << R"("kernel":)" << json_string(key.name) << R"(,"variant":)" << key.variant.index;
}

inline void put(std::ostream& out, const ReportRow& row) {
    out << '{';
    put(out, row.kernel);
    out << R"(,"calls":)" << row.calls << R"(,"metered_calls":)" << row.metered_calls
        << R"(,"time_s":)" << json_number(row.time.count()) << R"(,"counted_time_s":)"
        << json_number(row.counted_time.count()) << R"(,"energy":)";
    put(out, row.energy);
    out << R"(,"asked":)";
    put(out, row.asked);
    out << R"(,"applied":)";
    put(out, row.applied);
    out << R"(,"held_core_mhz":)" << row.held.count << R"(,"held_share":)"
        << json_number(row.held_share) << R"(,"direct_power_w":)"
        << (row.direct_power ? json_number(row.direct_power->count) : "null")
        << R"(,"direct_disagrees":)" << (row.direct_disagrees ? "true" : "false") << R"(,"kept":)"
        << (row.kept ? "true" : "false") << '}';
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

inline void put(std::ostream& out, const EnergyTotals& totals) {
    out << R"({"counter_j":)" << json_number(totals.counter.count) << R"(,"kernels":)";
    put(out, totals.kernels);
    out << R"(,"idle":)";
    put(out, totals.idle);
    out << R"(,"unexplained_j":)" << json_number(totals.unexplained.count)
        << R"(,"counted_time_s":)" << json_number(totals.counted_time.count())
        << R"(,"idle_time_s":)" << json_number(totals.idle_time.count()) << R"(,"outside_j":)"
        << json_number(totals.outside.count) << '}';
}

inline void put(std::ostream& out, const AttributionFit& fit) {
    out << R"({"source":)" << json_string(fit.source) << R"(,"rows":)" << fit.rows
        << R"(,"refused_rows":)" << fit.refused_rows << R"(,"refused_share":)"
        << json_number(fit.refused_share()) << R"(,"autocorrelation":)"
        << json_number(fit.autocorrelation) << R"(,"scatter_w":)" << json_number(fit.scatter.count)
        << R"(,"whitened":)" << (fit.whitened ? "true" : "false") << R"(,"covariance_j2":[)";
    const char* line = "";
    for (const std::vector<double>& row : fit.covariance) {
        out << line;
        const char* comma = "[";
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
        << R"(,"stream_elided":)" << scopes.stream_elided << R"(,"device_elided":)"
        << scopes.device_elided << R"(,"not_worth_it":)" << scopes.not_worth_it << R"(,"refused":)"
        << scopes.refused << R"(,"kept":)" << scopes.kept << R"(,"captured":)" << scopes.captured
        << R"(,"unmetered":)" << scopes.unmetered << '}';
}

inline void put(std::ostream& out, const std::string& text) { out << json_string(text); }

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

/// The whole report as one JSON object. An energy that was not told is null, never 0.
inline void write_json(std::ostream& out, const Report& report) {
    const DeviceInfo& device = report.device;
    out << R"({"device":{"name":)" << json_string(device.name) << R"(,"address":)"
        << json_string(device.address) << R"(,"architecture":)" << json_string(device.architecture)
        << R"(,"mechanism":)" << json_string(device.mechanism) << R"(,"simulated":)"
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
    out << R"(,"notes":)";
    report_json::put_list(out, report.notes);
    out << "}\n";
}

}  // namespace kdvfs::measure
