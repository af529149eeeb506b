// SPDX-License-Identifier: MIT
#pragma once

#include <tools/cli/attached_program.hpp>

#include <CLI/CLI.hpp>

#include <cstdint>
#include <memory>
#include <string>
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
    unsigned meter_every = 0;
    bool repeat = false;
    bool save = false;
    std::string max_slowdown = "1%";
    std::string ledger;
    std::uint32_t idle_clock = 0;  ///< MHz; 0: none
    std::string idle_after = "20ms";
    bool dry_run = false;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<RunCommand>();
        CLI::App* sub = app.add_subcommand(
            "run", "Run an unmodified program, and report the energy of its kernels");
        sub->add_option("command", command->command, "After --: the program")->required();
        sub->add_option("--report", command->reports,
                        "File to write: .json, .html, else text, - prints it; may be given more "
                        "than once. %h, %r, %j, %p stand for host, rank, job, process; without "
                        "them each rank writes a file of its own. Without this option a text goes "
                        "to standard error")
            ->allow_extra_args(false);
        command->attach.add_to(*sub);
        sub->add_option("--meter", command->meter_every, "Meter one iteration in so many")
            ->check(CLI::Range(1U, 1'000'000U));
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

}  // namespace cli
