// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>
#include <vector>

/// What is said about a command line that makes no sense: one line, with the mistake and the fix.
namespace cli {

/// Returns the candidate that differs from a word in the fewest letters; empty where none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// @param app the whole command, as it was parsed so far
std::string usage_error_text(const CLI::App& app, const CLI::Error& error);

/// Returns the names of all subcommands.
std::vector<std::string> subcommand_names(const CLI::App& app);

}  // namespace cli
