// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>

#include <string>
#include <vector>

/// `--dry-run`: what a command would write to the boards of this machine. Looks, and writes
/// nothing.
namespace cli {

/// What would be written to one board, and how it is undone.
struct PlannedWrites {
    std::string board;                   ///< its name and PCI address
    std::string holds;                   ///< what it holds now
    std::vector<std::string> writes{};   ///< "FILE: TEXT", or a call with its arguments
    std::vector<std::string> restore{};  ///< the same, at the end
    std::vector<std::string> by_hand{};  ///< shell commands that undo it without kdvfs
    std::string rights{};                ///< whether this user may write
};

/// Whether this user may write a file, in words.
std::string rights_on(const std::string& file);

/// Caps of clocks, on every board of this machine whose clocks can be set.
/// @param caps that are asked for; empty: any clock of the board, of which its lowest and its
///        highest are shown
std::vector<PlannedWrites> clock_writes(const std::vector<kdvfs::ClockPoint>& caps);

/// The caps that a plan file asks for, those of all ranks' plans where it has one for each.
/// @throws Error (io, invalid_input)
std::vector<kdvfs::ClockPoint> clocks_of_plan(const std::string& file);

/// Prints what a command would have done.
/// @param action "follow plan.json"
void print_dry_run(const std::string& action, const std::vector<PlannedWrites>& boards);

}  // namespace cli
