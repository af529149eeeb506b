// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace cli {

/// `kdvfs worth REPORT.json | FOLDER | -- COMMAND...`: what clocks could save, from a run in which
/// none was set.
struct WorthCommand {
    std::vector<std::string> what;
    std::string power_limit;
    std::string lower;  ///< a report of the same program at a lower clock
    double lower_clock = 0;
    std::string counter = "auto";
    std::string format = "table";

    static void add_to(CLI::App& app);

    /// @throws Error (invalid_input, not_supported, io)
    void run() const;
};

}  // namespace cli
