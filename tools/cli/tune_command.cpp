// SPDX-License-Identifier: MIT
//
// A translation unit of its own: it brings together most of the library.
#include <tools/cli/tune_command.hpp>

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/tune/plan_table_text.hpp>
#include <kdvfs/detail/tune/session_status.hpp>
#include <kdvfs/detail/tune/shrinkage.hpp>
#include <kdvfs/detail/tune/trace_planner.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/plan_json.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/policy_header.hpp>
#include <kdvfs/tune/profile_csv.hpp>
#include <kdvfs/tune/ranks.hpp>
#include <kdvfs/tune/segments.hpp>
#include <kdvfs/tune/sweep_options.hpp>
#include <kdvfs/tune/validation.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/known_switch_costs.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/program_runs.hpp>
#include <tools/cli/report_command.hpp>
#include <tools/cli/temporary_folder.hpp>
#include <tools/cli/text_options.hpp>
#include <tools/cli/tuning_folder.hpp>
#include <tools/cli/validate_command.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace cli {
namespace {

/// What the program does by itself.
struct Trial {
    kdvfs::tune::Cost cost;
    kdvfs::Seconds wall{0};
    std::vector<kdvfs::tune::SessionStatus> sessions;  // one a GPU
};
/// What the plan, or the plans of unequal ranks together, promise.
struct Promise {
    kdvfs::tune::Plan plan;
    std::string hash;          // of the plan files
    std::size_t segments = 0;  // of all plans; 0 where kernels are planned one by one
    std::size_t plans = 0;
    double iteration_time_pct = 0;  // `plan` is of the whole run
    double iteration_energy_pct = 0;
};

/// What makes one tuning different from another: what a sweep depends on. A folder goes on with
/// other values of the rest.
std::string job_text(const TuneCommand& options) {
    return nlohmann::ordered_json{
               {"command", options.command},       {"max_slowdown", options.max_slowdown},
               {"confidence", options.confidence}, {"run_slowdown", options.run_slowdown},
               {"counter", options.counter},       {"level", options.attach.level},
               {"match", options.attach.match},    {"iteration", options.attach.iteration}}
               .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
           '\n';
}

/// Where what the program prints goes: its errors come through.
kdvfs::detail::Descriptor open_log(const TuningFolder& folder) {
    const std::filesystem::path path = folder.file("program.log");
    kdvfs::detail::Descriptor log{
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)};
    if (!log.is_open()) kdvfs::detail::throw_file_error("open a file", path, errno);
    return log;
}

/// @param status the file for the sessions; empty: they tell nothing
ProgramRuns::Variables variables(const TuningFolder& folder, const std::string& mode,
                                 const std::string& status) {
    return {{"KDVFS_MODE", mode},
            {"KDVFS_STATUS",
             status.empty() ? "" : std::filesystem::absolute(folder.file(status)).string()},
            {"KDVFS_PLAN", ""}};
}
std::string mode_of(const char* mode, const std::filesystem::path& file) {
    return mode + (':' + std::filesystem::absolute(file).string());
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
        const auto log = open_log(folder);
        const ProgramRun run = program(variables(folder, "off", "trial_status.json"), log.get());
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
                program(variables(folder, "measure", "trial_status.json"), log.get()));
        }
        folder.write("trial.json", nlohmann::ordered_json{{"time_s", run.cost.time.count()},
                                                          {"energy_j", run.cost.energy.count},
                                                          {"wall_s", run.wall.count()},
                                                          {"attached", attached}}
                                           .dump(2) +
                                       '\n');
    }
    const std::string name = folder.file("trial.json").string();
    const nlohmann::json json = kdvfs::tune::detail::parse_json(folder.read("trial.json"), name);
    const kdvfs::tune::detail::PlanFields fields{json, name, ""};
    const bool attached = json.value("attached", false);
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
                   attached ? "no iterations were found" : "it tells no iterations apart",
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
                                   ? std::string{kdvfs::detail::environment("PATH")}
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

std::string long_time(kdvfs::Seconds time) {
    char text[32];
    const double seconds = time.count();
    if (seconds < 120)
        std::snprintf(text, sizeof text, "%.0f s", std::max(1.0, seconds));
    else if (seconds < 7200)
        std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
    else
        std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
    return text;
}

/// Whether the sweeps of all GPUs are over.
bool swept(const TuningFolder& folder) {
    const auto statuses = folder.statuses("sweep_status.json");
    return !statuses.empty() &&
           std::all_of(statuses.begin(), statuses.end(),
                       [](const auto& status) { return status.sweep && status.sweep->done; });
}

/// Says how long it will take, before it begins.
void announce(const TuningFolder& folder, const Trial& trial,
              const kdvfs::tune::SweepOptions& options, std::size_t pairs) {
    const auto& session = trial.sessions.front();
    const double iterations = static_cast<double>(session.iterations);
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
}

