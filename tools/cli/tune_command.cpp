// SPDX-License-Identifier: MIT
//
// A translation unit of its own: it brings together most of the library.
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/tune/plan_fields.hpp>
#include <kdvfs/detail/tune/plan_table_text.hpp>
#include <kdvfs/detail/tune/session_status.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/sweep_options.hpp>
#include <kdvfs/tune/validation.hpp>
#include <tools/cli/attached_program.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/commands.hpp>
#include <tools/cli/dry_run.hpp>
#include <tools/cli/known_switch_costs.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/program_comparison.hpp>
#include <tools/cli/program_plan.hpp>
#include <tools/cli/program_runs.hpp>
#include <tools/cli/program_sweep.hpp>
#include <tools/cli/program_words.hpp>
#include <tools/cli/report_command.hpp>
#include <tools/cli/temporary_folder.hpp>
#include <tools/cli/text_options.hpp>
#include <tools/cli/tuning_folder.hpp>
#include <tools/cli/validate_command.hpp>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace cli {

/// `kdvfs tune [--max-slowdown 1%] -- COMMAND...`
struct TuneCommand {
    std::vector<std::string> command;
    AttachOptions attach;
    std::string max_slowdown = "1%";
    std::string confidence = "90%";
    double node_watts = 0;
    std::string run_slowdown = "100%";
    std::string switch_latency;
    std::string exclude_below;
    std::string timeout;
    std::string counter = "auto";
    std::size_t pairs = 10;
    std::uint64_t seed = 2;
    std::string output = "kdvfs_tune";
    bool dry_run = false;

    /// @throws Error, and CLI::RuntimeError with the `exit_status` of a verdict other than kept
    void run() const;
};

namespace {

TuningJob job_of(const TuneCommand& options) {
    return {{{"command", options.command},
             {"level", options.attach.level},
             {"match", options.attach.match},
             {"iteration", options.attach.iteration}},
            {{"counter", options.counter}},
            {{"max_slowdown", options.max_slowdown},
             {"confidence", options.confidence},
             {"run_slowdown", options.run_slowdown},
             {"exclude_below", options.exclude_below}}};
}

/// What attaching to a program, whose reports lie in a folder, could not do.
std::string notes_in(const std::filesystem::path& folder) {
    std::string text;
    for (const auto& report : read_attached_reports(folder))
        for (const auto& note : report["notes"])
            text += (text.empty() ? "" : "; ") + note.get<std::string>();
    return text;
}

/// Runs the program once, as it is; where that has no session, once more, attached to: then
/// `libkdvfs_attach.so` is its session.
/// @param reports where an attached program leaves its reports
Trial try_out(const TuningFolder& folder, ProgramRuns& program, const AttachOptions& attach,
              const std::filesystem::path& reports) {
    const auto reject = [&](kdvfs::Errc code, const std::string& why, const char* remedy) {
        throw kdvfs::Error{code, {"tune a program", folder.path().string(), why, remedy}};
    };
    if (!folder.has("trial.json")) {
        std::fprintf(stderr, "kdvfs: the program runs once, as it is\n");
        const auto log = folder.open_log();
        const ProgramRun run = program(folder.prepare_run("off", "trial_status.json"), log.get());
        const bool attached = folder.statuses("trial_status.json").empty();
        if (attached) {
            std::fprintf(stderr, "kdvfs: it has no session: it runs once more, attached to\n");
            try {
                program.attach(attach.variables(reports));
            } catch (const kdvfs::Error& error) {
                reject(error.code(), "it has no kdvfs::tune::Session: " + error.text().vendor_words,
                       error.text().remedy.c_str());
            }
            static_cast<void>(
                program(folder.prepare_run("measure", "trial_status.json"), log.get()));
        }
        folder.write("trial.json", nlohmann::ordered_json{{"time_s", run.cost.time.count()},
                                                          {"energy_j", run.cost.energy.count},
                                                          {"wall_s", run.wall.count()},
                                                          {"attached", attached}}
                                           .dump(2) +
                                       '\n');
    }
    const std::string name = folder.file("trial.json").string();
    const nlohmann::json kept = kdvfs::tune::parse_json(folder.read("trial.json"), name);
    const kdvfs::tune::PlanFields fields{kept, name, ""};
    const bool attached = kept.value("attached", false);
    if (attached) program.attach(attach.variables(reports));
    Trial trial{fields.cost("time_s", "energy_j"), kdvfs::Seconds{fields.number("wall_s", 0)},
                folder.statuses("trial_status.json")};
    if (trial.sessions.empty())
        reject(kdvfs::Errc::invalid_input,
               "it has no kdvfs::tune::Session, and attached to it launches nothing on a GPU" +
                   (attached ? ": " + notes_in(reports) : std::string{}),
               "put a session where its GPU with policies stands, and remove the folder");
    for (const auto& session : trial.sessions) {
        if (session.iterations == 0)
            reject(kdvfs::Errc::invalid_input,
                   attached ? "no iterations were found" : "it names no iterations",
                   attached ? "name the range that is one (--iteration), and remove the folder"
                            : "call next_iteration() of its session, and remove the folder");
        if (session.measure_only && !attached)
            reject(kdvfs::Errc::not_supported, "its GPU is only measured",
                   "open it with its clocks, and remove the folder");
    }
    return trial;
}

/// Checks that there is a program to run before anything is written.
/// @throws Error (invalid_input)
void require_program(const std::string& name) {
    std::istringstream folders{name.find('/') == std::string::npos
                                   ? std::string{kdvfs::io::environment("PATH")}
                                   : std::string{"/"}};
    for (std::string folder; std::getline(folders, folder, ':');) {
        const std::filesystem::path path = name.find('/') == std::string::npos
                                               ? std::filesystem::path{folder} / name
                                               : std::filesystem::path{name};
        if (::access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path)) return;
    }
    throw kdvfs::Error{kdvfs::Errc::invalid_input,
                       {"tune a program", name, "there is no such program", "check its name"}};
}

