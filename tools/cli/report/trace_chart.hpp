// SPDX-License-Identifier: MIT
#pragma once

#include <tools/cli/report/chart_parts.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace cli::report {

/// What a trace (Chrome trace events, as `measure::TraceWriter` writes them) tells about power,
/// clocks and kernels. Times in microseconds.
struct TraceContent {
    struct Sample {
        double at = 0;
        double value = 0;
    };
    struct Kernel {
        double from = 0;
        double to = 0;
        unsigned stream = 0;
        std::string name;
        double held = 0;  ///< MHz; 0 = not known
    };
    std::string device;
    std::vector<Sample> power;
    std::vector<Kernel> kernels;
};

/// @pre `json` is an object with a list `traceEvents`
inline TraceContent trace_content(const nlohmann::json& json) {
    TraceContent trace;
    const auto device = json.find("otherData");
    if (device != json.end() && device->is_object()) trace.device = device->value("device", "");
    for (const auto& event : json.at("traceEvents")) {
        if (!event.is_object() || !event.contains("ts") || !event["ts"].is_number()) continue;
        const std::string phase = event.value("ph", "");
        const std::string name = event.value("name", "");
        const double at = event["ts"].get<double>();
        if (phase == "C" && event.contains("args") && event["args"].is_object()) {
            const auto value = event["args"].find("value");
            if (value == event["args"].end() || !value->is_number()) continue;
            if (name == "power W") trace.power.push_back({at, value->get<double>()});
        } else if (phase == "X" && event.value("cat", "") == "kernel") {
            const double held = event.contains("args") ? event["args"].value("held_mhz", 0.0) : 0.0;
            trace.kernels.push_back(
                {at, at + event.value("dur", 0.0), event.value("tid", 1U) - 1, name, held});
        }
    }
    const auto by_time = [](const auto& a, const auto& b) { return a.at < b.at; };
    std::stable_sort(trace.power.begin(), trace.power.end(), by_time);
    std::stable_sort(trace.kernels.begin(), trace.kernels.end(),
                     [](const auto& a, const auto& b) { return a.from < b.from; });
    return trace;
}

namespace trace_parts {

/// The stretch of a trace that is drawn: from the first kernel on, as many as a picture holds.
struct Window {
    double from = 0;
    double to = 0;
    std::size_t kernels = 0;
};

inline Window trace_window(const TraceContent& trace) {
    constexpr std::size_t most_kernels = 1200;
    constexpr std::size_t most_samples = 6000;
    Window window;
    if (!trace.kernels.empty()) {
        window.kernels = std::min(trace.kernels.size(), most_kernels);
        window.from = trace.kernels.front().from;
        for (std::size_t k = 0; k < window.kernels; ++k)
            window.to = std::max(window.to, trace.kernels[k].to);
    } else if (!trace.power.empty()) {
        window.from = trace.power.front().at;
        window.to = trace.power.back().at;
    }
    std::size_t inside = 0;
    for (const auto& sample : trace.power)
        if (sample.at >= window.from && sample.at <= window.to && ++inside > most_samples)
            window.to = sample.at;
    return window;
}

inline Json series_rows(const std::vector<TraceContent::Sample>& series, const Window& window,
                        double unit) {
    Json rows = Json::array();
    for (const auto& sample : series)
        if (sample.at >= window.from && sample.at <= window.to)
            rows.push_back(
                {{"at", shown((sample.at - window.from) * unit)}, {"value", shown(sample.value)}});
    return rows;
}

inline Json panel_axis(Json x) {
    x["axis"] = {{"labels", false}, {"title", nullptr}, {"tickCount", 8}};
    return x;
}

inline Json power_panel(const Json& rows, const Json& x) {
    Json time = panel_axis(x);
    time["field"] = "at";
    // A reading is the mean up to its moment.
    return {{"data", {{"values", rows}}},
            {"width", chart_width},
            {"height", 200},
            {"mark",
             {{"type", "line"},
              {"interpolate", "step-before"},
              {"strokeWidth", 1.4},
              {"clip", true},
              {"aria", false}}},
            {"encoding", {{"x", time}, {"y", quantity("value", "power, W")}}}};
}

/// The clock that held in each kernel.
inline Json clock_panel(const Json& rows, const Json& x) {
    Json y = free_quantity("held", "core MHz");
    y["axis"] = {{"tickCount", 4}, {"format", "d"}};
    return {{"data", {{"values", rows}}},
            {"transform", {{{"filter", "datum.held > 0"}}}},
            {"width", chart_width},
            {"height", 90},
            {"mark",
             {{"type", "line"},
              {"interpolate", "step-after"},
              {"strokeWidth", 1.2},
              {"clip", true},
              {"aria", false}}},
            {"encoding", {{"x", panel_axis(x)}, {"y", y}}}};
}

}  // namespace trace_parts

