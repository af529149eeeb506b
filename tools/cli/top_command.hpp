// SPDX-License-Identifier: MIT
#pragma once

#include <tools/cli/text_options.hpp>

#include <CLI/CLI.hpp>

#include <memory>

namespace cli {

/// `kdvfs top [--once] [--json] [--every SECONDS]`
struct TopCommand {
    bool once = false;
    bool json = false;
    double every = 2;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<TopCommand>();
        CLI::App* sub = app.add_subcommand(
            "top", "Show what programs under `kdvfs run` draw, kernel by kernel, as they go");
        sub->add_flag("--once", command->once, "One table, for scripts");
        sub->add_flag("--json", command->json,
                      "A JSON object in a line instead of a table: boards, and kernels and ranges "
                      "with their time and joules since the line before");
        sub->add_option("--every", command->every, "Seconds between two looks")
            ->check(CLI::Range(1.0, 3600.0))
            ->capture_default_str();
        sub->callback([command, sub] {
            if (command->once) refuse_without_effect(*sub, "--every", "with --once");
            command->run();
        });
    }

    /// @throws Error (io) where nothing can be written
    void run() const;
};

}  // namespace cli