/// Says how long it will take, before it begins.
/// @returns how long the sweep is expected to take
kdvfs::Seconds announce(const TuningFolder& folder, const Trial& trial,
                        const kdvfs::tune::SweepOptions& options, std::size_t pairs) {
    const auto& session = trial.sessions.front();
    const auto iterations = static_cast<double>(session.iterations);
    const auto expected = kdvfs::tune::expected_sweep(
        options, session.grid_points, trial.cost.time / iterations, session.sample_period);
    const double sweeps = swept(folder) ? 0 : expected.runs(trial.cost.time);
    const double runs = sweeps + 2 * static_cast<double>(pairs);
    std::printf("%s%s: a run takes %.3g s here and %.3g s on the GPU, %ju iterations\n",
                session.gpu.c_str(),
                trial.sessions.size() > 1
                    ? (" and " + std::to_string(trial.sessions.size() - 1) + " more").c_str()
                    : "",
                trial.wall.count(), trial.cost.time.count(),
                static_cast<std::uintmax_t>(session.iterations));
    std::printf("about %.0f runs for the sweep, %zu to validate at most: about %s in all\n", sweeps,
                2 * pairs, long_time(trial.wall * runs).c_str());
    std::fflush(stdout);
    return trial.wall * sweeps;
}

/// A plan, and what comparing it has found.
struct JudgedPlan {
    Promise promise;
    kdvfs::tune::Plan run;  ///< what it promises for the run
    kdvfs::tune::Validation found;
    std::size_t rounds = 0;  ///< that plans were made in
};

/// Says how a plan did that was not kept, and what the next one is made with.
void report_round(std::size_t round, const Comparison& compared, const PlanCorrection& correction) {
    const kdvfs::tune::Validation& found = compared.found;
    std::fprintf(stderr,
                 "kdvfs: plan %zu %s: promised time %+.2f %%, energy %+.2f %%, found %+.2f, %+.2f; "
                 "planned again with %.3g ms more for a switch, other clocks %+.2f %% in time and "
                 "%+.2f %% in energy\n",
                 round, std::string{to_string(found.verdict())}.c_str(), found.promised_time_pct,
                 found.promised_energy_pct, found.time.mean, found.energy.mean,
                 1e3 * correction.per_switch.count(), 100 * (correction.time - 1),
                 100 * (correction.energy - 1));
}

