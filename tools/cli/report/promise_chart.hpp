// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/validation.hpp>
#include <tools/cli/report/chart_parts.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cli::report {

/// A validation and what the chart calls it.
struct NamedValidation {
    std::string name;
    kdvfs::tune::Validation found;
};

/// What plans promised beside what fresh runs found.
inline Chart promise_chart(const std::vector<NamedValidation>& validations) {
    Json rows = Json::array();
    std::map<std::string, std::pair<double, double>> ranges;
    for (const auto& [name, found] : validations) {
        const auto add = [&, label = name](const char* what, double promised,
                                           const kdvfs::tune::PercentInterval& kept) {
            auto& [low, high] = ranges.try_emplace(what, promised, promised).first->second;
            low = std::min({low, promised, kept.is_known() ? kept.low : kept.mean});
            high = std::max({high, promised, kept.is_known() ? kept.high : kept.mean});
            rows.push_back({{"plan", label},
                            {"what", what},
                            {"kind", "promised"},
                            {"percent", shown(promised)}});
            rows.push_back({{"plan", label},
                            {"what", what},
                            {"kind", "kept"},
                            {"percent", shown(kept.mean)},
                            {"low", shown(kept.low)},
                            {"high", shown(kept.high)}});
        };
        add("energy", found.promised_energy_pct, found.energy);
        add("time", found.promised_time_pct, found.time);
    }
    const Json y{{"field", "plan"},
                 {"type", "nominal"},
                 {"sort", nullptr},
                 {"title", nullptr},
                 {"axis", {{"labelLimit", 220}}}};
    const Json kind{{"field", "kind"},
                    {"type", "nominal"},
                    {"title", nullptr},
                    {"scale", {{"domain", {"promised", "kept"}}}},
                    {"legend", {{"orient", "top"}}}};
    Json shape = kind;
    shape["scale"]["range"] = {"diamond", "circle"};
    const Json offset{{"field", "kind"}, {"scale", {{"domain", {"promised", "kept"}}}}};
    Json panels = Json::array();
    for (const char* what : {"energy", "time"}) {
        const auto [low, high] = ranges[what];
        constexpr double least = 1;  // points: what is nearly the same shall look so
        const double wider = std::max(0.0, least - (high - low)) / 2;
        Json x = quantity("percent", "% against the baseline");
        x["scale"] = {
            {"domain", round_domain(low - wider, high + wider)}, {"nice", false}, {"zero", false}};
        x["axis"] = {{"tickCount", 8}};
        Json ends{
            {"x", x}, {"x2", {{"field", "high"}}}, {"y", y}, {"yOffset", offset}, {"color", kind}};
        ends["x"]["field"] = "low";
        const Json points{{"x", x},
                          {"y", y},
                          {"yOffset", offset},
                          {"color", kind},
                          {"shape", shape},
                          {"tooltip", tooltip({{"plan", "plan"},
                                               {"kind", "what"},
                                               {"percent", "%"},
                                               {"low", "from"},
                                               {"high", "to"}})}};
        panels.push_back(
            {{"title", what},
             {"transform", {{{"filter", std::string{"datum.what === '"} + what + "'"}}}},
             {"width", 640},
             {"height", {{"step", 34}, {"for", "position"}}},
             {"layer",
              {{{"transform", {{{"filter", "datum.kind === 'kept'"}}}},
                {"mark", {{"type", "rule"}, {"strokeWidth", 2}, {"aria", false}}},
                {"encoding", ends}},
               {{"mark", {{"type", "point"}, {"filled", true}, {"size", 90}}},
                {"encoding", points}}}}});
    }
    Json spec = specification(rows);
    spec["vconcat"] = panels;
    return {"promises", "Promised and kept",
            "What plans promised, and what fresh runs in alternating pairs found, with 95 % "
            "intervals.",
            spec};
}

}  // namespace cli::report
