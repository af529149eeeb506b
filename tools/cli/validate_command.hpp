// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/validation.hpp>
#include <tools/cli/dry_run.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/program_runs.hpp>
#include <tools/cli/program_words.hpp>
#include <tools/cli/temporary_folder.hpp>
#include <tools/cli/text_options.hpp>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace cli {

/// What was promised and what fresh runs say, judged: what `kdvfs validate` and `kdvfs tune` print.
inline std::string validation_text(const kdvfs::tune::Validation& found) {
    const auto line = [&](const char* what, double promised,
                          const kdvfs::tune::PercentInterval& validated,
                          kdvfs::tune::Verdict verdict) {
        const std::string interval =
            validated.is_known()
                ? kdvfs::io::format_text("[%+.3f, %+.3f]", validated.low, validated.high)
                : "not known";
        return kdvfs::io::format_text("%-8s %+10.3f %% %+10.3f %%  %s  %s\n", what, promised,
                                      validated.mean, interval.c_str(),
                                      std::string{to_string(verdict)}.c_str());
    };
    std::string text =
        kdvfs::io::format_text("%-8s %12s %12s  95 %% interval\n", "", "promised", "validated");
    text += line("time", found.promised_time_pct, found.time, found.time_verdict());
    text += line("energy", found.promised_energy_pct, found.energy, found.energy_verdict());
    if (std::isfinite(found.time_bound_pct)) {
        text += kdvfs::io::format_text("slowdown up to %g %%: %s\n", found.time_bound_pct,
                                       std::string{to_string(found.time_verdict())}.c_str());
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

/// `kdvfs validate PLAN.json -- COMMAND...`
struct ValidateCommand {
    std::string plan;
    std::vector<std::string> command;
    std::string counter = "auto";
    std::size_t pairs = 20;
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
        add_program(*sub, "command", command->command,
                    "After --: a program, run twice a pair, with KDVFS_PLAN set and without")
            ->required();
        sub->add_option("--counter", command->counter,
                        "What counts a program's energy: a GPU's PCI address, hwmon:FILE "
                        "(microjoules), or program: it reports its own time and energy")
            ->capture_default_str();
        sub->add_option("--pairs", command->pairs, "Pairs of runs, at most")
            ->check(CLI::Range(std::size_t{2}, std::size_t{100'000}))
            ->capture_default_str();
        sub->add_option("--seed", command->seed, "Of the order of runs")
            ->check(seeds())
            ->capture_default_str();
        sub->add_option("--format", command->format, "Output")
            ->check(CLI::IsMember({"table", "json"}))
            ->capture_default_str();
        sub->add_option("-o,--output", command->output, "File to write instead of printing");
        sub->add_flag("--dry-run", command->dry_run,
                      "Say what would be written, and write nothing");
        sub->callback([command] {
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
        refuse_unwritable(output);
        const PlanText read{plan};
        const Plan planned = has_sequence(read.text, read.name)
                                 ? parse_promise(read.text, read.name)
                                 : parse_plan(read.text, read.name);
        const auto run_once = [runs = ProgramRuns{command, counter},
                               file = read.path.string()](bool obeyed) {
            return runs({{"KDVFS_PLAN", obeyed ? file : ""}, {"KDVFS_MODE", ""}}).cost;
        };
        const Validation found = validate(planned, pairs, run_once, seed);
        write_or_print(output,
                       format == "json" ? to_json(found, planned.gpu) : to_text(planned, found));
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

    static std::string to_text(const kdvfs::tune::Plan& plan,
                               const kdvfs::tune::Validation& found) {
        return plan.gpu + ": " + std::to_string(found.pairs) +
               " pairs of runs, plan against baseline\n" + validation_text(found);
    }
};

}  // namespace cli
