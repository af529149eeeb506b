// SPDX-License-Identifier: MIT
#include <tools/cli/commands.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/report_diff.hpp>
#include <tools/cli/text_options.hpp>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace cli {

/// `kdvfs diff BEFORE AFTER [--tolerance 1%]`
struct DiffCommand {
    std::string before;
    std::string after;
    std::string tolerance = "0%";
    std::string output;

    /// @returns the exit status
    /// @throws Error (invalid_input, io) naming the file
    [[nodiscard]] int run() const;
};

namespace {

DiffItems read(const std::string& file) {
    const InputText input = read_input(file);
    return diff_items(nlohmann::json::parse(input.text, nullptr, /*allow_exceptions=*/false),
                      input.name);
}

}  // namespace

void add_diff_command(CLI::App& app) {
    auto command = std::make_shared<DiffCommand>();
    CLI::App* sub = app.add_subcommand(
        "diff", "Compare two reports: which kernels got slower or dearer, which are new or gone");
    sub->add_option("before", command->before, "A report (JSON)")->required();
    sub->add_option("after", command->after, "A later one of the same program")->required();
    sub->add_option("--tolerance", command->tolerance,
                    "So much more time or energy of a call is not worse, such as 1%; what may be "
                    "more is undecided then")
        ->capture_default_str();
    sub->add_option("-o,--output", command->output, "File to write instead of printing");
    sub->footer("Exit status: 0 nothing is worse, 3 undecided, 4 something is worse.");
    sub->callback([command] {
        if (const int status = command->run(); status != 0) throw CLI::RuntimeError{status};
    });
}

int DiffCommand::run() const {
    constexpr double most = 100;  // %
    const double allowed = parse_percent("--tolerance", tolerance, most);
    const ReportDiff diff = diff_reports(read(before), read(after), allowed);
    write(output, to_text(diff));
    switch (diff.verdict()) {
        case DiffVerdict::no_worse: return 0;
        case DiffVerdict::worse: return 4;
        case DiffVerdict::undecided: break;
    }
    return 3;
}

}  // namespace cli
