// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>
#include <kdvfs/detail/device/nvidia/nvml_readings.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/nvidia_boards.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/running.hpp>
#include <tools/cli/top_command.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cli {
namespace {

using Totals = std::map<std::string, std::pair<double, double>>;  // time and joules, by kernel

/// "0000:1b:00.0 NVIDIA H100: 690 W, 1605 MHz"
std::string board_line(const std::string& address, const std::string& name, kdvfs::Watts power,
                       kdvfs::Megahertz core) {
    char text[64];
    std::snprintf(text, sizeof text, ": %.0f W, %u MHz\n", power.count, core.count);
    return address + ' ' + name + text;
}

/// A line for each board of this machine, and for those of the programs that are none of it
/// (without power and clock where they do not say).
std::string board_lines(const std::vector<nlohmann::json>& processes) {
    std::map<std::string, std::string> lines;  // by address
    for (const auto& process : processes) {
        for (const auto& device : process["devices"]) {
            const auto& board = device["report"]["device"];
            const std::string address = board.value("address", "");
            lines.emplace(address, address + ' ' + board.value("name", "") + '\n');
        }
    }
    for (const auto& card : kdvfs::device::amd::find_cards()) {
        const std::string address = to_string(card.address);
        std::string& line = lines[address] = address + ' ' + card.name + '\n';
        try {
            const auto now = kdvfs::device::amd::MetricsFile{card}.read_metrics();
            if (!now.power || !now.core_clock) continue;
            line = board_line(address, card.name, *now.power, *now.core_clock);
        } catch (const kdvfs::Error&) {  // the driver does not let us read its table
        }
    }
    for (const std::string& address : nvidia_addresses()) {
        lines.emplace(address, address + " NVIDIA GPU\n");
    }
    std::string text;
    for (auto& [address, line] : lines) {
        try {
            kdvfs::device::NvmlReadings board{address, nvml_library()};
            line = board_line(address, board.info().name, board.read_power().watts,
                              board.read_running_clocks().core);
        } catch (const kdvfs::Error&) {  // a board of another vendor, or without a driver here
        }
        text += line;
    }
    return text;
}

/// What is shown at once.
struct Screen {
    std::size_t columns = 112;
    std::size_t lines = 1000;
    bool redrawn = false;

    /// That of standard output; all there is where it is none.
    static Screen of_output() {
        Screen screen{.redrawn = ::isatty(STDOUT_FILENO) == 1};
        winsize size{};
        if (screen.redrawn && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 &&
            size.ws_row > 1) {
            screen.columns = size.ws_col;
            screen.lines = size.ws_row - 1U;
        }
        return screen;
    }
    /// Of a kernel's name: the numbers behind it come first.
    [[nodiscard]] std::size_t name_width() const {
        constexpr std::size_t numbers = 54;
        return std::clamp<std::size_t>(columns, numbers + 12, numbers + 58) - numbers;
    }
    /// As much as fits: what is wider or longer would push the rest away.
    [[nodiscard]] std::string cut(const std::string& text) const {
        if (!redrawn) return text;
        std::string shown = "\033[H\033[2J";
        std::istringstream all{text};
        std::string line;
        for (std::size_t i = 0; i < lines && std::getline(all, line); ++i) {
            shown += line.substr(0, columns) + '\n';
        }
        return shown;
    }
};

/// A kernel or range since the last look.
struct Line {
    std::string name;
    double seconds = 0;
    double joules = 0;
    bool resolved = false;
    int held = 0;
};

/// What ran since the last look, the most joules first; those whose joules are not told come
/// behind, by time.
/// @param kind tells names apart that kernels and ranges share
std::vector<Line> lines_of(const nlohmann::json& items, const std::string& kind,
                           const Totals& before, Totals& now) {
    std::vector<Line> lines;
    for (const auto& item : items) {
        if (item.value("level", "") == "iteration") continue;
        std::string name = item.value("kernel", "");
        if (const auto variant = item.value("variant", 0U)) name += '#' + std::to_string(variant);
        const bool resolved = item["energy"].value("status", "") == "resolved";
        const double seconds = item.value("time_s", 0.0);
        const double joules = resolved ? item["energy"].value("joules", 0.0) : 0;
        now[kind + name] = {seconds, joules};
        const auto known = before.find(kind + name);
        const auto [seconds_before, joules_before] =
            known == before.end() ? std::pair{0.0, 0.0} : known->second;
        lines.push_back({name, seconds - seconds_before, resolved ? joules - joules_before : 0,
                         resolved, item.value("held_core_mhz", 0)});
    }
    std::erase_if(lines, [](const Line& line) { return line.seconds <= 0; });
    std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
        return std::pair{a.joules, a.seconds} > std::pair{b.joules, b.seconds};
    });
    return lines;
}

/// @param all of the kernels' time and joules
std::string table(const std::vector<Line>& lines, const char* title, const Line& all,
                  std::size_t name_width) {
    constexpr std::size_t most = 20;
    const int width = static_cast<int>(name_width);
    char line[200];
    std::snprintf(line, sizeof line, "%-*s %7s %7s %10s %9s %7s %8s\n", width, title, "power %",
                  "time %", "time s", "J", "W", "held MHz");
    std::string text = line;
    for (std::size_t i = 0; i < std::min(most, lines.size()); ++i) {
        const Line& each = lines[i];
        char share[24] = "-";
        char joules[24] = "-";
        char watts[24] = "-";
        char held[24] = "-";
        if (each.resolved && all.joules > 0) {
            std::snprintf(share, sizeof share, "%.1f", 100 * each.joules / all.joules);
        }
        if (each.resolved) {
            std::snprintf(joules, sizeof joules, "%.4g", each.joules);
            std::snprintf(watts, sizeof watts, "%.0f", each.joules / each.seconds);
        }
        if (each.held > 0) std::snprintf(held, sizeof held, "%d", each.held);
        std::snprintf(line, sizeof line, "%-*s %7s %7.1f %10.4g %9s %7s %8s\n", width,
                      kdvfs::detail::shortened(each.name, name_width).c_str(), share,
                      100 * each.seconds / all.seconds, each.seconds, joules, watts, held);
        text += line;
    }
    return text;
}

/// What ran since the last look: ranges, where there are any, and kernels.
std::string shown(const std::vector<nlohmann::json>& processes, Totals& before,
                  std::size_t name_width) {
    const std::string boards = board_lines(processes);
    if (processes.empty()) return boards + "no program is attached (kdvfs run -- PROGRAM)\n";
    const auto merged = merge_attached_reports(processes);
    Totals now;
    const std::vector<Line> kernels = lines_of(merged["rows"], "", before, now);
    const std::vector<Line> ranges = lines_of(merged["levels"], "range ", before, now);
    before = std::move(now);
    Line all;
    for (const Line& kernel : kernels) {
        all.seconds += kernel.seconds;
        all.joules += std::max(0.0, kernel.joules);
    }
    return boards + (ranges.empty() ? "" : table(ranges, "range", all, name_width)) +
           table(kernels, "kernel", all, name_width);
}

}  // namespace

void TopCommand::run() const {
    Totals before;
    while (true) {
        std::vector<nlohmann::json> processes;
        for (const auto& folder : running_folders()) {
            for (auto& report : read_attached_reports(folder)) {
                if (!report.value("ended", false)) processes.push_back(std::move(report));
            }
        }
        const Screen screen = once ? Screen{} : Screen::of_output();
        std::cout << screen.cut(shown(processes, before, screen.name_width()));
        finish_standard_output();
        if (once) return;
        std::this_thread::sleep_for(std::chrono::duration<double>{every});
    }
}

}  // namespace cli
