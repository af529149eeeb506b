// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <tools/cli/report/page.hpp>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>

/// What the charts' Vega-Lite specifications have in common.
namespace cli::report {

inline constexpr int chart_width = 880;

/// A number as a specification holds it: six digits are more than a picture shows.
inline Json shown(double value) {
    if (!std::isfinite(value)) return nullptr;
    return std::strtod(kdvfs::io::format_text("%.6g", value).c_str(), nullptr) + 0.0;  // no "-0"
}

/// "+1.25 %"
inline std::string percent_text(double percent, int digits = 2) {
    return kdvfs::io::format_text("%+.*f %%", digits, percent);
}

/// "1 point", "2 points"
inline std::string count_text(std::size_t count, const std::string& one) {
    return std::to_string(count) + ' ' + one + (count == 1 ? "" : "s");
}

inline Json specification(Json data) {
    return {{"$schema", "https://vega.github.io/schema/vega-lite/v6.json"},
            {"data", {{"values", std::move(data)}}}};
}

/// One picture below the other for each value of a field, named above it.
inline Json rows_of(const std::string& field) {
    return {{"row",
             {{"field", field},
              {"type", "nominal"},
              {"title", nullptr},
              {"header",
               {{"labelAngle", 0},
                {"labelAnchor", "start"},
                {"labelOrient", "top"},
                {"labelFontWeight", 600}}}}}};
}

inline Json quantity(const std::string& field, const std::string& title) {
    Json channel{{"field", field}, {"type", "quantitative"}};
    if (title.empty())
        channel["title"] = nullptr;
    else
        channel["title"] = title;
    return channel;
}

/// The colour of a kernel, with a legend below the chart in this order.
inline Json kernel_colour(const Json& order) {
    return {{"field", "colour"},
            {"type", "nominal"},
            {"title", nullptr},
            {"scale", {{"domain", order}}},
            {"legend", {{"orient", "bottom"}, {"columns", 4}, {"symbolType", "square"}}}};
}

/// An axis that need not begin at zero.
inline Json free_quantity(const std::string& field, const std::string& title) {
    Json channel = quantity(field, title);
    channel["scale"] = {{"zero", false}, {"nice", true}};
    return channel;
}

/// A round range around values, so that ticks fall on its ends and no point is cut by them.
inline Json round_domain(double low, double high, double highest = 1e9) {
    constexpr double margin = 0.02;
    const double span = std::max(high - low, 0.1);
    low -= margin * span;
    high = std::min(high + margin * span, highest);
    const double power = std::pow(10.0, std::floor(std::log10(span / 5)));
    const double leading = span / 5 / power;
    const double step = power * (leading < 2 ? 1 : leading < 5 ? 2 : 5);
    return {shown(step * std::floor(low / step + 1e-9)),
            shown(step * std::ceil(high / step - 1e-9))};
}

/// Categories in the order of the data.
inline Json category(const std::string& field, const std::string& title) {
    Json channel{{"field", field}, {"type", "nominal"}, {"sort", nullptr}};
    if (title.empty())
        channel["title"] = nullptr;
    else
        channel["title"] = title;
    return channel;
}

/// What the pointer shows of a mark: pairs of field and title.
inline Json tooltip(std::initializer_list<std::pair<const char*, const char*>> fields) {
    Json list = Json::array();
    for (const auto& [field, title] : fields) list.push_back({{"field", field}, {"title", title}});
    return list;
}

/// A dashed line where nothing changes; `axis` is "x" or "y".
inline Json zero_line(const char* axis) {
    return {{"data", {{"values", Json::array({Json{{"zero", 0}}})}}},
            {"mark", {{"type", "rule"}, {"strokeDash", {4, 3}}, {"aria", false}}},
            {"encoding", {{axis, {{"field", "zero"}, {"type", "quantitative"}}}}}};
}

inline std::string fixed_text(double value, int digits = 1) {
    return kdvfs::io::format_text("%.*f", digits, value);
}

/// A value with its interval for each kernel, downwards: `field`, `field`_low and `field`_high of
/// the data. `mark` is "bar" or "point"; side by side only the first panel names the kernels.
inline Json kernel_panel(const std::string& field, const char* title, const std::string& mark,
                         int width, bool with_names, const Json& tips) {
    Json y = category("kernel", "");
    y["axis"] = with_names ? Json{{"labelLimit", 220}, {"labelOverlap", false}} : Json(nullptr);
    Json x = quantity(field, title);
    x["axis"] = {{"tickCount", width / 60}};
    const Json interval{
        {"x", quantity(field + "_low", title)}, {"x2", {{"field", field + "_high"}}}, {"y", y}};
    Json shape{{"type", mark}, {"aria", false}};
    if (mark == "point") {
        shape["filled"] = true;
        shape["size"] = 45;
    }
    const Json rule{{"type", "rule"}, {"strokeWidth", 1.2}, {"aria", false}};
    return {
        {"width", width},
        {"height", {{"step", 14}}},
        {"layer",
         Json::array({zero_line("x"),
                      Json{{"mark", shape}, {"encoding", {{"x", x}, {"y", y}, {"tooltip", tips}}}},
                      Json{{"mark", rule}, {"encoding", interval}}})}};
}

}  // namespace cli::report
