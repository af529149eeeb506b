// SPDX-License-Identifier: MIT
#pragma once

#include <examples/cli/output.hpp>
#include <kdvfs/tune/frontier_svg.hpp>
#include <kdvfs/tune/plan_json.hpp>
#include <kdvfs/tune/profile_csv.hpp>
#include <kdvfs/tune/shrinkage.hpp>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

namespace cli {

/// `kdvfs plot PROFILE.csv|PLAN.json -o out.svg`
struct PlotCommand {
    std::string input;
    std::string output;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<PlotCommand>();
        CLI::App* sub = app.add_subcommand("plot", "Draw the time-energy frontier as SVG");
        sub->add_option("input", command->input, "Sweep file (.csv) or plan file (.json)")
            ->required();
        sub->add_option("-o,--output", command->output, "SVG file to write instead of printing");
        sub->callback([command] { command->run(); });
    }

    void run() const {
        using namespace kdvfs::tune;
        if (!input.ends_with(".json")) {
            const Profile profile = read_profile(std::filesystem::path{input});
            return write(output, to_svg(frontier_plot(shrunk_costs(profile))));
        }
        std::ifstream file{input, std::ios::binary};
        if (!file) kdvfs::detail::throw_file_error("open a plan", input, errno);
        const std::string text{std::istreambuf_iterator<char>{file}, {}};
        write(output, to_svg(plan_plot(parse_plan(text, input), parse_alternatives(text, input))));
    }
};

}  // namespace cli
