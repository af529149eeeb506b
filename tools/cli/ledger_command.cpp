// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/tune/ledger.hpp>
#include <kdvfs/error.hpp>
#include <tools/cli/commands.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/output.hpp>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace cli {

/// `kdvfs ledger [FILE]`: what runs of `kdvfs run --save` have saved, per job, user and board.
struct LedgerCommand {
    std::string file;
    bool json = false;

    /// @throws Error (io) where the ledger cannot be read
    void run() const;
};

namespace {

using kdvfs::tune::LedgerSegment;
using kdvfs::tune::LedgerTotal;

/// A name in a table: what a terminal would act on, or take for another line, is escaped.
std::string shown(const std::string& name) {
    const std::string quoted = kdvfs::io::json_string(name);
    return quoted.substr(1, quoted.size() - 2);
}

std::string line_of(const std::string& name, const LedgerTotal& total) {
    const std::string share =
        total.compared.count > 0
            ? kdvfs::io::format_text("%.0f", 100 * (total.by_one_clock / total.compared))
            : "-";
    return kdvfs::io::format_text("%-40.40s %8zu %10.2f %14.0f %14.0f %14.0f %10.1f %12s\n",
                                  shown(name).c_str(), total.segments, total.passed.count() / 3600,
                                  total.saved.count, total.low().count, total.high().count,
                                  total.lost.count(), share.c_str());
}

nlohmann::ordered_json json_of(const LedgerTotal& total) {
    return {{"segments", total.segments},         {"passed_s", total.passed.count()},
            {"saved_j", total.saved.count},       {"saved_low_j", total.low().count},
            {"saved_high_j", total.high().count}, {"lost_s", total.lost.count()},
            {"compared_j", total.compared.count}, {"by_one_clock_j", total.by_one_clock.count}};
}

}  // namespace

std::filesystem::path state_folder() {
    const auto folder = [](const char* name) {
        return std::filesystem::path{kdvfs::io::environment(name)};
    };
    // A relative one is to be ignored (XDG Base Directory Specification).
    if (const auto state = folder("XDG_STATE_HOME"); state.is_absolute()) return state / "kdvfs";
    const auto home = folder("HOME");
    return home.is_absolute() ? home / ".local" / "state" / "kdvfs" : std::filesystem::path{};
}

void add_ledger_command(CLI::App& app) {
    auto command = std::make_shared<LedgerCommand>();
    CLI::App* sub = app.add_subcommand(
        "ledger",
        "What runs of kdvfs run --save have saved: joules with their 95 % interval and "
        "seconds lost, per job, user and board");
    sub->add_option("file", command->file,
                    "The ledger; without it the user's own, in ~/.local/state/kdvfs");
    sub->add_flag("--json", command->json, "As JSON");
    sub->callback([command] { command->run(); });
}

void LedgerCommand::run() const {
    if (file.empty() && state_folder().empty())
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"read the user's ledger", "HOME and XDG_STATE_HOME",
                            "neither names a folder", "give the ledger's file"}};
    const std::string path = file.empty() ? (state_folder() / "ledger.jsonl").string() : file;
    const kdvfs::tune::Ledger ledger = kdvfs::tune::parse_ledger(read_input(path).text);
    if (ledger.segments.empty() && ledger.unreadable > 0)
        throw kdvfs::Error{
            kdvfs::Errc::invalid_input,
            {"read a ledger", path,
             "none of its " + std::to_string(ledger.unreadable) + " lines can be read",
             "give the file that kdvfs run --save appends to"}};
    using Key = std::function<std::string(const LedgerSegment&)>;
    const std::pair<const char*, Key> groups[] = {
        {"job", [](const auto& segment) { return segment.job.empty() ? "-" : segment.job; }},
        {"user", [](const auto& segment) { return segment.user; }},
        {"board", [](const auto& segment) { return segment.board; }}};
    nlohmann::ordered_json all{{"unreadable_lines", ledger.unreadable},
                               {"total", json_of(ledger.total())}};
    std::string text;
    for (const auto& [name, key] : groups) {
        text += kdvfs::io::format_text("%-40s %8s %10s %14s %14s %14s %10s %12s\n", name,
                                       "segments", "hours", "saved J", "at least", "at most",
                                       "lost s", "one clock %");
        auto& list = all[std::string{name} + 's'] = nlohmann::ordered_json::array();
        for (const auto& [value, total] : ledger.totals_by(key)) {
            text += line_of(value, total);
            list.push_back(json_of(total));
            list.back()[name] = value;
        }
        text += '\n';
    }
    text += line_of("total", ledger.total());
    if (ledger.unreadable > 0) {
        text += std::to_string(ledger.unreadable) +
                " lines cannot be read: cut short, or of another version\n";
    }
    std::cout << (json ? all.dump(1) + '\n' : text);
    finish_standard_output();
}

}  // namespace cli
