// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>

namespace cli {

/// Where a user's profiles and ledger are kept: `kdvfs` in the folder that `XDG_STATE_HOME` names,
/// else in `~/.local/state`. Empty where there is no home.
std::filesystem::path state_folder();

/// `kdvfs ledger [FILE]`: what runs of `kdvfs run --save` have saved, per job, user and board.
struct LedgerCommand {
    std::string file;
    bool json = false;

    static void add_to(CLI::App& app);

    /// @throws Error (io) where the ledger cannot be read
    void run() const;
};

}  // namespace cli
