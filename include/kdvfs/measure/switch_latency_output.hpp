// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/device_info.hpp>
#include <kdvfs/measure/svg.hpp>
#include <kdvfs/measure/switch_latency.hpp>
#include <kdvfs/measure/text_escape.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::measure {

/// The matrix as a JSON object: the device, and an entry per pair, in seconds; what was not
/// measured is null.
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

/// A heat map: from, downwards, to, rightwards; the colour is the logarithm of the switching
/// latency, the number its milliseconds. Pairs that were not measured are grey.
inline void write_switch_svg(std::ostream& out, const DeviceInfo& device,
                             const std::vector<SwitchLatency>& latencies) {
    std::vector<ClockPoint> clocks;
    double least = 1e9;
    double most = 0;
    for (const SwitchLatency& entry : latencies) {
        for (const ClockPoint clock : {entry.from, entry.to}) {
            if (std::find(clocks.begin(), clocks.end(), clock) == clocks.end()) {
                clocks.push_back(clock);
            }
        }
        if (entry.status != SwitchStatus::measured) continue;
        const double milliseconds = std::max(1e-3, Seconds{entry.switching}.count() * 1e3);
        least = std::min(least, milliseconds);
        most = std::max(most, milliseconds);
    }
    std::sort(clocks.begin(), clocks.end());
    constexpr std::size_t cell = 48;
    constexpr std::size_t margin = 96;
    const auto place = [&](ClockPoint clock) {
        const auto at = std::find(clocks.begin(), clocks.end(), clock) - clocks.begin();
        return margin + cell * static_cast<std::size_t>(at);
    };
    const auto name = [](ClockPoint clock) {
        const auto one = [](Megahertz m) {
            return m == auto_clock ? std::string{"auto"} : std::to_string(m.count);
        };
        return clock.memory == auto_clock ? one(clock.core)
                                          : one(clock.core) + '/' + one(clock.memory);
    };
    constexpr std::size_t narrowest = 400;  // for the words above
    const std::size_t size = std::max(narrowest, margin + cell * clocks.size() + 8);
    out << R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 )" << size << ' ' << size + 24
        << R"(" font-family="sans-serif" font-size="11" text-anchor="middle">)" << '\n'
        << R"(<rect width="100%" height="100%" fill="white"/><text x="4" y="16" text-anchor="start" font-size="13">)"
        << (device.simulated ? "SIMULATED " : "") << xml_text(to_string(device)) << "</text>\n"
        << R"(<text x="4" y="34" text-anchor="start">switching latency in ms, from a core clock )"
        << "(MHz, down) to another (right)</text>\n";

    for (const ClockPoint clock : clocks) {
        out << "<text x=\"" << place(clock) + cell / 2 << "\" y=\"" << margin - 8 << "\">"
            << name(clock) << "</text><text x=\"" << margin / 2 << "\" y=\""
            << place(clock) + cell / 2 + 4 << "\">" << name(clock) << "</text>\n";
    }
    for (const SwitchLatency& entry : latencies) {
        const bool measured = entry.status == SwitchStatus::measured;
        const double milliseconds = std::max(1e-3, Seconds{entry.switching}.count() * 1e3);
        const double heat =
            most > least ? std::log(milliseconds / least) / std::log(most / least) : 0;
        const auto cold = static_cast<int>(std::lround(235 - 180 * std::clamp(heat, 0.0, 1.0)));
        out << "<rect width=\"" << cell - 2 << "\" height=\"" << cell - 2 << "\" x=\""
            << place(entry.to) << "\" y=\"" << place(entry.from) << "\" fill=\"";
        if (measured) {
            out << "rgb(245," << cold << ',' << cold / 2 << ")\"/>";
        } else {
            out << "#ccc\"/>";
        }
        const double shown = std::round(milliseconds * 100) / 100;
        out << "<text x=\"" << place(entry.to) + cell / 2 << "\" y=\""
            << place(entry.from) + cell / 2 + 4 << "\">" << (measured ? json_number(shown) : "-")
            << "</text>\n";
    }
    out << "</svg>\n";
}

}  // namespace kdvfs::measure