/// Measurements at other clocks than the baseline's, of all GPUs: what shows that a sweep gets
/// on.
std::size_t measured(const TuningFolder& folder) {
    std::size_t count = 0;
    for (const std::filesystem::path& path : folder.ranked("profile.csv")) {
        TuningFolder::wait_for(path);
        std::string text = read_input(path.string()).text;
        text.resize(text.rfind('\n') + 1);  // the last line may have been cut short
        std::istringstream lines{text};
        kdvfs::detail::CsvReader reader{lines, path.string()};
        const auto rows = kdvfs::tune::detail::read_rows(reader);
        if (!rows.profile) continue;
        for (const auto& kernel : rows.profile->kernels())
            for (const auto& point : kernel.points)
                if (point.clock != rows.profile->baseline()) count += point.samples.size();
    }
    return count;
}

void sweep(const TuningFolder& folder, const ProgramRuns& program,
           const kdvfs::tune::SweepOptions& options) {
    const auto percent = [](double share) { return kdvfs::detail::to_text(100 * share); };
    std::size_t fruitless = 0;
    for (std::size_t before = measured(folder); !swept(folder);) {
        auto environment =
            variables(folder, mode_of("sweep", folder.file("profile.csv")), "sweep_status.json");
        environment.emplace_back("KDVFS_MAX_SLOWDOWN", percent(options.objective.max_slowdown));
        environment.emplace_back("KDVFS_RUN_SLOWDOWN", percent(options.max_slowdown));
        const auto log = open_log(folder);
        static_cast<void>(program(environment, log.get()));
        const auto statuses = folder.statuses("sweep_status.json");
        if (!statuses.empty() && statuses.front().sweep)
            std::fprintf(stderr, "kdvfs: %s\n", to_string(*statuses.front().sweep).c_str());
        const std::size_t after = measured(folder);
        fruitless = after > before ? 0 : fruitless + 1;
        before = after;
        if (fruitless == 2 && !swept(folder))
            throw kdvfs::Error{
                kdvfs::Errc::invalid_input,
                {"sweep a program", folder.path().string(),
                 "two runs in a row ended before anything could be measured",
                 "let it run for longer: some seconds of warm-up and measurements of 2 s each"}};
    }
}

/// How to plan for iterations that are not alike. A clock for each kernel is paid for at each
/// launch: it is taken only where the latency of a switch is a small part of the shortest launch
/// whose clock is not the baseline's.
kdvfs::tune::Aggregate aggregate_without_sequence(const kdvfs::tune::Plans& plans,
                                                  const kdvfs::tune::SwitchCosts& costs) {
    using namespace kdvfs::tune;
    constexpr double small_part = 0.01;
    for (const PlannedKernel& kernel : plans.global.kernels)
        for (const PlannedKernel& other : plans.global.kernels) {
            if (kernel.clock == other.clock) continue;
            const kdvfs::Seconds latency = costs.delay(other.clock, kernel.clock).latency;
            if (latency > small_part * kernel.expected.time) return Aggregate::single;
        }
    return Aggregate::global;
}

struct PlanFiles {
    std::string json;
    std::string header;
};

PlanFiles plan_files(const kdvfs::tune::RankProfile& measured,
                     const kdvfs::tune::Objective& objective, const std::string& switch_latency) {
    using namespace kdvfs::tune;
    const CostTable table = shrunk_costs(measured.profile);
    const HeaderOptions header{"kdvfs_policies", "Policies", "profile.csv",
                               kdvfs::detail::content_hash(kdvfs::tune::to_csv(measured.profile))};
    const SwitchCosts costs = known_switch_costs(switch_latency, table.gpu);
    if (measured.sequence.launches.empty() && measured.trace.iterations.empty()) {
        const Plans plans = make_plans(table, objective);
        const Aggregate by = aggregate_without_sequence(plans, costs);
        return {to_json(plans, by), to_policy_header(plans[by], header)};
    }
    SegmentOptions options;
    options.worthwhile_pct = simplest_within_pct;
    SegmentPlan plan =
        plan_program(table, measured.sequence, measured.trace, costs, objective, options);
    plan.sequence.profile_hash = header.input_hash;
    return {to_json(plan), to_segment_header(plan, header)};
}

/// Unequal ranks wait for the slowest; their energies add.
void add(Promise& promise, const std::string& text, const std::string& name) {
    using namespace kdvfs::tune;
    const bool segments = has_sequence(text, name);
    const Plan plan = segments ? parse_promise(text, name) : parse_plan(text, name);
    if (segments) promise.segments += parse_sequence(text, name).boundaries.size();
    if (promise.plans++ == 0) {
        promise.plan = plan;
        return;
    }
    promise.plan.baseline = {std::max(promise.plan.baseline.time, plan.baseline.time),
                             promise.plan.baseline.energy + plan.baseline.energy};
    promise.plan.expected = {std::max(promise.plan.expected.time, plan.expected.time),
                             promise.plan.expected.energy + plan.expected.energy};
}

