// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <tools/cli/report/chart_parts.hpp>

#include <set>
#include <string>
#include <vector>

namespace cli::report {

/// Switching latencies as `measure::write_switch_json` writes them.
struct SwitchTable {
    struct Pair {
        kdvfs::ClockPoint from;
        kdvfs::ClockPoint to;
        double milliseconds = 0;  ///< 0 = not measured
    };
    std::string device;
    bool simulated = false;
    std::vector<Pair> pairs;
};

/// @pre `json` is an object with a list `pairs`
inline SwitchTable switch_table(const nlohmann::json& json) {
    const auto clock = [](const nlohmann::json& point) {
        return kdvfs::ClockPoint{{point.at("core_mhz").get<std::uint32_t>()},
                                 {point.at("memory_mhz").get<std::uint32_t>()}};
    };
    SwitchTable table{json.value("device", ""), json.value("simulated", false), {}};
    for (const auto& pair : json.at("pairs")) {
        const auto& seconds = pair.at("switching_s");
        table.pairs.push_back({clock(pair.at("from")), clock(pair.at("to")),
                               seconds.is_number() ? 1e3 * seconds.get<double>() : 0});
    }
    return table;
}

/// A heat map of the latencies, from a clock (rows) to another (columns).
inline Chart switch_chart(const SwitchTable& table) {
    std::set<kdvfs::ClockPoint> clocks;
    for (const auto& pair : table.pairs) clocks.insert({pair.from, pair.to});
    const auto name = [](kdvfs::ClockPoint point) {
        const auto one = [](kdvfs::Megahertz clock) {
            return clock == kdvfs::auto_clock ? "auto" : std::to_string(clock.count);
        };
        return point.memory == kdvfs::auto_clock ? one(point.core)
                                                 : one(point.core) + '/' + one(point.memory);
    };
    Json order = Json::array();
    for (const auto clock : clocks) order.push_back(name(clock));
    Json rows = Json::array();
    for (const auto& pair : table.pairs) {
        Json row{{"from", name(pair.from)}, {"to", name(pair.to)}};
        if (pair.milliseconds > 0) row["ms"] = shown(std::round(1000 * pair.milliseconds) / 1000);
        rows.push_back(std::move(row));
    }
    const Json x{{"field", "to"},
                 {"type", "ordinal"},
                 {"title", "to core/memory MHz"},
                 {"sort", order},
                 {"axis", {{"labelAngle", 0}, {"orient", "top"}}}};
    const Json y{
        {"field", "from"}, {"type", "ordinal"}, {"title", "from core/memory MHz"}, {"sort", order}};
    const Json colour{{"field", "ms"},
                      {"type", "quantitative"},
                      {"title", "ms"},
                      {"scale", {{"type", "log"}, {"range", "ramp"}}},
                      {"legend", {{"tickCount", 4}}}};
    Json spec = specification(rows);
    spec["width"] = Json{{"step", 64}};
    spec["height"] = Json{{"step", 36}};
    spec["encoding"] = {{"x", x}, {"y", y}};
    spec["layer"] =
        Json::array({Json{{"transform", {{{"filter", "datum.ms > 0"}}}},
                          {"mark", {{"type", "rect"}, {"aria", false}}},
                          {"encoding",
                           {{"color", colour},
                            {"tooltip", tooltip({{"from", "from"}, {"to", "to"}, {"ms", "ms"}})}}}},
                     Json{{"transform", {{{"filter", "!(datum.ms > 0)"}}}},
                          {"mark", {{"type", "text"}, {"style", "soft"}, {"aria", false}}},
                          {"encoding", {{"text", {{"value", "none"}}}}}}});
    return {"switches", "Switching latency",
            "Time from the call to its effect, from one clock (rows) to another (columns), on " +
                table.device +
                (table.simulated && !table.device.ends_with("(simulated)") ? " (simulated)" : "") +
                ". \"none\": not measured, or no effect was seen.",
            spec};
}

}  // namespace cli::report
