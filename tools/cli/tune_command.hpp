// SPDX-License-Identifier: MIT
#pragma once

#include <tools/cli/attached_program.hpp>

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdint>
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

    static void add_to(CLI::App& app);

    /// @throws Error, and CLI::RuntimeError with the `exit_status` of a verdict other than kept
    void run() const;
};

}  // namespace cli
