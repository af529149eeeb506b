// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace cli {

/// `kdvfs merge REPORT.json... -o FILE`: one report of several ranks, nodes or runs;
/// `kdvfs merge STORE... -o STORE`: one store of profiles.
struct MergeCommand {
    std::vector<std::string> files;
    std::vector<std::string> outputs{"-"};
    bool hash_names = false;

    static void add_to(CLI::App& app);

    /// @throws Error (io) where a file cannot be read or written, (invalid_input) where it is no
    ///         report of `kdvfs run`
    void run() const;

private:
    void merge_stores() const;
};

}  // namespace cli
