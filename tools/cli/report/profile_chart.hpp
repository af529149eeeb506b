// SPDX-License-Identifier: MIT
#pragma once

#include <tools/cli/report/chart_parts.hpp>

#include <cstddef>
#include <string>

namespace cli::report {

/// Power inside a kernel as `measure::write_profile_json` writes it: points, curves and bands.
/// @pre `json` is an object with a list `profiles`
inline Chart power_profile_chart(const nlohmann::json& json) {
    Json points = Json::array();
    Json curve = Json::array();
    Json names = Json::array();
    for (const auto& profile : json.at("profiles")) {
        const std::string name = profile.value("name", "") + ", " + profile.value("setting", "");
        names.push_back(name);
        const auto& measured = profile.at("points");
        // More dots than this no picture shows.
        const std::size_t stride = 1 + measured.size() / 2000;
        for (std::size_t i = 0; i < measured.size(); i += stride)
            points.push_back({{"name", name},
                              {"us", shown(measured[i].at(0).get<double>())},
                              {"watts", shown(measured[i].at(1).get<double>())}});
        for (const auto& point : profile.at("curve")) {
            const double watts = point.at(1).get<double>();
            const double half = point.at(2).is_number() ? point.at(2).get<double>() : 0;
            curve.push_back({{"name", name},
                             {"us", shown(point.at(0).get<double>())},
                             {"watts", shown(watts)},
                             {"low", shown(watts - half)},
                             {"high", shown(watts + half)}});
        }
    }
    const Json colour{{"field", "name"},
                      {"type", "nominal"},
                      {"title", nullptr},
                      {"scale", {{"domain", names}}},
                      {"legend", {{"orient", "top"}, {"columns", 2}}}};
    Json x = quantity("us", "time inside the kernel, us");
    x["scale"] = {{"nice", false}};
    const Json y = free_quantity("watts", "power, W");
    Json low = y;
    low["field"] = "low";
    Json spec = specification(Json::array());
    spec["width"] = chart_width;
    spec["height"] = 340;
    spec["layer"] = Json::array(
        {Json{{"data", {{"values", points}}},
              {"mark",
               {{"type", "point"},
                {"filled", true},
                {"size", 8},
                {"opacity", 0.45},
                {"aria", false}}},
              {"encoding", {{"x", x}, {"y", y}, {"color", colour}}}},
         Json{{"data", {{"values", curve}}},
              {"mark", {{"type", "area"}, {"opacity", 0.25}, {"aria", false}}},
              {"encoding", {{"x", x}, {"y", low}, {"y2", {{"field", "high"}}}, {"color", colour}}}},
         Json{{"data", {{"values", curve}}},
              {"mark", {{"type", "line"}, {"strokeWidth", 1.8}, {"aria", false}}},
              {"encoding", {{"x", x}, {"y", y}, {"color", colour}}}}});
    return {"profile", "Power inside a kernel",
            std::string{json.value("simulated", false) ? "Simulated. " : ""} +
                "Dots are samples at their place in the execution; the curve is their smoothed "
                "course with its 95 % band.",
            spec};
}

}  // namespace cli::report
