// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/tune/plan_fields.hpp>
#include <kdvfs/detail/tune/session_status.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/board_energy.hpp>
#include <tools/cli/commands.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/nvidia_boards.hpp>
#include <tools/cli/program_runs.hpp>
#include <tools/cli/program_words.hpp>
#include <tools/cli/temporary_folder.hpp>
#include <tools/cli/text_options.hpp>
#include <tools/worth.hpp>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace cli {

/// `kdvfs worth REPORT.json | FOLDER | -- COMMAND...`: what clocks could save, from a run in which
/// none was set.
struct WorthCommand {
    std::vector<std::string> what;
    std::string power_limit;
    std::string lower;  ///< a report of the same program at a lower clock
    double lower_clock = 0;
    std::string counter = "auto";
    std::string format = "table";

    /// @throws Error (invalid_input, not_supported, io)
    void run() const;
};

namespace {

using kdvfs::io::format_text;
using namespace worth;

/// From what `kdvfs run --report FILE.json` wrote: all boards together.
AsFound read_report(const std::string& file) {
    const auto processes = read_run_report(
        file, "give what kdvfs run --report FILE.json wrote, or a folder of kdvfs tune");
    AsFound found;
    report_sums::EnergySum idle;
    for (const BoardUse& use : board_uses(processes)) {
        const nlohmann::json& totals = use.totals();
        found.gpu = use.name;
        found.seconds += totals.value("counted_time_s", 0.0);
        found.joules += totals.value("counter_j", 0.0);
        found.idle_seconds += totals.value("idle_time_s", 0.0);
        // Where several processes share a board, none knows when it was idle.
        idle.add(use.shared() ? report_sums::unresolved_energy() : totals["idle"]);
    }
    found.knows_idle = idle.resolved();
    found.idle_joules = idle.joules;
    if (!found.knows_idle) found.idle_seconds = found.idle_joules = 0;
    return found;
}

/// From a folder of `kdvfs tune`: the trial, and kernels at the clocks as found where a sweep has
/// begun.
AsFound read_tuning(const std::filesystem::path& folder) {
    const std::string name = (folder / "trial.json").string();
    const nlohmann::json trial = kdvfs::tune::parse_json(read_input(name).text, name);
    const kdvfs::tune::PlanFields fields{trial, name, ""};
    const kdvfs::tune::Cost run = fields.cost("time_s", "energy_j");
    const std::string status_name = (folder / "trial_status.json").string();
    const auto status =
        kdvfs::tune::parse_session_status(read_input(status_name).text, status_name);
    AsFound found{status.gpu, run.time.count(), run.energy.count, 0, 0, false};
    if (!std::filesystem::exists(folder / "profile.csv")) return found;
    const kdvfs::tune::Profile profile = kdvfs::tune::read_profile(folder / "profile.csv");
    kdvfs::tune::Cost kernels;
    for (const auto& kernel : profile.kernels())
        if (const auto* point = kernel.find(profile.baseline().value_or(kdvfs::ClockPoint{})))
            kernels += point->mean() * kernel.count;
    kernels = kernels * static_cast<double>(status.iterations);
    if (kernels.time >= run.time || kernels.energy >= run.energy) return found;
    found.idle_seconds = (run.time - kernels.time).count();
    found.idle_joules = (run.energy - kernels.energy).count;
    found.knows_idle = true;
    return found;
}

/// Runs the program once, as it is.
AsFound measure(const std::vector<std::string>& command, const std::string& counter) {
    const TemporaryFolder folder;
    const std::filesystem::path status = folder.path / "status.json";
    const ProgramRuns runs =
        counter == "auto" ? ProgramRuns::by_what_is_there(command) : ProgramRuns{command, counter};
    const ProgramRun run =
        runs({{"KDVFS_MODE", "off"}, {"KDVFS_STATUS", status.string()}, {"KDVFS_PLAN", ""}});
    AsFound found{"", run.cost.time.count(), run.cost.energy.count, 0, 0, false};
    if (std::filesystem::exists(status))
        found.gpu =
            kdvfs::tune::parse_session_status(read_input(status.string()).text, status.string())
                .gpu;
    const std::vector<BoardHere> boards = boards_here();
    if (boards.size() == 1) {
        const BoardHere& board = boards.front();
        if (found.gpu.empty()) found.gpu = board.name;
        // Of a program on a simulated GPU the driver's limit says nothing.
        if (found.gpu == board.name && board.limit_watts > 0) found.limit_watts = board.limit_watts;
    } else if (boards.size() > 1 && found.gpu.empty()) {
        found.gpu = std::to_string(boards.size()) + " GPUs";
    }
    return found;
}

std::string to_table(const Worth& worth, const std::string& next) {
    std::string text = format_text(
        "%s: %.4g s, %.4g J; %.0f W while kernels run, %.0f %% of %.0f W\n",
        worth.found.gpu.empty() ? "as found" : worth.found.gpu.c_str(), worth.found.seconds,
        worth.found.joules, worth.found.busy_watts(), 100 * worth.power_share, worth.limit_watts);
    text += worth.found.knows_idle
                ? ""
                : "idle time is not known: it counts as kernels (kdvfs run --report measures it)\n";
    text += "\nmay be saved, % of the energy   no slowdown     up to 1 %     up to 5 %\n";
    constexpr const char* names[]{"one clock", "power cap", "clocks by kernel, switching free"};
    const std::string unknown = format_text("%10s    ", "unknown");
    for (std::size_t way = 0; way < worth.at_most.size(); ++way) {
        text += format_text("%-32s", names[way]);
        for (const std::optional<double>& high : worth.at_most[way]) {
            text += high ? format_text("%4s - %-5.1f  ", "0", *high) : unknown;
        }
        text += '\n';
    }
    if (worth.by_lower.back()) {
        text += format_text("%-32s", "one clock, by the lower one");
        for (const auto& range : worth.by_lower) {
            text += range ? format_text("%4.1f - %-5.1f  ", (*range)[0], (*range)[1]) : unknown;
        }
        text += '\n';
    }
    if (worth.found.knows_idle) {
        text += format_text("%-32s%4.1f - %-5.1f\n", "clocks while idle", worth.idle_low,
                            worth.idle_high);
    }
    text +=
        std::string{
            "\nFrom watts alone nothing is certain. Printed ranges held in 91 to 97 % of programs "
            "of "
            "boards that they\nare not from, in 80 % on the worst; unknown are those that did not "
            "hold. The memory clock stays as\nfound: changing it may save more (RTX 3080 Ti: 6 % "
            "by "
            "one clock).\nrecommended: "} +
        recommendation(worth) + "\nnext: " + next + '\n';
    return text;
}

}  // namespace

