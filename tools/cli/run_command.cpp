// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/train/stage_plan.hpp>
#include <kdvfs/detail/tune/ranks.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/train/pipeline_estimate.hpp>
#include <tools/cli/attached_program.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/child_process.hpp>
#include <tools/cli/command_run.hpp>
#include <tools/cli/commands.hpp>
#include <tools/cli/dry_run.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/metrics.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/program_words.hpp>
#include <tools/cli/report_names.hpp>
#include <tools/cli/run_report.hpp>
#include <tools/cli/running.hpp>
#include <tools/cli/temporary_folder.hpp>
#include <tools/cli/text_options.hpp>

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cli {

/// `kdvfs run [--report FILE] [--level kernel|range] ... -- COMMAND`
struct RunCommand {
    std::vector<std::string> command;
    std::vector<std::string> reports;
    AttachOptions attach;
    std::string plan;
    std::string pipeline;
    std::string slowdown = "0%";
    std::string latency;
    std::string sweep;
    std::string runs_once;
    std::string metrics;
    std::string metrics_file;
    std::optional<unsigned> meter_every;
    bool repeat = false;
    bool save = false;
    bool measure_only = false;
    std::string max_slowdown = "1%";
    std::string ledger;
    std::uint32_t idle_clock = 0;   ///< MHz; 0: none
    std::uint32_t idle_memory = 0;  ///< MHz; 0: stays as found
    std::string idle_after = "20ms";
    bool dry_run = false;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<RunCommand>();
        CLI::App* sub = app.add_subcommand(
            "run", "Run an unmodified program, and report the energy of its kernels");
        add_program(*sub, "command", command->command, "After --: the program")->required();
        sub->add_option("--report", command->reports,
                        "File to write: .json, .html, else text, - prints it; may be given more "
                        "than once. %h, %r, %j, %p stand for host, rank, job, process; without "
                        "them each rank writes a file of its own. Without this option a text goes "
                        "to standard error")
            ->allow_extra_args(false);
        command->attach.add_to(*sub);
        sub->add_option("--meter", command->meter_every,
                        "Meter one iteration in so many; 0: none, without records")
            ->check(CLI::Range(0U, 1'000'000U));
        auto* sweep = sub->add_option("--sweep", command->sweep,
                                      "Measure the kernels at several clocks, into this file");
        auto* plan = sub->add_option("--plan", command->plan, "Set the clocks of this plan")
                         ->excludes(sweep);
        auto* repeat = sub->add_flag(
            "--repeat", command->repeat,
            "Launch each kernel again and again with its own arguments, until its energy is "
            "resolved: "
            "what the program computes is garbage. A kernel that ends the program by that is left "
            "out, and the program is started again");
        repeat->excludes(sweep)->excludes(plan);
        auto* save = sub->add_flag(
            "--save", command->save,
            "Save energy: the program is measured, planned and run by its plan while it does its "
            "work, and the saving is proven beside blocks at the clocks as found");
        save->excludes(sweep)->excludes(plan)->excludes(repeat);
        sub->add_flag("--measure-only", command->measure_only,
                      "With --save: set no clock, as where that is not allowed. The run is "
                      "measured, and its account says a saving of 0 with the interval of its "
                      "blocks; what could be saved, 'kdvfs worth' says")
            ->needs(save);
        auto* pipeline = sub->add_option(
            "--pipeline", command->pipeline,
            "A case of a training pipeline (docs/training.md): its operations run at the clocks of "
            "its plan, by NVTX or roctx ranges with their names, such as 'forward 3'");
        pipeline->excludes(sweep)->excludes(plan)->excludes(repeat)->excludes(save);
        sub->add_option("--slowdown", command->slowdown,
                        "With --pipeline: an iteration may take so much longer, such as 5%")
            ->needs(pipeline)
            ->capture_default_str();
        sub->add_option("--latency", command->latency,
                        "With --pipeline: plan for clocks that come so late, such as 10ms")
            ->needs(pipeline);
        sub->add_option("--max-slowdown", command->max_slowdown,
                        "With --save: what the run may take longer, beside 20 s to begin with; "
                        "held at every moment")
            ->needs(save)
            ->capture_default_str();
        sub->add_option("--ledger", command->ledger,
                        "With --save: the account that it appends to (kdvfs ledger), in place of "
                        "the user's own")
            ->needs(save);
        sub->add_option("--runs-once", command->runs_once,
                        "A regular expression: kernels that are not repeated, besides sorts, scans "
                        "and others that are known by name")
            ->needs(repeat);
        auto* idle = sub->add_option(
            "--idle-clock", command->idle_clock,
            "Core clock in MHz for the time without work. It is asked for when each launch that "
            "was seen is done, and given up with the next; each costs two writes into its stream. "
            "A stream, graph or library call that nobody sees would run at it: by a record of the "
            "driver, such a kernel keeps the clock up from then on (CUDA). Not where other "
            "processes use the GPU");
        idle->check(CLI::Range(1U, 100'000U))->excludes(sweep)->excludes(plan);
        idle->excludes(repeat)->excludes(save)->excludes(pipeline);
        sub->add_option("--idle-memory", command->idle_memory,
                        "With --idle-clock: the memory clock in MHz then, where it can be set")
            ->check(CLI::Range(1U, 100'000U))
            ->needs(idle);
        sub->add_option("--idle-after", command->idle_after,
                        "With --idle-clock: so long there is no work before it")
            ->needs(idle)
            ->capture_default_str();
        sub->add_option("--metrics", command->metrics,
                        "PORT, or ADDRESS:PORT: serve what is known so far as Prometheus' text, "
                        "at /metrics, on the loopback unless an address is given");
        sub->add_option("--metrics-file", command->metrics_file,
                        "A file .prom that has the same, for node_exporter's textfile collector: "
                        "written every 5 s, removed at the end. %h, %r, %j, %p as in --report");
        sub->add_flag("--dry-run", command->dry_run,
                      "Say what would be written, and write nothing");
        sub->callback([command] { command->run(); });
    }

    /// Ends as the program ends: with its exit code (by CLI::RuntimeError), or by its signal.
    /// @throws Error (invalid_input) where it cannot be started, (io) where a report cannot be
    ///         written
    void run() const;

private:
    struct PlannedPipeline;
    /// @throws Error for a case that is none, and options that make no sense
    [[nodiscard]] PlannedPipeline planned_pipeline() const;
    /// @returns how the program ended, as waitpid has it
    [[nodiscard]] int run_program() const;
};

namespace {

/// Ends this process as a signal ended the program, without a second core file.
[[noreturn]] void end_by(int signal_number) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    ::signal(signal_number, SIG_DFL);
    sigset_t all;
    ::sigemptyset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::raise(signal_number);
    std::_Exit(128 + signal_number);
}

/// What processes that have ended left behind in a folder: the kernels that they were repeating.
std::vector<std::string> crashes_in(const std::filesystem::path& folder) {
    std::vector<std::string> found;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator{folder, ignored}) {
        const std::string name = entry.path().filename().string();
        constexpr std::string_view begin = "repeating.";
        if (!name.starts_with(begin)) continue;
        const long process = std::strtol(name.c_str() + begin.size(), nullptr, 10);
        if (process <= 0 || ::kill(static_cast<pid_t>(process), 0) == 0) continue;
        std::ifstream file{entry.path()};
        std::string kernel{std::istreambuf_iterator<char>{file}, {}};
        if (!kernel.empty()) found.push_back(std::move(kernel));
    }
    return found;
}

/// A regular expression that is met by `known` and by this very name.
std::string or_name(const std::string& known, std::string_view name) {
    std::string text = known.empty() ? "" : "(?:" + known + ")|";
    text += '^';
    for (const char c : name) {
        if (std::string_view{R"(\^$.*+?()[]{}|)"}.find(c) != std::string_view::npos) text += '\\';
        text += c;
    }
    return text + '$';
}

/// Whether a program was ended by somebody who wanted it to end.
bool was_asked_to_end(int status) {
    if (!WIFSIGNALED(status)) return false;
    const int number = WTERMSIG(status);
    return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT ||
           number == SIGKILL;
}

/// What a program that saves energy finds in its environment: its bound, and where its profiles and
/// its account are kept. A folder that cannot be made is done without.
/// @throws Error (invalid_input) for a bound that is no percentage above 0
std::vector<std::pair<std::string, std::string>> saving_variables(const std::string& max_slowdown,
                                                                  const std::string& ledger) {
    const double bound = parse_percent("--max-slowdown", max_slowdown, most_slowdown_pct);
    if (!(bound > 0)) reject("--max-slowdown", max_slowdown, "give 1% or another share above 0");
    std::ostringstream percent;
    percent << 100 * bound;
    std::string account =
        ledger.empty() ? "" : std::filesystem::absolute(ledger).lexically_normal().string();
    std::string store{kdvfs::io::environment("KDVFS_STORE")};
    const auto folder = state_folder();
    std::error_code failed;
    if (!folder.empty()) std::filesystem::create_directories(folder, failed);
    if (!folder.empty() && !failed) {
        if (account.empty()) account = (folder / "ledger.jsonl").string();
        if (store.empty()) store = (folder / "profiles").string();
    }
    if (account.empty() || store.empty())
        std::cerr << "kdvfs: "
                  << (!account.empty() ? "no profiles are kept: "
                      : store.empty()  ? "no account and no profiles are kept: "
                                       : "no account is kept: ")
                  << (folder.empty() ? "HOME is not set"
                                     : folder.string() + ": " + failed.message())
                  << "; give --ledger, and KDVFS_STORE\n";
    return {
        {"KDVFS_MAX_SLOWDOWN", percent.str()}, {"KDVFS_LEDGER", account}, {"KDVFS_STORE", store}};
}

/// Serves metrics; of several ranks on one host the first gets the port, the others a free one.
void serve_metrics(std::optional<MetricsServer>& server, const std::string& where,
                   const std::filesystem::path& folder, const JobPlace& place) {
    try {
        server.emplace(where, folder, place.labels());
    } catch (const kdvfs::Error& error) {
        if (place.rank.empty() || error.code() != kdvfs::Errc::busy) throw;
        const std::size_t colon = where.rfind(':');
        server.emplace(colon == std::string::npos ? "0" : where.substr(0, colon) + ":0", folder,
                       place.labels());
    }
}

}  // namespace

/// The plan of a pipeline for all its stages.
struct RunCommand::PlannedPipeline {
    std::string case_text;
    std::string plan_text;
    std::vector<kdvfs::ClockPoint> clocks;
};

RunCommand::PlannedPipeline RunCommand::planned_pipeline() const {
    using namespace kdvfs::train;
    const InputText input = read_input(pipeline);
    PlanOptions options;
    options.slowdown = parse_percent("--slowdown", slowdown, most_slowdown_pct);
    if (!latency.empty()) {
        const auto time = parse_duration("--latency", latency);
        if (!time) reject("--latency", latency, "give a time such as 10ms");
        options.switching = {.latency = *time};
    }
    PlannedPipeline planned{input.text, {}, {}};
    const Pipeline read = parse_pipeline_case(input.text, input.name).pipeline;
    // As sessions plan what a file has: its curves may be measured, thus noisy.
    const PipelineEstimate estimate{read, options.slowdown, options.confidence};
    planned.plan_text = make_plan_text(Frontier{estimate.cautious()}, options, &estimate);
    for (std::uint32_t stage = 0; stage < read.stages; ++stage)
        for (const PlannedClocks& each :
             parse_stage_plan(planned.plan_text, read, stage).operations)
            planned.clocks.push_back(each.first);
    std::sort(planned.clocks.begin(), planned.clocks.end());
    planned.clocks.erase(std::unique(planned.clocks.begin(), planned.clocks.end()),
                         planned.clocks.end());
    return planned;
}

void RunCommand::run() const {
    if (dry_run) {
        if (idle_clock > 0)
            return print_dry_run(
                "run " + command.front() + " with a clock for the time without work",
                clock_writes({{{idle_clock}, {idle_memory}}}));
        if (plan.empty() && sweep.empty() && pipeline.empty() && (!save || measure_only))
            reject("--dry-run", "",
                   "no clock is set without --plan, --sweep, --pipeline, --save or --idle-clock");
        if (!pipeline.empty())
            return print_dry_run("follow the plan of " + pipeline,
                                 clock_writes(planned_pipeline().clocks));
        const bool follows = !plan.empty();
        return print_dry_run(
            follows ? "follow " + plan
                    : (save ? "tune " : "sweep ") + command.front() + ", at clocks from these",
            clock_writes(follows ? clocks_of_plan(plan) : std::vector<kdvfs::ClockPoint>{}));
    }
    const int status = run_program();
    if (WIFSIGNALED(status)) end_by(WTERMSIG(status));
    throw CLI::RuntimeError(WEXITSTATUS(status));
}

int RunCommand::run_program() const {
    if (sweep == "-") reject("--sweep", sweep, "give a file: it grows while the program runs");
    if (meter_every == 0U && (!sweep.empty() || repeat || save || idle_clock > 0))
        reject("--meter", "0",
               "--sweep, --repeat, --save and --idle-clock need records: leave it out");
    std::error_code ignored;
    // The program would run without it, and say so at its end.
    if (!plan.empty() && !std::filesystem::exists(plan, ignored) &&
        kdvfs::tune::ranks_beside(plan).empty())
        throw kdvfs::Error{kdvfs::Errc::io,
                           {"run a program by a plan", plan, "there is no such file",
                            "give a plan as kdvfs plan --format json writes it"}};
    if (!plan.empty()) static_cast<void>(clocks_of_plan(plan));  // refuses what is no plan
    const JobPlace place = JobPlace::of_this_process();
    std::vector<std::string> files;
    for (const std::string& file : reports) files.push_back(report_name(file, place));
    for (const std::string& file : files) refuse_unwritable(file);
    for (const std::string& grown : {sweep, ledger})
        if (!grown.empty()) refuse_unwritable(grown);
    refuse_no_expression("--runs-once", runs_once);
    const TemporaryFolder folder;
    auto changes = attach.variables(folder.path);
    const KnownRun known{folder.path};
    std::optional<MetricsServer> server;
    if (!metrics.empty()) {
        serve_metrics(server, metrics, folder.path, place);
        std::cerr << "kdvfs: metrics at " << server->url() << '\n';
    }
    std::optional<MetricsFile> file;
    if (!metrics_file.empty()) {
        file.emplace(report_name(metrics_file, place), folder.path, place.labels());
    }
    const TemporaryFolder pipeline_folder;
    if (!pipeline.empty()) {
        const PlannedPipeline planned = planned_pipeline();
        for (const auto& [name, text] : {std::pair{"case.json", &planned.case_text},
                                         std::pair{"plan.json", &planned.plan_text}})
            kdvfs::io::replace_file(pipeline_folder.path / name, *text, 0600);
    }
    changes.emplace_back("KDVFS_ATTACH_PIPELINE",
                         pipeline.empty() ? "" : pipeline_folder.path.string());
    const TemporaryFolder ranks_folder;
    std::string mode{kdvfs::io::environment("KDVFS_MODE")};
    if (!plan.empty()) mode = "follow:" + std::filesystem::absolute(plan).string();
    if (!sweep.empty()) mode = "sweep:" + std::filesystem::absolute(sweep).string();
    if (repeat) mode = "repeat";
    if (!pipeline.empty()) mode = "measure";
    if (save) {
        mode = "auto";
        // Of ranks that are started below this command, as by torchrun.
        if (place.rank.empty())
            changes.emplace_back("KDVFS_LOCAL_RANKS", ranks_folder.path.string());
        for (auto& change : saving_variables(max_slowdown, ledger)) {
            changes.push_back(std::move(change));
        }
    }
    changes.emplace_back("KDVFS_MODE", mode);
    changes.emplace_back("KDVFS_ATTACH_MEASURE_ONLY", measure_only ? "1" : "");
    if (idle_clock > 0) {
        const auto after = parse_duration("--idle-after", idle_after);
        if (!after || after->count() < 1e-3) reject("--idle-after", idle_after, "give 1ms or more");
        changes.emplace_back("KDVFS_ATTACH_IDLE_CLOCK", std::to_string(idle_clock));
        changes.emplace_back("KDVFS_ATTACH_IDLE_MEMORY",
                             idle_memory > 0 ? std::to_string(idle_memory) : "");
        changes.emplace_back("KDVFS_ATTACH_IDLE_AFTER",
                             std::to_string(std::lround(after->count() * 1e3)));
    }
    changes.emplace_back("KDVFS_ATTACH_METER", meter_every ? std::to_string(*meter_every) : "");
    std::string left_out = runs_once;
    if (left_out.empty()) left_out = kdvfs::io::environment("KDVFS_ATTACH_RUNS_ONCE");
    const auto run_once = [&] {
        auto all = changes;
        all.emplace_back("KDVFS_ATTACH_RUNS_ONCE", left_out);
        return ChildProcess{command, environment_with(all)}.wait();
    };
    int status = run_once();
    constexpr int most_crashes = 16;
    for (int crash = 0; mode == "repeat" && crash < most_crashes; ++crash) {
        const std::vector<std::string> crashes = crashes_in(folder.path);
        if (crashes.empty() || was_asked_to_end(status)) break;
        for (const std::string& kernel : crashes) {
            std::cerr << "kdvfs: the program did not survive that kernel '" << kernel
                      << "' was repeated: it is started again without that\n";
            left_out = or_name(left_out, kernel);
        }
        for (const auto& entry : std::filesystem::directory_iterator{folder.path, ignored}) {
            std::filesystem::remove(entry.path(), ignored);
        }
        status = run_once();
    }

    const nlohmann::json merged = merge_attached_reports(read_attached_reports(folder.path));
    constexpr std::size_t shown_kernels = 20;
    if (reports.empty()) std::cerr << run_report_text(merged, shown_kernels);
    try {
        write_run_report(files, merged);
    } catch (const kdvfs::Error& error) {  // the program's exit code is what counts
        std::cerr << "kdvfs: " << error.what() << '\n';
    }
    return status;
}

void add_run_command(CLI::App& app) { RunCommand::add_to(app); }

}  // namespace cli
