// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/switch_costs.hpp>
#include <kdvfs/tune/validation.hpp>
#include <tools/cli/dry_run.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/known_switch_costs.hpp>
#include <tools/cli/measured_gpu.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/program_runs.hpp>
#include <tools/cli/temporary_folder.hpp>
#include <tools/cli/text_options.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cli {

/// What was promised and what fresh runs say, judged: what `kdvfs validate` and `kdvfs tune` print.
inline std::string validation_text(const kdvfs::tune::Validation& found) {
    char row[160];
    const auto line = [&](const char* what, double promised,
                          const kdvfs::tune::PercentInterval& validated,
                          kdvfs::tune::Verdict verdict) {
        std::snprintf(row, sizeof row, "%-8s %+10.3f %% %+10.3f %%  [%+.3f, %+.3f]  %s\n", what,
                      promised, validated.mean, validated.low, validated.high,
                      std::string{to_string(verdict)}.c_str());
        return std::string{row};
    };
    std::snprintf(row, sizeof row, "%-8s %12s %12s  95 %% interval\n", "", "promised", "validated");
    std::string text = row;
    text += line("time", found.promised_time_pct, found.time, found.time_verdict());
    text += line("energy", found.promised_energy_pct, found.energy, found.energy_verdict());
    if (std::isfinite(found.time_bound_pct)) {
        std::snprintf(row, sizeof row, "slowdown up to %g %%: %s\n", found.time_bound_pct,
                      std::string{to_string(found.time_verdict())}.c_str());
        text += row;
    }
    return text;
}

/// Says so where a verdict needs more pairs.
inline void warn_of_few_pairs(const kdvfs::tune::Validation& found) {
    if (found.too_few_pairs())
        std::fprintf(stderr,
                     "kdvfs: %zu pairs are too few to judge a plan by: give --pairs 10 or more\n",
                     found.pairs);
}