/// Makes plans until one is kept, each corrected by what the one before it was found to do. The
/// files of the last one stay in the folder.
/// @returns nothing where nothing is left to gain
std::optional<JudgedPlan> plan_until_kept(const TuningFolder& folder, const ProgramRuns& program,
                                          PlanningOptions planning, const Trial& trial,
                                          std::size_t pairs, std::uint64_t seed) {
    using kdvfs::tune::Verdict;
    constexpr std::size_t most_rounds = 3;
    for (std::size_t round = 1;; ++round) {
        const Promise promise = make_plan(folder, planning);
        const kdvfs::tune::Plan run = for_the_run(promise.plan, trial);
        if (run.energy_pct() > -kdvfs::tune::simplest_within_pct) {
            std::printf(
                "nothing to gain: the best plan changes the run's energy by %+.3f %%, "
                "within %.1f points of the clocks as found; leave them\n",
                run.energy_pct(), kdvfs::tune::simplest_within_pct);
            return std::nullopt;
        }
        const auto in_run = BlockComparison{folder, promise, trial, pairs}(program);
        const Comparison compared =
            in_run ? *in_run : compare_runs(folder, program, promise, trial, pairs, seed);
        folder.write("kept.json", kdvfs::tune::to_json(compared.found, promise.plan.gpu));
        if (compared.found.verdict() != Verdict::broken || !compared.iteration ||
            round == most_rounds)
            return JudgedPlan{promise, run, compared.found, round};
        planning.correction = corrected(planning.correction, promise, *compared.iteration);
        report_round(round, compared, planning.correction);
    }
}

/// The page of `kdvfs report`: the first GPU's profile, the plan that was followed, what it could
/// have been, what was kept.
void write_report(const TuningFolder& folder, const PlanningOptions& planning,
                  const Promise& promise, const kdvfs::tune::Validation& found) {
    using namespace kdvfs::tune;
    const std::string profile = folder.ranked("profile.csv").front().string();
    const TemporaryFolder drawn;
    const std::string plans = drawn.path / "plans.json";
    const std::string kept = drawn.path / "tuned.json";
    const CostTable table = planning.costs(read_profile(std::filesystem::path{profile}));
    write(kept, to_json(found, table.gpu));
    ReportCommand report{{profile, kept, folder.ranked("plan.json").front().string()},
                         folder.file("report.html").string()};
    if (promise.segments > 0) {  // else the plan's file has the other ways to plan
        write(plans, to_json(make_plans(table, planning.objective), Aggregate::global));
        report.inputs.push_back(plans);
    }
    report.run();
}

std::string to_text(const TuningFolder& folder, const JudgedPlan& judged) {
    const Promise& promise = judged.promise;
    const kdvfs::tune::Validation& found = judged.found;
    std::string text = "\n" + promise.plan.gpu + ": ";
    if (promise.plans > 1) text += std::to_string(promise.plans) + " ranks' plans, ";
    text += promise.segments > 0 ? std::to_string(promise.segments) + " segments"
                                 : std::string{"no sequence of launches"};
    text += ", " + std::to_string(found.pairs) + " pairs, against the board's own" +
            (judged.rounds > 1 ? ", plan " + std::to_string(judged.rounds) : std::string{}) + '\n' +
            validation_text(found);
    text += kdvfs::io::format_text(
        "promised for an iteration: time %+.3f %%, energy %+.3f %%; above: the run\n",
        promise.plan.time_pct(), promise.plan.energy_pct());
    for (const auto& status :
         folder.statuses(folder.has("runs.csv") ? "follow_status.json" : "compare_status.json")) {
        if (!status.followed_pct) continue;
        text += kdvfs::io::format_text("followed %.2f %% of the time\n", *status.followed_pct);
    }
    return text;
}

}  // namespace

