// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/svg.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/measure/power_profile.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <ostream>
#include <string>
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

/// A profile with the name that the drawing gives it: "SSE", "SSP".
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

/// Time inside the kernel against watts of a component: points, smoothed curve and its 95 % band
/// for each profile.
inline void write_profile_svg(std::ostream& out, const std::vector<NamedProfile>& profiles,
                              bool simulated) {
    constexpr std::array colours{"#1f77b4", "#d62728", "#2ca02c", "#9467bd"};
    kdvfs::detail::SvgPlot plot{out, "time inside the kernel, us",
                                simulated ? "W (simulated)" : "W"};
    for (const auto& [name, profile, component] : profiles) {
        plot.include(0, 0);
        plot.include(Seconds{profile->duration}.count() * 1e6, 0);
        for (const PowerProfile::Point& point : profile->points) {
            plot.include(Seconds{point.time}.count() * 1e6, 1.05 * point.watts[component]);
        }
    }
    plot.axes();
    for (std::size_t i = 0; i < profiles.size(); ++i) {
        const PowerProfile& profile = *profiles[i].profile;
        const std::size_t component = profiles[i].component;
        const char* colour = colours[i % colours.size()];
        std::vector<kdvfs::detail::SvgPlot::Point> band;
        std::vector<kdvfs::detail::SvgPlot::Point> curve;
        if (component < profile.curves.size()) {
            const auto& points = profile.curves[component].points;
            for (const auto& p : points) {
                curve.push_back({p.x * 1e6, p.y});
                band.push_back({p.x * 1e6, p.y + p.half_width});
            }
            for (auto p = points.rbegin(); p != points.rend(); ++p) {
                band.push_back({p->x * 1e6, p->y - p->half_width});
            }
        }
        plot.area(band, colour);
        for (const PowerProfile::Point& point : profile.points) {
            plot.dot({Seconds{point.time}.count() * 1e6, point.watts[component]}, colour);
        }
        plot.line(curve, colour);
        plot.legend(i, profiles[i].name + ", " + setting_of(profile), colour);
    }
    plot.close();
}

}  // namespace kdvfs::measure
