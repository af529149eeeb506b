// SPDX-License-Identifier: MIT
#pragma once

#include <tools/cli/attached_program.hpp>

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace cli {

/// `kdvfs power-limit [--goal cost:0.5] -- COMMAND...`: the search over power limits of You, Chung
/// and Chowdhury (Zeus, NSDI 2023), with a run of the program at each limit, within one run by its
/// iterations (`--window 40`), or on a simulated board.
struct PowerLimitCommand {
    std::vector<std::string> command;
    std::string device;
    std::string gpu = "auto";
    std::string counter;
    std::string goal = "cost:0.5";
    double step = 25;
    std::string timeout;
    std::uint64_t window = 0;  ///< iterations; 0: whole runs
    AttachOptions attach;
    std::string format = "table";
    std::string output;
    bool dry_run = false;

    static void add_to(CLI::App& app);

    /// @throws Error (invalid_input) for options that make no sense, (not_supported) where there is
    ///         no such board or counter, (refused) without the right to set the limit, (busy) where
    ///         another process owns it
    void run() const;
};

}  // namespace cli
