// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

namespace cli {

/// `kdvfs run [--report FILE] [--level kernel|range] ... -- COMMAND`
struct RunCommand {
    std::vector<std::string> command;
    std::vector<std::string> reports;
    std::string plan;
    std::string sweep;
    std::string match;
    std::string level = "kernel";
    std::string iteration;
    unsigned meter_every = 0;
    bool preload = false;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<RunCommand>();
        CLI::App* sub = app.add_subcommand(
            "run", "Run a program that knows nothing of kdvfs, and tell joules by its kernels");
        sub->add_option("command", command->command, "After --: the program")->required();
        sub->add_option("--report", command->reports,
                        "File to write: .json, .html, else text; may be given more than once. "
                        "Without it a text goes to standard error")
            ->allow_extra_args(false);
        sub->add_option("--level", command->level,
                        "What joules are told of: kernels, or the ranges that the program names "
                        "(NVTX, roctx)")
            ->check(CLI::IsMember({"kernel", "range"}))
            ->capture_default_str();
        sub->add_option("--match", command->match,
                        "A regular expression: other kernels are reported together");
        sub->add_option("--iteration", command->iteration,
                        "The range that is an iteration; else found by itself");
        sub->add_option("--meter", command->meter_every, "Meter one iteration in so many")
            ->check(CLI::Range(1U, 1'000'000U));
        auto* sweep = sub->add_option("--sweep", command->sweep,
                                      "Measure the kernels at several clocks, into this file");
        sub->add_option("--plan", command->plan, "Set the clocks of this plan")->excludes(sweep);
        sub->add_flag("--preload", command->preload,
                      "Attach to HIP programs even where this machine has no AMD GPU");
        sub->callback([command] { command->run(); });
    }

    /// Ends as the program ends: with its exit code (by CLI::RuntimeError), or by its signal.
    /// @throws Error (invalid_input) where it cannot be started, (io) where a report cannot be
    ///         written
    void run() const;
};

}  // namespace cli
