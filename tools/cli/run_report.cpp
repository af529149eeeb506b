// SPDX-License-Identifier: MIT
#include <kdvfs/error.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/report/energy_chart.hpp>
#include <tools/cli/report/page.hpp>
#include <tools/cli/run_report.hpp>

#include <cstddef>
#include <exception>
#include <filesystem>

namespace cli {
namespace {

std::string html_of(const nlohmann::json& merged, const std::string& text) {
    report::Page page;
    page.title = "kdvfs run";
    page.remarks.push_back(text.substr(0, text.find('\n')));
    report::add_energy_charts(page.charts, report::measured_energy(merged));
    return to_html(page);
}

}  // namespace

std::string run_report_text(const nlohmann::json& merged, std::size_t most) {
    return merged["processes"].empty() ? "kdvfs: no GPU work was seen\n"
                                       : attached_text(merged, most);
}

void write_run_report(const std::vector<std::string>& files, const nlohmann::json& merged) {
    constexpr std::size_t all = 1000;
    const std::string text = run_report_text(merged, all);
    std::exception_ptr first;
    for (const std::string& file : files) {
        const std::string ending = std::filesystem::path{file}.extension().string();
        try {
            write(file, ending == ".json"   ? merged.dump(1) + '\n'
                        : ending == ".html" ? html_of(merged, text)
                                            : text);
        } catch (const kdvfs::Error&) {
            if (first == nullptr) first = std::current_exception();
        }
    }
    if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace cli
