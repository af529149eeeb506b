// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/objective.hpp>
#include <kdvfs/tune/planner.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::tune {

/// Points and lines in percent of change against the baseline: what `to_svg` draws.
struct FrontierPlot {
    struct Point {
        double x = 0;
        double y = 0;
    };
    struct Mark {
        std::string label;
        Point at;
    };
    std::string title;
    std::vector<Point> frontier;   ///< time %, energy %
    std::vector<Mark> marks;       ///< plans, in the same plane
    std::vector<Point> tolerance;  ///< tolerated slowdown %, energy %
};

/// The frontier of a table up to half as slow again, the plans for strict waste on it, and what
/// each tolerated slowdown up to 10 % saves.
inline FrontierPlot frontier_plot(const CostTable& table) {
    const Cost baseline = table.baseline_cost();
    FrontierPlot plot{table.gpu + ": strict waste and the frontier", {}, {}, {}};
    for (const Cost& cost : time_energy_frontier(table)) {
        const FrontierPlot::Point point{time_percent(cost, baseline),
                                        energy_percent(cost, baseline)};
        if (point.x <= 50) plot.frontier.push_back(point);
    }
    const Plans plans = make_plans(table, strict_waste());
    for (const Aggregate aggregate : all_aggregates) {
        plot.marks.push_back({std::string{to_string(aggregate)},
                              {plans[aggregate].time_pct(), plans[aggregate].energy_pct()}});
    }
    for (int percent = 0; percent <= 10; ++percent) {
        const Plan plan = make_plan(table, relaxed_waste(0.01 * percent), Aggregate::global);
        plot.tolerance.push_back({static_cast<double>(percent), plan.energy_pct()});
    }
    return plot;
}

/// What a plan file alone can tell: the baseline, the plan, and its alternatives.
inline FrontierPlot plan_plot(const Plan& plan,
                              const std::vector<std::pair<Aggregate, Cost>>& alternatives) {
    FrontierPlot plot{plan.gpu + ": " + plan.objective, {}, {{"auto", {}}}, {}};
    const auto mark = [&](std::string label, const Cost& cost) {
        plot.marks.push_back(
            {std::move(label),
             {time_percent(cost, plan.baseline), energy_percent(cost, plan.baseline)}});
    };
    for (const auto& [aggregate, cost] : alternatives)
        mark(std::string{to_string(aggregate)}, cost);
    if (alternatives.empty()) mark(std::string{to_string(plan.aggregate)}, plan.expected);
    return plot;
}

namespace detail {

/// Text between tags: what means something to XML is escaped, control characters are dropped.
inline std::string to_xml(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        if (c == '&')
            escaped += "&amp;";
        else if (c == '<')
            escaped += "&lt;";
        else if (c == '>')
            escaped += "&gt;";
        else if (c == '"')
            escaped += "&quot;";
        else if (static_cast<unsigned char>(c) >= ' ')
            escaped += c;
    }
    return escaped;
}

/// A rectangle of the drawing with axes of its own, both in percent.
class SvgPanel {
public:
    SvgPanel(std::ostream& out, double left, const std::vector<FrontierPlot::Point>& points)
        : out_{out}, left_{left} {
        for (const FrontierPlot::Point& point : points) {
            x_.extend(point.x);
            y_.extend(point.y);
        }
        x_.pad();
        y_.pad();
    }

    void axes(const char* title, const char* x_label, const char* y_label) {
        out_ << "<text class=\"t\" x=\"" << left_ << "\" y=\"" << top_ - 12 << "\">" << title
             << "</text>\n<rect x=\"" << left_ << "\" y=\"" << top_ << "\" width=\"" << width_
             << "\" height=\"" << height_ << "\" fill=\"none\" stroke=\"#999\"/>\n";
        for (int tick = 0; tick <= 4; ++tick) {
            const double x = x_.low + tick * (x_.high - x_.low) / 4;
            const double y = y_.low + tick * (y_.high - y_.low) / 4;
            text(across(x), top_ + height_ + 16, "middle", number(x));
            text(left_ - 6, down(y) + 4, "end", number(y));
        }
        text(left_ + width_ / 2, top_ + height_ + 36, "middle", x_label);
        text(left_, top_ + height_ + 36, "end", y_label);
    }
    void line(const std::vector<FrontierPlot::Point>& points) {
        out_ << "<polyline fill=\"none\" stroke=\"#1f6fb2\" stroke-width=\"2\" points=\"";
        for (const FrontierPlot::Point& point : points)
            out_ << across(point.x) << ',' << down(point.y) << ' ';
        out_ << "\"/>\n";
    }
    void mark(const FrontierPlot::Mark& mark, double shift) {
        out_ << "<circle cx=\"" << across(mark.at.x) << "\" cy=\"" << down(mark.at.y)
             << "\" r=\"4\" fill=\"#c0392b\"/>\n";
        text(across(mark.at.x) + 8, down(mark.at.y) + shift, "start", to_xml(mark.label));
    }

private:
    struct Range {
        double low = 0;
        double high = 0;
        void extend(double value) {
            low = std::min(low, value);
            high = std::max(high, value);
        }
        void pad() {
            const double margin = std::max(0.05 * (high - low), 0.5);
            low -= margin;
            high += margin;
        }
    };

    static std::string number(double value) {
        std::ostringstream text;
        text.precision(3);
        text << value;
        return text.str();
    }
    void text(double x, double y, const char* anchor, const std::string& content) {
        out_ << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << "\">"
             << content << "</text>\n";
    }
    [[nodiscard]] double across(double x) const {
        return left_ + width_ * (x - x_.low) / (x_.high - x_.low);
    }
    [[nodiscard]] double down(double y) const {
        return top_ + height_ * (y_.high - y) / (y_.high - y_.low);
    }

    static constexpr double top_ = 60;
    static constexpr double width_ = 360;
    static constexpr double height_ = 300;
    std::ostream& out_;
    double left_;
    Range x_;
    Range y_;
};

}  // namespace detail

/// A plot as a stand-alone SVG document.
inline std::string to_svg(const FrontierPlot& plot) {
    std::ostringstream out;
    out.precision(6);
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\"420\" "
           "font-family=\"sans-serif\" font-size=\"12\">\n"
           "<style>.t{font-weight:bold}</style>\n"
           "<rect width=\"960\" height=\"420\" fill=\"#fff\"/>\n<text class=\"t\" x=\"60\" "
           "y=\"24\" font-size=\"15\">"
        << detail::to_xml(plot.title) << "</text>\n";
    std::vector<FrontierPlot::Point> points = plot.frontier;
    for (const FrontierPlot::Mark& mark : plot.marks) points.push_back(mark.at);
    detail::SvgPanel frontier{out, 70, points};
    frontier.axes("time-energy frontier", "time, % against baseline", "energy, %");
    frontier.line(plot.frontier);
    for (std::size_t i = 0; i < plot.marks.size(); ++i)
        frontier.mark(plot.marks[i], 4 + 12 * (static_cast<double>(i % 2) - 0.5));
    if (!plot.tolerance.empty()) {
        detail::SvgPanel tolerance{out, 550, plot.tolerance};
        tolerance.axes("energy against tolerated slowdown", "tolerated slowdown, %", "energy, %");
        tolerance.line(plot.tolerance);
    }
    out << "</svg>\n";
    return out.str();
}

}  // namespace kdvfs::tune
