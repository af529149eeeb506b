// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

namespace cli {

/// `kdvfs report [PROFILE] [PLAN] [VALIDATION...] [REPORT] [TRACE] -o report.html`
struct ReportCommand {
    std::vector<std::string> inputs;
    std::string output;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<ReportCommand>();
        CLI::App* sub = app.add_subcommand(
            "report", "Draw what is known into one HTML page, which needs nothing else");
        sub->add_option(
               "inputs", command->inputs,
               "Files in any order, recognized by what they hold: a profile (CSV), plans, "
               "validations, a program's report, a trace, a pipeline, a plan of it (JSON); - is "
               "standard input")
            ->required();
        sub->add_option("-o,--output", command->output, "Page to write instead of printing it");
        sub->callback([command] { command->run(); });
    }

    /// @throws Error (invalid_input, io) naming the file
    void run() const;
};

}  // namespace cli
