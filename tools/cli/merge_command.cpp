// SPDX-License-Identifier: MIT
#include <kdvfs/error.hpp>
#include <kdvfs/tune/session.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/commands.hpp>
#include <tools/cli/run_report.hpp>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace cli {

/// `kdvfs merge REPORT.json... -o FILE`: one report of several ranks, nodes or runs;
/// `kdvfs merge STORE... -o STORE`: one store of profiles.
struct MergeCommand {
    std::vector<std::string> files;
    std::vector<std::string> outputs{"-"};
    bool hash_names = false;

    /// @throws Error (io) where a file cannot be read or written, (invalid_input) where it is no
    ///         report of `kdvfs run`
    void run() const;

private:
    void merge_stores() const;
};

void add_merge_command(CLI::App& app) {
    auto command = std::make_shared<MergeCommand>();
    CLI::App* sub = app.add_subcommand(
        "merge",
        "Merge reports of kdvfs run: of ranks, of nodes, of runs that were restarted; or stores of "
        "profiles (KDVFS_STORE) into one folder");
    sub->add_option("reports", command->files,
                    "Reports that kdvfs run wrote as .json, or folders of profiles")
        ->required();
    sub->add_option("-o,--output", command->outputs,
                    "File to write: .json, .html, else text, - prints it; may be given more than "
                    "once")
        ->allow_extra_args(false)
        ->capture_default_str();
    sub->add_flag("--hash-names", command->hash_names,
                  "Write hashes for the names of kernels into a store; runs find their own");
    sub->callback([command] { command->run(); });
}

void MergeCommand::merge_stores() const {
    const auto reject = [&](const std::string& what, const char* why) {
        throw kdvfs::Error{
            kdvfs::Errc::invalid_input,
            {"merge stores of profiles", what, why, "give folders, and -o FOLDER for the result"}};
    };
    if (outputs.size() != 1 || outputs[0] == "-") reject("-o", "no folder to write is given");
    std::vector<std::filesystem::path> stores;
    for (const std::string& file : files) {
        if (!std::filesystem::is_directory(file)) reject(file, "it is no folder");
        stores.emplace_back(file);
    }
    const auto merged = kdvfs::tune::merge_profile_stores(stores, outputs[0], hash_names);
    std::cout << "kdvfs: " << merged.profiles << " profiles of " << merged.programs
              << " programs merged into " << outputs[0];
    if (merged.unreadable > 0) std::cout << "; " << merged.unreadable << " could not be read";
    std::cout << '\n';
}

void MergeCommand::run() const {
    if (std::filesystem::is_directory(files.front())) return merge_stores();
    std::vector<nlohmann::json> processes;
    for (const std::string& file : files)
        for (nlohmann::json& process : read_run_report(file))
            processes.push_back(std::move(process));
    write_run_report(outputs, merge_attached_reports(std::move(processes)));
}

}  // namespace cli
