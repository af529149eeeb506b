// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace cli {

/// `kdvfs diff BEFORE AFTER [--tolerance 1%]`
struct DiffCommand {
    std::string before;
    std::string after;
    std::string tolerance = "0%";
    std::string output;

    static void add_to(CLI::App& app);

    /// @returns the exit status
    /// @throws Error (invalid_input, io) naming the file
    [[nodiscard]] int run() const;
};

}  // namespace cli