/// Power over time, the clock that held, and the kernels that ran, stream by stream.
inline Chart trace_chart(const TraceContent& trace) {
    const trace_parts::Window window = trace_parts::trace_window(trace);
    const double span = window.to - window.from;
    const bool in_seconds = span > 2e6;
    const double unit = in_seconds ? 1e-6 : 1e-3;
    std::map<std::string, double> busy;
    for (std::size_t k = 0; k < window.kernels; ++k)
        busy[trace.kernels[k].name] += trace.kernels[k].to - trace.kernels[k].from;
    std::vector<std::pair<double, std::string>> longest;
    for (const auto& [name, time] : busy) longest.emplace_back(-time, name);
    std::sort(longest.begin(), longest.end());
    Json order = Json::array();
    std::map<std::string, bool> named;
    for (std::size_t i = 0; i < std::min<std::size_t>(7, longest.size()); ++i) {
        order.push_back(longest[i].second);
        named[longest[i].second] = true;
    }
    if (longest.size() > 7) order.push_back("others");

    Json x = quantity("from", in_seconds ? "time, s" : "time, ms");
    x["scale"] = {{"domain", {0, shown(span * unit)}}, {"nice", false}};
    x["axis"] = {{"tickCount", 8}};
    Json panels = Json::array();
    const Json power = trace_parts::series_rows(trace.power, window, unit);
    if (!power.empty()) panels.push_back(trace_parts::power_panel(power, x));
    Json rows = Json::array();
    for (std::size_t k = 0; k < window.kernels; ++k) {
        const auto& kernel = trace.kernels[k];
        rows.push_back({{"kernel", kernel.name},
                        {"colour", named.contains(kernel.name) ? kernel.name : "others"},
                        {"stream", "stream " + std::to_string(kernel.stream)},
                        {"held", shown(kernel.held)},
                        {"from", shown((kernel.from - window.from) * unit)},
                        {"to", shown((kernel.to - window.from) * unit)}});
    }
    bool held = false;
    for (std::size_t k = 0; k < window.kernels; ++k) held = held || trace.kernels[k].held > 0;
    if (held) panels.push_back(trace_parts::clock_panel(rows, x));
    if (!rows.empty())
        panels.push_back(
            {{"data", {{"values", rows}}},
             {"width", chart_width},
             {"height", {{"step", 24}}},
             {"mark", {{"type", "rect"}, {"clip", true}, {"aria", false}}},
             {"encoding",
              {{"x", x},
               {"x2", {{"field", "to"}}},
               {"y", {{"field", "stream"}, {"type", "nominal"}, {"title", nullptr}}},
               {"color",
                {{"field", "colour"},
                 {"type", "nominal"},
                 {"title", nullptr},
                 {"scale", {{"domain", order}}},
                 {"legend", {{"orient", "bottom"}, {"columns", 4}}}}},
               {"tooltip", tooltip({{"kernel", "kernel"}, {"from", "from"}, {"to", "to"}})}}}});
    Json spec = specification(Json::array());
    spec["vconcat"] = panels;
    spec["spacing"] = 8;
    std::string caption = "As traced";
    if (!trace.device.empty()) caption += " on " + trace.device;
    caption += ". Power is the mean since the reading before.";
    if (window.kernels < trace.kernels.size())
        caption += " Drawn are the first " + std::to_string(window.kernels) + " of " +
                   std::to_string(trace.kernels.size()) + " kernels.";
    return {"trace", "Power over time, with kernels", caption, spec};
}

}  // namespace cli::report
