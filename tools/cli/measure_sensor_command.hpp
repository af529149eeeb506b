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
struct MeasureSensorCommand {
    std::string vendor;
    std::string device = "0";
    int seconds = 60;
    std::string program;
    bool machine = false;
    std::string output;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<MeasureSensorCommand>();
        CLI::App* sub = app.add_subcommand(
            "measure-sensor", "Measure how a GPU's power readings follow its load, and keep it");
        sub->footer(
            "Once per machine and GPU, a minute: the GPU works and rests by turns. No clock is "
            "set.\nReports of this board then resolve more. Nothing else may run on it meanwhile. "
            "It is kept in\n$XDG_DATA_HOME/kdvfs or ~/.local/share/kdvfs, with --machine in "
            "/var/lib/kdvfs.");
        sub->add_option("--vendor", command->vendor,
                        "amd or nvidia; else nvidia where its driver is loaded, amd elsewhere")
            ->check(CLI::IsMember({"amd", "nvidia"}));
        sub->add_option("--device", command->device,
                        "Number that HIP or CUDA gives the GPU, or sim:NAME")
            ->capture_default_str();
        sub->add_option("--seconds", command->seconds, "How long")
            ->check(CLI::Range(10, 3600))
            ->capture_default_str();
        sub->add_option("--program", command->program,
                        "The program sensor_waves; else the one installed beside this one");
        CLI::Option* everyone =
            sub->add_flag("--machine", command->machine, "Keep it for all users of this machine");
        sub->add_option("-o,--output", command->output, "Keep it in this file instead (CSV)")
            ->excludes(everyone);
        sub->callback([command] { command->run(); });
    }

    void run() const {
        std::vector<std::string> line{
            find_bench_program(program, "measure sensors",
                               {"kdvfs-sensor-waves", "../switch_latency/sensor_waves"}),
            "--seconds", std::to_string(seconds)};
        if (device.starts_with("sim:"))
            line.insert(line.end(), {"--board", device.substr(4)});
        else
            line.insert(line.end(), {"--vendor", vendor_here(vendor), "--device", device});
        line.insert(line.end(), {"--keep", !output.empty() ? output
                                           : machine       ? "machine"
                                                           : "user"});
        static_cast<void>(run_command(line, environment_with({})));
    }
};

}  // namespace cli