void add_worth_command(CLI::App& app) {
    auto command = std::make_shared<WorthCommand>();
    CLI::App* sub = app.add_subcommand(
        "worth", "Say what clocks could save of a program, from a run in which none is set");
    sub->footer(
        "The program is run once, as it is, or was: a report of kdvfs run, a folder of kdvfs tune. "
        "Its energy and\ntime are counted as by kdvfs tune.");
    add_program(*sub, "what", command->what,
                "What kdvfs run --report FILE.json wrote, a folder of kdvfs tune, or, after --, "
                "a program and its arguments")
        ->required();
    sub->add_option("--power-limit", command->power_limit,
                    "Of the board, in W; else as the driver or the data sheet says");
    CLI::Option* lower = sub->add_option(
        "--lower", command->lower,
        "A report of the same program while the core clock was limited from outside: ranges are "
        "narrower with it");
    CLI::Option* clock =
        sub->add_option("--lower-clock", command->lower_clock,
                        "That limit, of the board's highest core clock: 0.8 to 0.9")
            ->check(finite_range(0.8, 0.9));
    lower->needs(clock);
    clock->needs(lower);
    sub->add_option("--counter", command->counter, "What counts a program's energy: as kdvfs tune")
        ->capture_default_str();
    sub->add_option("--format", command->format, "Output")
        ->check(CLI::IsMember({"table", "json"}))
        ->capture_default_str();
    sub->callback([command] { command->run(); });
}

void WorthCommand::run() const {
    const std::filesystem::path path{what.front()};
    const bool is_folder = what.size() == 1 && std::filesystem::is_directory(path);
    const bool is_report = what.size() == 1 && path.extension() == ".json";
    std::optional<double> limit;
    if (!power_limit.empty()) {
        limit = kdvfs::io::parse_number<double>(power_limit);
        if (!limit || !std::isfinite(*limit) || *limit <= 0)
            reject("--power-limit", power_limit, "give a number of watts such as 700");
    }
    const AsFound found = is_folder   ? read_tuning(path)
                          : is_report ? read_report(what.front())
                                      : measure(what, counter);
    Worth worth = worth_of(found, what.front(), limit, "--power-limit");
    if (!lower.empty()) worth.add(read_report(lower), lower_clock);
    std::string next = "kdvfs tune --max-slowdown 1% -- ";
    if (is_folder || is_report)
        next += "PROGRAM";
    else
        for (const std::string& word : what) next += word + ' ';
    const std::string text = format == "json" ? to_json(worth) : to_table(worth, next);
    std::printf("%s", text.c_str());
}

}  // namespace cli
