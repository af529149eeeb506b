// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cli {

/// `kdvfs batch-size FILE [--sizes 32,64,128 --usual 64 | --run ID ...]`: the batch size of the
/// next run of a recurring job, learned from the outcomes of its runs (`train::BatchSizeFile`).
struct BatchSizeCommand {
    std::string file;
    std::optional<std::string> job;
    std::vector<std::uint32_t> sizes;
    std::uint32_t usual = 0;
    double stop_at = 2;
    std::uint64_t seed = 1;
    std::uint64_t run_id = 0;
    std::string end;
    double epochs = 0;
    double cost = 0;
    std::optional<double> epoch_cost;
    std::optional<double> limit;

    static void add_to(CLI::App& app);

    /// @throws Error as `train::BatchSizeFile`, and (invalid_input) for options that do not go
    ///         together
    void run();
};

}  // namespace cli
