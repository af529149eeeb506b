// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::detail {

/// Text for XML: the five characters that mean something are escaped, control characters dropped.
inline std::string xml_text(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '&': out += "&amp;"; break;
            case '"': out += "&quot;"; break;
            case '\'': out += "&apos;"; break;
            default:
                if (static_cast<unsigned char>(c) >= 0x20) out += c;
        }
    }
    return out;
}

/// A plot of x against y as SVG: first `include` what must be seen, then `axes`, then draw.
class SvgPlot {
public:
    struct Point {
        double x;
        double y;
    };

    SvgPlot(std::ostream& out, std::string x_label, std::string y_label)
        : out_{&out}, x_label_{std::move(x_label)}, y_label_{std::move(y_label)} {}

    void include(double x, double y) {
        most_x_ = std::max(most_x_, x);
        most_y_ = std::max(most_y_, y);
    }

    void axes() {
        *out_ << R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 400" )"
              << R"(font-family="sans-serif" font-size="12">)" << '\n'
              << R"(<rect width="720" height="400" fill="white"/>)" << '\n';
        for (double x = 0; x <= most_x_ * within; x += round_step(most_x_)) {
            grid_line(place(x, 0), place(x, most_y_));
            text(at_x(x), bottom + 18, "middle", tick(x));
        }
        for (double y = 0; y <= most_y_ * within; y += round_step(most_y_)) {
            grid_line(place(0, y), place(most_x_, y));
            text(left - 6, at_y(y) + 4, "end", tick(y));
        }
        text((left + right) / 2, 392, "middle", x_label_);
        text(4, 12, "start", y_label_);
    }

    void line(const std::vector<Point>& points, std::string_view colour) {
        if (points.empty()) return;
        *out_ << R"(<polyline fill="none" stroke-width="2" stroke=")" << colour << "\" points=\"";
        for (const Point& p : points) *out_ << place(p.x, p.y) << ' ';
        *out_ << "\"/>\n";
    }
    void area(const std::vector<Point>& points, std::string_view colour) {
        if (points.empty()) return;
        *out_ << R"(<polygon opacity="0.25" fill=")" << colour << "\" points=\"";
        for (const Point& p : points) *out_ << place(p.x, p.y) << ' ';
        *out_ << "\"/>\n";
    }
    void dot(Point p, std::string_view colour) {
        *out_ << R"(<circle r="1.5" opacity="0.5" fill=")" << colour << "\" cx=\""
              << number(at_x(p.x)) << "\" cy=\"" << number(at_y(p.y)) << "\"/>\n";
    }
    void legend(std::size_t row, std::string_view name, std::string_view colour) {
        const double y = 24 + 18 * static_cast<double>(row);
        *out_ << R"(<rect x="560" width="12" height="12" fill=")" << colour << "\" y=\""
              << number(y - 10) << "\"/>\n";
        text(578, y, "start", name);
    }
    void close() { *out_ << "</svg>\n"; }

private:
    static constexpr double left = 70;
    static constexpr double right = 700;
    static constexpr double top = 20;
    static constexpr double bottom = 350;
    static constexpr double within = 1 + 1e-9;  // rounding must not lose the last tick

    /// 1, 2 or 5 times a power of ten: four to nine ticks.
    static double round_step(double most) {
        const double power = std::pow(10.0, std::floor(std::log10(most)));
        const double leading = most / power;
        return power * (leading < 2 ? 0.2 : leading < 5 ? 0.5 : 1.0);
    }
    void grid_line(const std::string& from, const std::string& to) {
        *out_ << R"(<path stroke="#ddd" d="M)" << from << 'L' << to << "\"/>\n";
    }

    static std::string number(double value) { return json_number(std::round(10 * value) / 10); }
    static std::string tick(double value) {
        if (value == 0) return "0";
        const double step = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 2);
        const double rounded = std::round(value / step) * step;
        return step >= 1 ? json_number(std::round(rounded)) : number(rounded);
    }
    [[nodiscard]] double at_x(double x) const { return left + (right - left) * x / most_x_; }
    [[nodiscard]] double at_y(double y) const { return bottom - (bottom - top) * y / most_y_; }
    [[nodiscard]] std::string place(double x, double y) const {
        return number(at_x(x)) + ',' + number(at_y(y));
    }
    void text(double x, double y, std::string_view anchor, std::string_view words) {
        *out_ << "<text x=\"" << number(x) << "\" y=\"" << number(y) << "\" text-anchor=\""
              << anchor << "\">" << xml_text(words) << "</text>\n";
    }

    std::ostream* out_;
    std::string x_label_;
    std::string y_label_;
    double most_x_ = 1e-9;
    double most_y_ = 1e-9;
};

}  // namespace kdvfs::detail
