// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace cli {

/// `kdvfs merge REPORT.json... -o FILE`: one report of several ranks, nodes or runs.
struct MergeCommand {
    std::vector<std::string> files;
    std::vector<std::string> outputs{"-"};

    static void add_to(CLI::App& app);

    /// @throws Error (io) where a file cannot be read or written, (invalid_input) where it is no
    ///         report of `kdvfs run`
    void run() const;
};

}  // namespace cli
