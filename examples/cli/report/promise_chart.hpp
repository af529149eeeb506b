// SPDX-License-Identifier: MIT
#pragma once

#include <examples/cli/report/chart_parts.hpp>
#include <kdvfs/tune/validation.hpp>

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
    for (const auto& [name, found] : validations) {
        const auto add = [&, label = name](const char* what, double promised,
                                           const kdvfs::tune::PercentInterval& kept) {
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
    Json x = free_quantity("percent", "% against the baseline");
    x["axis"] = {{"tickCount", 8}};
    Json shape = kind;
    shape["scale"]["range"] = {"diamond", "circle"};
    Json ends{{"x", free_quantity("low", "% against the baseline")},
              {"x2", {{"field", "high"}}},
              {"y", y},
              {"yOffset", {{"field", "kind"}, {"scale", {{"domain", {"promised", "kept"}}}}}},
              {"color", kind}};
    Json spec = specification(rows);
    spec["facet"] = rows_of("what");
    spec["resolve"] = {{"scale", {{"x", "independent"}}}};
    spec["spec"] = {{"width", 640},
                    {"height", {{"step", 34}, {"for", "position"}}},
                    {"layer",
                     {{{"transform", {{{"filter", "datum.kind === 'kept'"}}}},
                       {"mark", {{"type", "rule"}, {"strokeWidth", 2}, {"aria", false}}},
                       {"encoding", ends}},
                      {{"mark", {{"type", "point"}, {"filled", true}, {"size", 90}}},
                       {"encoding",
                        {{"x", x},
                         {"y", y},
                         {"yOffset", ends["yOffset"]},
                         {"color", kind},
                         {"shape", shape},
                         {"tooltip", tooltip({{"plan", "plan"},
                                              {"kind", "what"},
                                              {"percent", "%"},
                                              {"low", "from"},
                                              {"high", "to"}})}}}}}}};
    return {"promises", "Promised and kept",
            "What plans promised, and what fresh runs in alternating pairs found, with 95 % "
            "intervals.",
            spec};
}

}  // namespace cli::report
