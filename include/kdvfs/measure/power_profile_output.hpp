// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/measure/power_profile.hpp>

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::measure {

/// Every stitched point: time_us, then watts per component.
inline void write_profile_csv(std::ostream& out, const PowerProfile& profile) {
    out << "time_us";
    for (const std::string& component : profile.components)
        out << ',' << kdvfs::detail::csv_field(component + "_w");
    out << '\n';
    for (const PowerProfile::Point& point : profile.points) {
        out << kdvfs::detail::json_number(Seconds{point.time}.count() * 1e6);
        for (const double watts : point.watts) out << ',' << kdvfs::detail::json_number(watts);
        out << '\n';
    }
}

/// A profile with the name that a drawing gives it: "SSE", "SSP".
struct NamedProfile {
    std::string name;
    const PowerProfile* profile;
    std::size_t component = 0;
};

/// "isolated", or "after" the kernels that ran before.
inline std::string setting_of(const PowerProfile& profile) {
    std::string text;
    for (const std::string& kernel : profile.ran_before) {
        text += (text.empty() ? "after " : ", ") + kernel;
    }
    return text.empty() ? "isolated" : text;
}

/// Profiles as one JSON object: of each its points (us, W) and its smoothed curve with the half
/// width of its 95 % band (us, W, W). `kdvfs report` draws it.
inline void write_profile_json(std::ostream& out, const std::vector<NamedProfile>& profiles,
                               bool simulated) {
    const auto microseconds = [](double seconds) {
        return kdvfs::detail::json_number(seconds * 1e6);
    };
    out << R"({"simulated":)" << (simulated ? "true" : "false") << R"(,"profiles":[)";
    std::string_view comma;
    for (const auto& [name, profile, component] : profiles) {
        out << comma << "\n{\"name\":" << kdvfs::detail::json_string(name) << R"(,"setting":)"
            << kdvfs::detail::json_string(setting_of(*profile)) << R"(,"duration_us":)"
            << microseconds(Seconds{profile->duration}.count()) << R"(,"points":[)";
        comma = "";
        for (const PowerProfile::Point& point : profile->points) {
            out << comma << '[' << microseconds(Seconds{point.time}.count()) << ','
                << kdvfs::detail::json_number(point.watts[component]) << ']';
            comma = ",";
        }
        out << R"(],"curve":[)";
        comma = "";
        if (component < profile->curves.size()) {
            for (const auto& p : profile->curves[component].points) {
                out << comma << '[' << microseconds(p.x) << ',' << kdvfs::detail::json_number(p.y)
                    << ',' << kdvfs::detail::json_number(p.half_width) << ']';
                comma = ",";
            }
        }
        out << "]}";
        comma = ",";
    }
    out << "]}\n";
}

}  // namespace kdvfs::measure