/// `kdvfs validate PLAN.json --device replay:FILE` and `kdvfs validate PLAN.json -- COMMAND...`
struct ValidateCommand {
    std::string plan;
    std::vector<std::string> command;
    std::string device;
    std::string trace;
    std::string switch_latency;
    std::string counter = "auto";
    std::size_t pairs = 20;
    std::string noise = "0%";
    std::uint64_t seed = 2;
    std::string format = "table";
    std::string output;
    bool dry_run = false;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<ValidateCommand>();
        CLI::App* sub = app.add_subcommand(
            "validate", "Compare a plan with the baseline by fresh runs in alternating pairs");
        sub->footer(
            "Exit status: 0 the plan kept its bound and its saving, 1 the input is bad, 3 "
            "undecided: "
            "more\npairs may decide, 4 it broke one, 5 kept, but there is nothing to gain. A bound "
            "is "
            "kept where\nthe whole 95 % interval of time lies within it and 0.1 points; a saving, "
            "where that of energy\ndoes within 0.3 points. It ends as soon as the verdict is "
            "known.");
        sub->add_option("plan", command->plan, "Plan file (JSON); - is standard input")->required();
        sub->add_option("command", command->command,
                        "After --: a program, run twice a pair, with KDVFS_PLAN set and without");
        sub->add_option("--device", command->device, "Instead of a program: sim:NAME, replay:FILE");
        sub->add_option("--trace", command->trace,
                        "With --device: launches of an iteration in order (CSV: kernel[,variant]); "
                        "else a plan's kernels run one after the other");
        sub->add_option("--switch-latency", command->switch_latency,
                        "With --device: a time such as 6ms, or a CSV of latencies; else what was "
                        "measured on this machine, else 10ms");
        sub->add_option("--counter", command->counter,
                        "What counts a program's energy: a GPU's PCI address, hwmon:FILE "
                        "(microjoules), or program: it reports its own time and energy")
            ->capture_default_str();
        sub->add_option("--pairs", command->pairs, "Pairs of runs, at most")
            ->check(CLI::Range(std::size_t{2}, std::size_t{100'000}))
            ->capture_default_str();
        sub->add_option("--noise", command->noise, "Of a simulated measurement, such as 1%")
            ->capture_default_str();
        sub->add_option("--seed", command->seed, "Of noise, replays and resampling")
            ->check(seeds())
            ->capture_default_str();
        sub->add_option("--format", command->format, "Output")
            ->check(CLI::IsMember({"table", "json"}))
            ->capture_default_str();
        sub->add_option("-o,--output", command->output, "File to write instead of printing");
        sub->add_flag("--dry-run", command->dry_run,
                      "Say what would be written, and write nothing");
        sub->callback([command, sub] {
            command->check(*sub);
            if (const int status = command->run(); status != 0) throw CLI::RuntimeError{status};
        });
    }

    /// @returns the exit status
    [[nodiscard]] int run() const {
        using namespace kdvfs::tune;
        if (dry_run) {
            print_dry_run("follow " + plan, clock_writes(clocks_of_plan(plan)));
            return 0;
        }
        const PlanText read{plan};
        const bool segments = has_sequence(read.text, read.name);
        if (segments && !trace.empty())
            reject("--trace", trace, "a plan of segments has its launches: leave it out");
        const Plan planned =
            segments ? parse_promise(read.text, read.name) : parse_plan(read.text, read.name);
        const auto run_once =
            device.empty()
                ? program_runs(read.path)
                : device_runs(planned, segments
                                           ? planned_launches(parse_sequence(read.text, read.name))
                                           : planned_launches(planned));
        const Validation found = validate(planned, pairs, run_once, seed, Stopping::once_decided);
        write(output, format == "json" ? to_json(found, planned.gpu) : to_text(planned, found));
        warn_of_few_pairs(found);
        return exit_status(found.verdict());
    }

private:
    /// A plan as read, and the file that a program can be told to read.
    struct PlanText {
        explicit PlanText(const std::string& file)
            : name{file}, path{std::filesystem::absolute(file)} {
            if (file != "-") {
                text = kdvfs::tune::read_trusted_file(file);
                return;
            }
            name = "standard input";
            text = read_input(file).text;
            folder = std::make_unique<TemporaryFolder>();
            path = folder->path / "plan.json";
            kdvfs::io::write_file_atomically(path, text);
            std::filesystem::permissions(
                path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
        }
        std::string name;
        std::string text;
        std::filesystem::path path;
        std::unique_ptr<TemporaryFolder> folder;
    };

    void check(const CLI::App& options) const {
        if (command.empty() == device.empty())
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"validate a plan", plan,
                                command.empty() ? "there is nothing to run it on"
                                                : "both a device and a program are given",
                                "give either --device sim:NAME, or a program after --"}};
        if (!device.empty()) {
            refuse_without_effect(options, "--counter", "with --device");
            refuse_without_effect(options, "--dry-run", "with --device: nothing is written");
        } else {
            refuse_without_effect(options, "--trace", "where a program launches");
            refuse_without_effect(options, "--switch-latency", "where a program's GPU switches");
        }
        if (!device.starts_with("sim:"))
            refuse_without_effect(options, "--noise", "unless the device is sim:NAME");
    }

    /// What one iteration costs, under the plan or at the baseline.
    using Runs = std::function<kdvfs::tune::Cost(bool planned)>;

    /// A launch of an iteration, and the clock that the plan has it ask for.
    struct PlannedLaunch {
        kdvfs::KernelKey key;
        kdvfs::ClockPoint clock;
    };

    /// Where nobody says in what order kernels are launched, each kernel's launches are taken to
    /// come in a row: as few switches as there can be.
    [[nodiscard]] std::vector<PlannedLaunch> planned_launches(
        const kdvfs::tune::Plan& planned) const {
        using namespace kdvfs::tune;
        std::vector<PlannedLaunch> launches;
        if (trace.empty()) {
            for (const PlannedKernel& kernel : planned.kernels)
                launches.insert(launches.end(), kernel.count, {kernel.key, kernel.clock});
            return launches;
        }
        std::map<kdvfs::KernelKey, kdvfs::ClockPoint> clocks;
        for (const PlannedKernel& kernel : planned.kernels) clocks[kernel.key] = kernel.clock;
        Input input{trace};
        for (const kdvfs::KernelKey& key : read_launches(input.stream(), input.name()).launches) {
            const auto found = clocks.find(key);
            if (found == clocks.end())
                throw kdvfs::Error{kdvfs::Errc::invalid_input,
                                   {"validate a plan", to_string(key),
                                    "the plan does not have this kernel", "plan with it"}};
            launches.push_back({key, found->second});
        }
        return launches;
    }
    [[nodiscard]] static std::vector<PlannedLaunch> planned_launches(
        const kdvfs::PlannedSequence& sequence) {
        std::vector<PlannedLaunch> launches;
        // The iteration repeats: what was asked for last holds at its beginning.
        kdvfs::ClockPoint clock =
            sequence.boundaries.empty() ? kdvfs::ClockPoint{} : sequence.boundaries.back().clock;
        auto next = sequence.boundaries.begin();
        for (std::size_t i = 0; i < sequence.launches.size(); ++i) {
            for (; next != sequence.boundaries.end() && next->before <= i; ++next)
                clock = next->clock;
            launches.push_back({sequence.kernels[sequence.launches[i]].key, clock});
        }
        return launches;
    }

    /// Iterations launch by launch, each switch of clocks taking as long as it does.
    [[nodiscard]] Runs device_runs(const kdvfs::tune::Plan& planned,
                                   const std::vector<PlannedLaunch>& launches) const {
        using namespace kdvfs::tune;
        const MeasuredGpu gpu =
            open_measured(device, parse_percent("--noise", noise, most_noise_pct), seed);
        if (gpu.name != planned.gpu)
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"validate a plan", plan, "it is for another GPU, " + planned.gpu,
                                "validate it on that one"}};
        std::map<kdvfs::KernelKey, std::size_t> index;
        for (std::size_t k = 0; k < gpu.kernels.size(); ++k) index[gpu.kernels[k].key] = k;
        std::vector<AskedLaunch> asked;
        for (const PlannedLaunch& launch : launches) {
            const auto found = index.find(launch.key);
            if (found == index.end())
                throw kdvfs::Error{kdvfs::Errc::invalid_input,
                                   {"validate a plan", to_string(launch.key),
                                    "the device does not have this kernel",
                                    "sweep it on the device, or plan without it"}};
            asked.push_back({found->second, launch.clock});
        }
        std::vector<AskedLaunch> baseline = asked;
        for (AskedLaunch& launch : baseline) launch.clock = planned.baseline_clock;
        const auto other = std::find_if(asked.begin(), asked.end(), [&](const AskedLaunch& launch) {
            return launch.clock != asked.front().clock;
        });
        SwitchCosts costs;
        if (other != asked.end()) costs = known_switch_costs(switch_latency, gpu.name);
        return [gpu, asked, baseline, costs, held = planned.baseline_clock](bool obeyed) {
            return replay_launches(obeyed ? asked : baseline, held, costs, gpu.measure);
        };
    }

    [[nodiscard]] Runs program_runs(const std::filesystem::path& path) const {
        return [runs = ProgramRuns{command, counter}, file = path.string()](bool planned) {
            return runs({{"KDVFS_PLAN", planned ? file : ""}, {"KDVFS_MODE", ""}}).cost;
        };
    }

    static std::string to_text(const kdvfs::tune::Plan& plan,
                               const kdvfs::tune::Validation& found) {
        return plan.gpu + ": " + std::to_string(found.pairs) +
               " pairs of runs, plan against baseline\n" + validation_text(found);
    }
};

}  // namespace cli
