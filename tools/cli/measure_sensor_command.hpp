// SPDX-License-Identifier: MIT
#pragma once

#include <tools/cli/bench_program.hpp>
#include <tools/cli/command_run.hpp>

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

namespace cli {

/// `kdvfs measure-sensor [--vendor nvidia] [--device 0]`: runs the program `sensor_waves`, which
/// keeps what it finds where reports look.
struct MeasureSensorCommand : MeasuringProgram {
    int seconds = 60;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<MeasureSensorCommand>();
        CLI::App* sub = app.add_subcommand(
            "measure-sensor", "Measure how a GPU's power readings follow its load, and keep it");
        sub->footer(
            "Once per machine and GPU, a minute: the GPU works and rests by turns. No clock is "
            "set.\nReports of this board then resolve more. Nothing else may run on it meanwhile. "
            "It is kept in\n$XDG_DATA_HOME/kdvfs or ~/.local/share/kdvfs, with --machine in "
            "/var/lib/kdvfs.");
        command->add_gpu_options(*sub);
        sub->add_option("--seconds", command->seconds, "How long")
            ->check(CLI::Range(10, 3600))
            ->capture_default_str();
        command->add_program_options(*sub, "sensor_waves", "Keep it in this file instead (CSV)");
        sub->callback([command] { command->run(); });
    }

    void run() const {
        std::vector<std::string> words = line(
            "measure sensors", {"../lib/kdvfs/sensor-waves", "../switch_latency/sensor-waves"});
        words.insert(words.end(), {"--seconds", std::to_string(seconds), "--keep",
                                   !output.empty() ? output
                                   : machine       ? "machine"
                                                   : "user"});
        static_cast<void>(run_command(words, environment_with({})));
    }
};

}  // namespace cli
