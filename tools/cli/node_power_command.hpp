// SPDX-License-Identifier: MIT
#pragma once

#include <tools/cli/output.hpp>

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cli {

/// `kdvfs node-power REPORT.json...`: what moving watts between the GPUs of a node would give, from
/// what their ranks measured; `kdvfs node-power --device sim:NAME`: moves them on a simulated node.
struct NodePowerCommand {
    std::vector<std::string> reports;
    std::string device;
    std::size_t gpus = 8;
    std::string slower = "6%";
    double cap = 0;  ///< W; 0: what the GPUs draw, or 85 % of their highest limits
    double highest = 0;
    std::string goal = "speed";
    std::uint64_t iterations = 300;
    std::string output;

    static void add_to(CLI::App& app);

    /// @throws Error (invalid_input) for options that make no sense and reports that do not say
    /// what
    ///         an iteration took, (io) where a file cannot be read or written
    void run() const;

private:
    [[nodiscard]] std::string forecast() const;
    [[nodiscard]] std::string simulate() const;
};

}  // namespace cli
