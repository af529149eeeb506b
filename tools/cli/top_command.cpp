// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>
#include <kdvfs/detail/device/nvidia/nvml_readings.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/commands.hpp>
#include <tools/cli/nvidia_boards.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/running.hpp>
#include <tools/cli/text_options.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cli {

/// `kdvfs top [--once] [--json] [--every SECONDS]`
struct TopCommand {
    bool once = false;
    bool json = false;
    double every = 2;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<TopCommand>();
        CLI::App* sub = app.add_subcommand(
            "top", "Show what programs under `kdvfs run` draw, kernel by kernel, as they go");
        sub->add_flag("--once", command->once, "One table, for scripts");
        sub->add_flag("--json", command->json,
                      "A JSON object in a line instead of a table: boards, and kernels and ranges "
                      "with their time and joules since the line before");
        sub->add_option("--every", command->every, "Seconds between two looks")
            ->check(finite_range(1, 3600))
            ->capture_default_str();
        sub->callback([command, sub] {
            if (command->once) refuse_without_effect(*sub, "--every", "with --once");
            command->run();
        });
    }

    /// @throws Error (io) where nothing can be written
    void run() const;
};

namespace {

using Totals = std::map<std::string, std::pair<double, double>>;  // time and joules, by kernel

/// A board, as it is now.
struct Board {
    std::string name;
    std::optional<double> watts{};
    std::optional<unsigned> core_mhz{};

