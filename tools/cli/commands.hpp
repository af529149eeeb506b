// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>

#include <filesystem>

/// The subcommands that files of their own define, by name.
namespace cli {

void add_batch_size_command(CLI::App& app);
void add_diff_command(CLI::App& app);
void add_doctor_command(CLI::App& app);
void add_ledger_command(CLI::App& app);
void add_merge_command(CLI::App& app);
void add_node_power_command(CLI::App& app);
void add_power_limit_command(CLI::App& app);
void add_run_command(CLI::App& app);
void add_top_command(CLI::App& app);
void add_tune_command(CLI::App& app);
void add_worth_command(CLI::App& app);

/// Where a user's profiles and ledger are kept: `kdvfs` in the folder that `XDG_STATE_HOME` names,
/// else in `~/.local/state`. Empty where there is no home.
std::filesystem::path state_folder();

}  // namespace cli
