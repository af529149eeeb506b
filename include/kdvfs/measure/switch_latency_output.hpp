// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/device_info.hpp>
#include <kdvfs/measure/switch_latency.hpp>
#include <kdvfs/measure/text_escape.hpp>

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::measure {

/// The matrix as a JSON object: the device, and an entry per pair, in seconds; what was not
/// measured is null. `kdvfs report` draws it.
inline void write_switch_json(std::ostream& out, const DeviceInfo& device,
                              const std::vector<SwitchLatency>& latencies) {
    const auto seconds = [](const SwitchLatency& entry, Duration time) {
        return entry.status == SwitchStatus::measured ? json_number(Seconds{time}.count())
                                                      : std::string{"null"};
    };
    const auto point = [](ClockPoint clock) {
        return R"({"core_mhz":)" + std::to_string(clock.core.count) + R"(,"memory_mhz":)" +
               std::to_string(clock.memory.count) + '}';
    };
    out << R"({"device":)" << json_string(to_string(device)) << R"(,"mechanism":)"
        << json_string(device.mechanism) << R"(,"simulated":)"
        << (device.simulated ? "true" : "false") << R"(,"pairs":[)";
    std::string_view comma;
    for (const SwitchLatency& entry : latencies) {
        out << comma << "\n{\"from\":" << point(entry.from) << R"(,"to":)" << point(entry.to)
            << R"(,"status":")" << to_string(entry.status) << R"(","switching_s":)"
            << seconds(entry, entry.switching) << R"(,"switching_low_s":)"
            << seconds(entry, entry.switching_low) << R"(,"switching_high_s":)"
            << seconds(entry, entry.switching_high) << R"(,"transition_s":)"
            << seconds(entry, entry.transition) << R"(,"iteration_s":)"
            << json_number(Seconds{entry.iteration}.count()) << R"(,"repetitions":)"
            << entry.repetitions << R"(,"outliers":)" << entry.outliers << '}';
        comma = ",";
    }
    out << "]}\n";
}

}  // namespace kdvfs::measure
