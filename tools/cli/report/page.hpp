// SPDX-License-Identifier: MIT
#pragma once

#include <tools/cli/report/assets.hpp>

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace cli::report {

using Json = nlohmann::ordered_json;

/// A table of the page; the first row is its heading.
using Table = std::vector<std::vector<std::string>>;

/// A chart of the page: a Vega-Lite specification and what is said about it.
struct Chart {
    std::string id;  ///< of letters and dashes
    std::string title;
    std::string caption;
    Json spec;
    Table table{};  ///< below the drawing
};

/// A page: what it is about, then its charts in order.
struct Page {
    std::string title;
    std::vector<std::string> remarks;
    Table table;
    std::vector<Chart> charts;
};

/// Text between the tags of HTML and in its quoted attributes.
inline std::string html_text(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        switch (c) {
            case '&': escaped += "&amp;"; break;
            case '<': escaped += "&lt;"; break;
            case '>': escaped += "&gt;"; break;
            case '"': escaped += "&quot;"; break;
            case '\'': escaped += "&#39;"; break;
            default: escaped += c;
        }
    }
    return escaped;
}

/// JSON inside a script element, which ends at the first "</script" whatever the quotes say: no
/// '<' is left. Bytes that are not UTF-8 become U+FFFD.
inline std::string script_json(const Json& json) {
    std::string escaped;
    for (const char c : json.dump(-1, ' ', true, Json::error_handler_t::replace)) {
        if (c == '<')
            escaped += "\\u003c";
        else
            escaped += c;
    }
    return escaped;
}

namespace page_parts {

inline std::string table_html(const Table& table) {
    if (table.empty()) return "";
    std::string html = "<table>\n";
    for (std::size_t row = 0; row < table.size(); ++row) {
        const std::string cell = row == 0 ? "th" : "td";
        html += "<tr>";
        for (const std::string& text : table[row])
            html.append("<")
                .append(cell)
                .append(">")
                .append(html_text(text))
                .append("</")
                .append(cell + ">");
        html += "</tr>\n";
    }
    return html + "</table>\n";
}

inline std::string section_html(const Chart& chart) {
    return "<section id=\"" + html_text(chart.id) + "\">\n<h2>" + html_text(chart.title) +
           "</h2>\n<p>" + html_text(chart.caption) + "</p>\n<div class=\"chart\" id=\"chart-" +
           html_text(chart.id) + "\"></div>\n" + table_html(chart.table) + "</section>\n";
}

}  // namespace page_parts

/// The page as one HTML document that needs nothing else: the drawing library is in it, and its
/// security policy lets it fetch nothing.
inline std::string to_html(const Page& page) {
    Json charts = Json::array();
    std::string sections;
    for (const Chart& chart : page.charts) {
        charts.push_back({{"id", chart.id}, {"spec", chart.spec}});
        sections += page_parts::section_html(chart);
    }
    std::string html =
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        // Vega compiles its expressions, hence unsafe-eval; nothing may come from elsewhere.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
        "script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<link rel=\"icon\" href=\"data:,\">\n<title>" +
        html_text(page.title) + "</title>\n<style>\n";
    html.append(assets::style).append("</style>\n</head>\n<body>\n<header>\n<h1>");
    html += html_text(page.title) + "</h1>\n";
    for (const std::string& remark : page.remarks) html += "<p>" + html_text(remark) + "</p>\n";
    html += page_parts::table_html(page.table) + "</header>\n<main>\n" + sections + "</main>\n";
    html +=
        "<noscript><p>The charts are drawn by JavaScript, which is switched off.</p></noscript>\n";
    html += "<details><summary>Licences of the drawing library</summary>\n<pre>";
    html += html_text(assets::licences) + "</pre></details>\n";
    html +=
        "<script type=\"application/json\" id=\"charts\">" + script_json(charts) + "</script>\n";
    for (const std::string_view code : {assets::vega, assets::vega_lite, assets::script})
        html.append("<script>\n").append(code).append("\n</script>\n");
    return html + "</body>\n</html>\n";
}

}  // namespace cli::report