void add_tune_command(CLI::App& app) {
    auto command = std::make_shared<TuneCommand>();
    CLI::App* sub = app.add_subcommand(
        "tune", "Sweep a program's kernels, plan their clocks, and see whether that is kept");
    sub->footer(
        "The program has a kdvfs::tune::Session, or is attached to as by kdvfs run. It is run "
        "again and\nagain: once as it is, then for the sweep, then in pairs, with the plan and "
        "without, until the\nverdict is known. A tuning that was ended goes on where it was. Exit "
        "status: 0 bound and\nsaving were kept, 1 the tuning failed, 3 undecided: more pairs may "
        "decide, 4 one was broken,\n5 nothing to gain: the clocks are best left as they are.");
    add_program(*sub, "command", command->command, "After --: the program and its arguments")
        ->required();
    sub->add_option("--max-slowdown", command->max_slowdown, "That the plan may cost")
        ->capture_default_str();
    sub->add_option("--confidence", command->confidence,
                    "With what probability the slowdown stays within that, as far as repeated "
                    "samples show; 50% takes estimates as they are")
        ->capture_default_str();
    sub->add_option("--node-watts", command->node_watts,
                    "What the rest of the node draws for each GPU, in W: its energy counts, too")
        ->check(watts_range(0));
    sub->add_option("--run-slowdown", command->run_slowdown,
                    "That a run may cost while it is swept; 5% where its work is of use")
        ->capture_default_str();
    sub->add_option("--switch-latency", command->switch_latency,
                    "A time such as 6ms, or a CSV of latencies; else what was measured on this "
                    "machine, else 10ms");
    sub->add_option("--exclude-below", command->exclude_below,
                    "A core clock in MHz: lower ones are never set");
    sub->add_option("--timeout", command->timeout,
                    "What a run may take, such as 30min; then it is ended");
    sub->add_option("--counter", command->counter,
                    "What counts the program's energy: a GPU's PCI address, hwmon:FILE "
                    "(microjoules), program: it reports its own; auto: what there is")
        ->capture_default_str();
    sub->add_option("--pairs", command->pairs, "Pairs of runs to validate with, at most")
        ->check(CLI::Range(std::size_t{2}, std::size_t{100'000}))
        ->capture_default_str();
    sub->add_option("--seed", command->seed, "Of the order of pairs")
        ->check(seeds())
        ->capture_default_str();
    sub->add_option("-o,--output", command->output, "Folder for all that is found")
        ->capture_default_str();
    sub->add_flag("--dry-run", command->dry_run, "Say what would be written, and write nothing");
    command->attach.add_to(*sub);
    sub->callback([command] { command->run(); });
}

void TuneCommand::run() const {
    using namespace kdvfs::tune;
    const double bound = parse_percent("--max-slowdown", max_slowdown, most_slowdown_pct);
    SweepOptions options = sweep_options_from_environment();  // as the program's session does
    options.objective = with_confidence(with_max_slowdown(strict_waste(), bound),
                                        parse_percent("--confidence", confidence, 100));
    if (node_watts > 0)
        options.objective = with_node_power(options.objective, kdvfs::Watts{node_watts});
    options.max_slowdown = parse_percent("--run-slowdown", run_slowdown, most_slowdown_pct);
    if (!(options.max_slowdown > 0)) reject("--run-slowdown", run_slowdown, "give 5% or so");
    if (!switch_latency.empty()) static_cast<void>(known_switch_costs(switch_latency, ""));
    const auto below =
        exclude_below.empty() ? kdvfs::auto_clock : kdvfs::io::parse_clock(exclude_below);
    if (!below || (!exclude_below.empty() && *below == kdvfs::auto_clock))
        reject("--exclude-below", exclude_below, "give a core clock in MHz, such as 900");
    const kdvfs::Seconds longest = timeout.empty()
                                       ? kdvfs::Seconds{std::numeric_limits<double>::infinity()}
                                       : parse_long_time("--timeout", timeout);
    require_program(command.front());
    if (dry_run)
        return print_dry_run("sweep " + command.front() + ", at clocks from these",
                             clock_writes({}));
    const TuningFolder folder{output, job_of(*this)};
    ProgramRuns program =
        counter == "auto" ? ProgramRuns::by_what_is_there(command) : ProgramRuns{command, counter};
    program.limit(longest);
    const TemporaryFolder reports;
    const Trial trial = try_out(folder, program, attach, reports.path);
    const kdvfs::Seconds expected = announce(folder, trial, options, pairs);
    sweep(folder, program, options, *below, expected);
    const PlanningOptions planning{
        options.objective, excluded_clocks(folder, *below), switch_latency, {}};
    const auto judged = plan_until_kept(folder, program, planning, trial, pairs, seed);
    if (!judged) {
        finish_standard_output();
        throw CLI::RuntimeError{exit_status(Verdict::nothing_to_gain)};
    }
    const Validation& found = judged->found;
    write_report(folder, planning, judged->promise, found);
    std::printf("%s", to_text(folder, *judged).c_str());
    std::printf("wrote plan, policies.hpp, kept.json and report.html to %s\n",
                folder.path().c_str());
    warn_of_few_pairs(found);
    finish_standard_output();
    if (const int status = exit_status(found.verdict()); status != 0)
        throw CLI::RuntimeError{status};
}

}  // namespace cli