    /// "0000:1b:00.0 NVIDIA H100: 690 W, 1605 MHz"
    [[nodiscard]] std::string line(const std::string& address) const {
        return address + ' ' + name +
               (watts && core_mhz ? kdvfs::io::format_text(": %.0f W, %u MHz", *watts, *core_mhz)
                                  : "") +
               '\n';
    }
    [[nodiscard]] nlohmann::json json(const std::string& address) const {
        nlohmann::json its{{"address", address}, {"name", name}};
        its["power_w"] = watts ? nlohmann::json(*watts) : nlohmann::json{};
        its["core_mhz"] = core_mhz ? nlohmann::json(*core_mhz) : nlohmann::json{};
        return its;
    }
};

/// Each board of this machine, and those of the programs that are none of it (without power and
/// clock where they do not say), by address.
std::map<std::string, Board> boards_of(const std::vector<nlohmann::json>& processes) {
    std::map<std::string, Board> boards;
    for (const auto& process : processes) {
        for (const auto& device : process["devices"]) {
            const auto& board = device["report"]["device"];
            boards.emplace(board.value("address", ""), Board{board.value("name", "")});
        }
    }
    for (const auto& card : kdvfs::device::amd::find_cards()) {
        Board& board = boards[to_string(card.address)] = {card.name};
        try {
            const auto now = kdvfs::device::amd::MetricsFile{card}.read_metrics();
            if (!now.power || !now.core_clock) continue;
            board = {card.name, now.power->count, now.core_clock->count};
        } catch (const kdvfs::Error&) {  // the driver does not let us read its table
        }
    }
    for (const std::string& address : nvidia_addresses()) {
        boards.emplace(address, Board{"NVIDIA GPU"});
    }
    for (auto& [address, board] : boards) {
        try {
            kdvfs::device::NvmlReadings now{address, nvml_library()};
            board = {now.info().name, now.read_power().watts.count,
                     now.read_running_clocks().core.count};
        } catch (const kdvfs::Error&) {  // a board of another vendor, or without a driver here
        }
    }
    return boards;
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
// NOLINTNEXTLINE(bugprone-exception-escape): JSON may be moved
struct Line {
    nlohmann::json row;  ///< that it is made of
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
        lines.push_back({item, seconds - seconds_before, resolved ? joules - joules_before : 0,
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
    std::string text = kdvfs::io::format_text("%-*s %7s %7s %10s %9s %7s %8s\n", width, title,
                                              "power %", "time %", "time s", "J", "W", "held MHz");
    for (std::size_t i = 0; i < std::min(most, lines.size()); ++i) {
        const Line& each = lines[i];
        const auto cell = [](bool known, const char* format, double value) {
            return known ? kdvfs::io::format_text(format, value) : "-";
        };
        const std::string share =
            cell(each.resolved && all.joules > 0, "%.1f", 100 * each.joules / all.joules);
        const std::string joules = cell(each.resolved, "%.4g", each.joules);
        const std::string watts = cell(each.resolved, "%.0f", each.joules / each.seconds);
        const std::string held = cell(each.held > 0, "%.0f", each.held);
        text += kdvfs::io::format_text("%-*s %7s %7.1f %10.4g %9s %7s %8s\n", width,
                                       report_sums::shown_name(each.row, name_width).c_str(),
                                       share.c_str(), 100 * each.seconds / all.seconds,
                                       each.seconds, joules.c_str(), watts.c_str(), held.c_str());
    }
    return text;
}

/// What ran since the last look.
struct Look {
    std::map<std::string, Board> boards{};
    std::size_t processes = 0;
    std::vector<Line> kernels{};
    std::vector<Line> ranges{};
    std::vector<nlohmann::json> devices{};  ///< of programs that tune themselves

    Look(const std::vector<nlohmann::json>& all, Totals& before)
        : boards{boards_of(all)}, processes{all.size()} {
        for (const auto& process : all) {
            for (const auto& device : process["devices"]) {
                if (device.contains("saving")) devices.push_back(device);
            }
        }
        if (all.empty()) return;
        const auto merged = merge_attached_reports(all);
        Totals now;
        kernels = lines_of(merged["rows"], "", before, now);
        ranges = lines_of(merged["levels"], "range ", before, now);
        before = std::move(now);
    }

    /// Ranges, where there are any, and kernels.
    [[nodiscard]] std::string text(std::size_t name_width) const {
        std::string shown;
        for (const auto& [address, board] : boards) shown += board.line(address);
        for (const auto& device : devices) shown += report_sums::saving_text(device);
        if (processes == 0) return shown + "no program is attached (kdvfs run -- PROGRAM)\n";
        Line all;
        for (const Line& kernel : kernels) {
            all.seconds += kernel.seconds;
            all.joules += std::max(0.0, kernel.joules);
        }
        return shown + (ranges.empty() ? "" : table(ranges, "range", all, name_width)) +
               table(kernels, "kernel", all, name_width);
    }

    [[nodiscard]] nlohmann::json json() const {
        using Json = nlohmann::json;
        Json its{{"processes", processes},
                 {"boards", Json::array()},
                 {"kernels", Json::array()},
                 {"ranges", Json::array()},
                 {"savings", Json::array()}};
        for (const auto& device : devices) its["savings"].push_back(device["saving"]);
        for (const auto& [address, board] : boards) its["boards"].push_back(board.json(address));
        for (const auto& [list, lines] : {std::pair{"kernels", &kernels}, {"ranges", &ranges}}) {
            for (const Line& line : *lines) {
                Json item{{"name", line.row.value("kernel", "")}, {"time_s", line.seconds}};
                item["joules"] = line.resolved ? Json(line.joules) : Json{};
                if (line.row.contains("variant")) {
                    item["variant"] = line.row["variant"];
                    item["held_core_mhz"] = line.held;
                }
                its[list].push_back(std::move(item));
            }
        }
        return its;
    }
};

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
        const Look look{processes, before};
        if (json) {
            std::cout << look.json().dump() << '\n';
        } else {
            const Screen screen = once ? Screen{} : Screen::of_output();
            std::cout << screen.cut(look.text(screen.name_width()));
        }
        finish_standard_output();
        if (once) return;
        std::this_thread::sleep_for(std::chrono::duration<double>{every});
    }
}

void add_top_command(CLI::App& app) { TopCommand::add_to(app); }

}  // namespace cli
