// SPDX-License-Identifier: MIT
//
// The kdvfs command: profile, plan, validate, draw, put clocks back, and attach to programs.
// Exit codes: 0 done, 1 bad input (file and line named) or a validation that found a broken
// promise, 2 device trouble, 3 nothing meets a target, a validation is undecided, or a tuning did
// not keep bound or promise; 4 a plan is broken or a report is worse; `kdvfs run` ends as the
// program does.
#include <kdvfs/error.hpp>
#include <kdvfs/version.hpp>
#include <tools/cli/child_signal.hpp>
#include <tools/cli/commands.hpp>
#include <tools/cli/info_command.hpp>
#include <tools/cli/measure_latency_command.hpp>
#include <tools/cli/measure_sensor_command.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/plan_command.hpp>
#include <tools/cli/plan_pipeline_command.hpp>
#include <tools/cli/plan_pool_command.hpp>
#include <tools/cli/program_words.hpp>
#include <tools/cli/recommend_command.hpp>
#include <tools/cli/report_command.hpp>
#include <tools/cli/restore_command.hpp>
#include <tools/cli/standard_streams.hpp>
#include <tools/cli/usage_errors.hpp>
#include <tools/cli/validate_command.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int bad_input = 1;
constexpr int device_trouble = 2;

int exit_code(kdvfs::Errc code) {
    switch (code) {
        case kdvfs::Errc::invalid_input:
        case kdvfs::Errc::io: return bad_input;
        default: return device_trouble;
    }
}

std::string version() {
    return "kdvfs " + std::to_string(KDVFS_VERSION_MAJOR) + "." +
           std::to_string(KDVFS_VERSION_MINOR) + "." + std::to_string(KDVFS_VERSION_PATCH);
}

/// An empty value, as a script's unset variable leaves it, would be taken for the option's default.
/// What stands behind "--" is a program's.
void refuse_empty_arguments(int argc, char** argv) {
    for (int i = 1; i < argc && argv[i] != std::string_view{"--"}; ++i) {
        const std::string_view argument{argv[i]};
        if (!argument.empty() && !(argument.starts_with("--") && argument.ends_with('='))) continue;
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"read the arguments", argv[argument.empty() ? i - 1 : i],
                            "what follows is empty", "give a value, or leave the option out"}};
    }
}

/// @throws Error (invalid_input) for a name that no subcommand has
void require_subcommand(const CLI::App& app, const std::string& name) {
    const auto names = cli::subcommand_names(app);
    if (name.starts_with('-') || std::find(names.begin(), names.end(), name) != names.end()) return;
    const std::string meant = cli::nearest(name, names);
    throw kdvfs::Error{kdvfs::Errc::invalid_input,
                       {.action = "run a subcommand",
                        .object = name,
                        .vendor_words = "there is none of this name",
                        .remedy = meant.empty() ? "`kdvfs --help` lists them"
                                                : "did you mean kdvfs " + meant + "?"}};
}

}  // namespace

int main(int argc, char** argv) try {
    cli::occupy_closed_streams();
    cli::keep_ended_children();
    refuse_empty_arguments(argc, argv);
    CLI::App app{"Runs every GPU kernel at the clock where it wastes no energy."};
    app.require_subcommand(1);
    app.set_version_flag("--version", version());
    app.footer(
        "kdvfs SUBCOMMAND --help says more. Exit status: 0 done, 1 bad input or a broken promise,\n"
        "2 device trouble, 3 nothing meets a target, or undecided.");
    cli::InfoCommand::add_to(app);
    cli::add_doctor_command(app);
    cli::PlanCommand::add_to(app);
    cli::PlanPipelineCommand::add_to(app);
    cli::ValidateCommand::add_to(app);
    cli::add_worth_command(app);
    cli::add_tune_command(app);
    cli::add_power_limit_command(app);
    cli::add_node_power_command(app);
    cli::add_batch_size_command(app);
    cli::MeasureLatencyCommand::add_to(app);
    cli::MeasureSensorCommand::add_to(app);
    cli::RestoreCommand::add_to(app);
    cli::ReportCommand::add_to(app);
    cli::RecommendCommand::add_to(app);
    cli::PlanPoolCommand::add_to(app);
    cli::add_run_command(app);
    cli::add_ledger_command(app);
    cli::add_merge_command(app);
    cli::add_diff_command(app);
    cli::add_top_command(app);
    app.failure_message([&](const CLI::App*, const CLI::Error& error) {
        return cli::usage_error_text(app, error);
    });
    if (argc > 1) require_subcommand(app, argv[1]);
    const std::vector<std::string> words = cli::mark_words(app, argc, argv);
    std::vector<const char*> pointers;
    for (const std::string& word : words) pointers.push_back(word.c_str());
    try {
        app.parse(argc, pointers.data());
    } catch (const CLI::RuntimeError& ended) {
        return ended.get_exit_code();
    } catch (const CLI::ParseError& error) {
        if (app.exit(error) != 0) return bad_input;  // 0 after --help and --version
    }
    cli::finish_standard_output();
    return 0;
} catch (const kdvfs::Error& error) {
    std::cerr << "kdvfs: " << error.what() << '\n';
    return exit_code(error.code());
} catch (const std::exception& error) {
    std::cerr << "kdvfs: " << error.what() << '\n';
    return device_trouble;
}
