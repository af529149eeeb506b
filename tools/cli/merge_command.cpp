// SPDX-License-Identifier: MIT
#include <kdvfs/error.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/merge_command.hpp>
#include <tools/cli/run_report.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

namespace cli {

void MergeCommand::add_to(CLI::App& app) {
    auto command = std::make_shared<MergeCommand>();
    CLI::App* sub = app.add_subcommand(
        "merge", "Merge reports of kdvfs run: of ranks, of nodes, of runs that were restarted");
    sub->add_option("reports", command->files, "Reports that kdvfs run wrote as .json")->required();
    sub->add_option("-o,--output", command->outputs,
                    "File to write: .json, .html, else text, - prints it; may be given more than "
                    "once")
        ->allow_extra_args(false)
        ->capture_default_str();
    sub->callback([command] { command->run(); });
}

void MergeCommand::run() const {
    std::vector<nlohmann::json> processes;
    for (const std::string& file : files) {
        const auto refuse = [&](const char* why) {
            throw kdvfs::Error{
                kdvfs::Errc::invalid_input,
                {"merge reports", file, why, "give what kdvfs run --report FILE.json wrote"}};
        };
        auto report =
            nlohmann::json::parse(read_input(file).text, nullptr, /*allow_exceptions=*/false);
        if (!report.is_object() || !report.contains("processes")) refuse("it is no such report");
        for (nlohmann::json& process : report["processes"]) {
            if (!report_sums::is_report(process)) refuse("one of its processes has no report");
            processes.push_back(std::move(process));
        }
    }
    write_run_report(outputs, merge_attached_reports(std::move(processes)));
}

}  // namespace cli