/// What a plan promises for a whole run: what it changes in an iteration, as many times as there
/// are iterations. Idle, start-up, other streams and kernels without scopes stay as they were
/// measured in a run without the plan.
kdvfs::tune::Plan for_the_run(const kdvfs::tune::Plan& iteration, const Trial& trial) {
    kdvfs::tune::Plan run = iteration;
    double iterations = static_cast<double>(trial.sessions.front().iterations);
    // Iterations that overlap, or are not all alike, cannot fill more than the run.
    iterations = std::min({iterations, trial.cost.time / iteration.baseline.time,
                           trial.cost.energy / iteration.baseline.energy});
    run.baseline = trial.cost;
    run.expected = trial.cost;
    run.expected.time += (iteration.expected.time - iteration.baseline.time) * iterations;
    run.expected.energy += (iteration.expected.energy - iteration.baseline.energy) * iterations;
    return run;
}

/// Plans what has been measured; ranks that are equal share a plan.
Promise plan(const TuningFolder& folder, const kdvfs::tune::Objective& objective,
             const std::string& switch_latency) {
    using namespace kdvfs::tune;
    {
        const auto ranks = read_rank_profiles(folder.file("profile.csv"));
        const auto groups = equal_ranks(ranks);
        for (const auto& group : groups) {
            const RankProfile merged =
                ranks.size() == 1 ? ranks.front() : merge_ranks(ranks, group);
            const PlanFiles files = plan_files(merged, objective, switch_latency);
            for (const std::size_t member : group) {
                const bool shared = groups.size() == 1;
                const auto named = [&](const char* name) {
                    const std::filesystem::path file{name};
                    return shared ? file.string() : rank_path(file, *ranks[member].rank).string();
                };
                folder.write(named("policies.hpp"), files.header);
                folder.write(named("plan.json"), files.json);  // last: says that both are there
                if (shared) break;
            }
        }
    }
    Promise promise;
    std::string all;
    for (const std::filesystem::path& path : folder.ranked("plan.json")) {
        namespace fs = std::filesystem;
        fs::permissions(path, fs::perms::group_write | fs::perms::others_write,
                        fs::perm_options::remove);  // or no program may trust it
        const std::string text = read_trusted_file(path);
        all += text;
        add(promise, text, path.string());
    }
    promise.hash = kdvfs::detail::content_hash(all);
    return promise;
}

kdvfs::tune::Validation validate_plan(const TuningFolder& folder, const ProgramRuns& program,
                                      const Promise& promise, std::size_t pairs,
                                      std::uint64_t seed) {
    RunLog runs{folder.file("runs.csv"), promise.hash};
    const std::string follow = mode_of("follow", folder.file("plan.json"));
    const auto run_once = [&](bool planned) {
        return runs.next(planned, [&] {
            std::fprintf(stderr, "kdvfs: run %zu of %zu, %s\n", runs.recorded() + 1, 2 * pairs,
                         planned ? "by the plan" : "as it is");
            const auto log = open_log(folder);
            return program(planned ? variables(folder, follow, "follow_status.json")
                                   : variables(folder, "off", ""),
                           log.get())
                .cost;
        });
    };
    const auto found = kdvfs::tune::validate(promise.plan, pairs, run_once, seed,
                                             kdvfs::tune::Stopping::once_decided);
    folder.write("kept.json", kdvfs::tune::to_json(found, promise.plan.gpu));
    return found;
}

/// The page of `kdvfs report`: the first GPU's profile, its kernels' plans, the plan that was
/// followed, what was kept.
void write_report(const TuningFolder& folder, const kdvfs::tune::Objective& objective,
                  const Promise& promise, const kdvfs::tune::Validation& found) {
    using namespace kdvfs::tune;
    const std::string profile = folder.ranked("profile.csv").front().string();
    const TemporaryFolder drawn;
    const std::string plans = drawn.path / "plans.json";
    const std::string kept = drawn.path / "tuned.json";
    const CostTable table = shrunk_costs(read_profile(std::filesystem::path{profile}));
    write(plans, to_json(make_plans(table, objective), Aggregate::global));
    write(kept, to_json(found, table.gpu));
    ReportCommand report{{profile, plans, kept}, folder.file("report.html").string()};
    if (promise.segments > 0 && promise.plans == 1)
        report.inputs.push_back(folder.ranked("plan.json").front().string());
    report.run();
}

