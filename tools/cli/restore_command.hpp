// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <tools/restore/leftovers.hpp>

#include <CLI/CLI.hpp>

#include <memory>
#include <utility>

namespace cli {

/// `kdvfs restore`
struct RestoreCommand {
    static void add_to(CLI::App& app) {
        const auto request = std::make_shared<restoring::Request>();
        auto* const command =
            app.add_subcommand("restore", "Put back what a killed program has left changed");
        command->add_option("gpu", request->gpus, "PCI addresses; none = all");
        command->add_flag("--suspended", request->suspended, "Under a job that is frozen");
        command->add_flag("--dry-run", request->dry_run,
                          "Say what would be put back, and write nothing");
        command->callback([request] { run(*request); });
    }

    static void run(restoring::Request request) {
        request.folders = restoring::usual_folders();
        if (restoring::Leftovers{std::move(request)}.settle()) return;
        throw kdvfs::Error{kdvfs::Errc::refused,
                           {"restore every GPU", "this machine", "", "see what is said above"}};
    }
};

}  // namespace cli