std::string to_text(const TuningFolder& folder, const Promise& promise,
                    const kdvfs::tune::Validation& found) {
    std::string text = "\n" + promise.plan.gpu + ": ";
    if (promise.plans > 1) text += std::to_string(promise.plans) + " ranks' plans, ";
    text += promise.segments > 0 ? std::to_string(promise.segments) + " segments"
                                 : std::string{"no sequence of launches"};
    text += ", " + std::to_string(found.pairs) + " pairs of runs, against the board's own\n" +
            validation_text(found);
    char iteration[120];
    std::snprintf(iteration, sizeof iteration,
                  "promised for an iteration: time %+.3f %%, energy %+.3f %%; above: the run\n",
                  promise.iteration_time_pct, promise.iteration_energy_pct);
    text += iteration;
    for (const auto& status : folder.statuses("follow_status.json")) {
        if (!status.followed_pct) continue;
        char row[80];
        std::snprintf(row, sizeof row, "followed %.2f %% of the time\n", *status.followed_pct);
        text += row;
    }
    return text;
}

}  // namespace

void TuneCommand::add_to(CLI::App& app) {
    auto command = std::make_shared<TuneCommand>();
    CLI::App* sub = app.add_subcommand(
        "tune", "Sweep a program's kernels, plan their clocks, and see whether that is kept");
    sub->footer(
        "The program has a kdvfs::tune::Session, or is attached to as by kdvfs run. It is run "
        "again and\nagain: once as it is, then for the sweep, then in pairs, with the plan and "
        "without, until the\nverdict is known. A tuning that was ended goes on where it was. Exit "
        "status: 0 bound and\nsaving were kept, 1 the tuning failed, 3 undecided: more pairs may "
        "tell, 4 one was broken,\n5 nothing to gain: the clocks are best left as they are.");
    sub->add_option("command", command->command, "After --: the program and its arguments")
        ->required();
    sub->add_option("--max-slowdown", command->max_slowdown, "That the plan may cost")
        ->capture_default_str();
    sub->add_option("--confidence", command->confidence,
                    "With what probability the slowdown stays within that, as far as repeated "
                    "samples tell; 50% takes estimates as they are")
        ->capture_default_str();
    sub->add_option("--run-slowdown", command->run_slowdown,
                    "That a run may cost while it is swept; 5% where its work is of use")
        ->capture_default_str();
    sub->add_option("--switch-latency", command->switch_latency,
                    "A time such as 6ms, or a CSV of latencies; else what was measured on this "
                    "machine, else 10ms");
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
    command->attach.add_to(*sub);
    sub->callback([command] { command->run(); });
}

void TuneCommand::run() const {
    using namespace kdvfs::tune;
    const double bound = parse_percent("--max-slowdown", max_slowdown, most_slowdown_pct);
    SweepOptions options = sweep_options_from_environment();  // as the program's session does
    options.objective = with_confidence(with_max_slowdown(strict_waste(), bound),
                                        parse_percent("--confidence", confidence, 100));
    options.max_slowdown = parse_percent("--run-slowdown", run_slowdown, most_slowdown_pct);
    if (!(options.max_slowdown > 0)) reject("--run-slowdown", run_slowdown, "give 5% or so");
    if (!switch_latency.empty()) static_cast<void>(known_switch_costs(switch_latency, ""));
    require_program(command.front());
    const TuningFolder folder{output, job_text(*this)};
    ProgramRuns program =
        counter == "auto" ? ProgramRuns::by_what_is_there(command) : ProgramRuns{command, counter};
    const TemporaryFolder reports;
    const Trial trial = try_out(folder, program, attach, reports.path);
    announce(folder, trial, options, pairs);
    sweep(folder, program, options);
    Promise promise = plan(folder, options.objective, switch_latency);
    promise.iteration_time_pct = promise.plan.time_pct();
    promise.iteration_energy_pct = promise.plan.energy_pct();
    promise.plan = for_the_run(promise.plan, trial);
    if (promise.plan.energy_pct() > -simplest_within_pct) {
        std::printf(
            "nothing to gain: the best plan changes the run's energy by %+.3f %%, within "
            "%.1f points of the clocks as found; leave them\n",
            promise.plan.energy_pct(), simplest_within_pct);
        finish_standard_output();
        throw CLI::RuntimeError{exit_status(Verdict::nothing_to_gain)};
    }
    const Validation found = validate_plan(folder, program, promise, pairs, seed);
    write_report(folder, options.objective, promise, found);
    std::printf("%s", to_text(folder, promise, found).c_str());
    std::printf("wrote plan, policies.hpp, kept.json and report.html to %s\n",
                folder.path().c_str());
    warn_of_few_pairs(found);
    finish_standard_output();
    if (const int status = exit_status(found.verdict()); status != 0)
        throw CLI::RuntimeError{status};
}

}  // namespace cli
