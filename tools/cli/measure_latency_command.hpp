// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/tune/plan_fields.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/switch_costs.hpp>
#include <tools/cli/bench_program.hpp>
#include <tools/cli/command_run.hpp>
#include <tools/cli/dry_run.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/temporary_folder.hpp>
#include <tools/cli/text_options.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace cli {

/// `kdvfs measure-latency [--vendor nvidia] [--device 0]`: runs the program `switch_latency` and
/// keeps what it finds where `kdvfs plan` and `kdvfs tune` look.
struct MeasureLatencyCommand : MeasuringProgram {
    std::string clocks;
    std::uint32_t repeat = 25;
    bool dry_run = false;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<MeasureLatencyCommand>();
        CLI::App* sub = app.add_subcommand(
            "measure-latency", "Measure how long a GPU's clocks take to change, and keep it");
        sub->footer(
            "Once per machine and GPU, some minutes; the clocks are put back at the end. It is "
            "kept "
            "in\n$XDG_DATA_HOME/kdvfs or ~/.local/share/kdvfs, with --machine in /var/lib/kdvfs.");
        command->add_gpu_options(*sub);
        sub->add_option("--clocks", command->clocks,
                        "Core clocks in MHz, such as 500,1100,1700; else five over the range");
        sub->add_option("--repeat", command->repeat, "Switches of each pair of clocks")
            ->check(CLI::Range(1U, 100'000U))
            ->capture_default_str();
        command->add_program_options(*sub, "switch_latency",
                                     "Keep it in this file instead (CSV); - prints it");
        sub->add_flag("--dry-run", command->dry_run,
                      "Say what would be written, and write nothing");
        sub->callback([command] { command->run(); });
    }

    void run() const {
        if (dry_run) {
            std::vector<kdvfs::ClockPoint> caps;
            for (std::stringstream list{clocks}; list.good();) {
                std::string clock;
                std::getline(list, clock, ',');
                if (clock.empty()) continue;
                const auto core = kdvfs::io::parse_clock(clock);
                if (!core) reject("--clocks", clocks, "give MHz, such as 500,1100,1700");
                caps.push_back({*core, kdvfs::auto_clock});
            }
            return print_dry_run("measure switching latencies", device.starts_with("sim:")
                                                                    ? std::vector<PlannedWrites>{}
                                                                    : clock_writes(caps));
        }
        if (!output.empty()) {
            make_folder_of(output);
            refuse_unwritable(output);
        }
        const TemporaryFolder folder;
        std::vector<std::string> words =
            line("measure switching latencies",
                 {"../lib/kdvfs/switch-latency", "../switch_latency/switch-latency"});
        words.insert(words.end(), {"--repeat", std::to_string(repeat)});
        if (!clocks.empty()) words.insert(words.end(), {"--clocks", clocks});
        words.push_back(folder.path.string());
        static_cast<void>(run_command(words, environment_with({})));
        keep((folder.path / "switch_latency.json").string());
    }

private:
    /// Where it cannot be made, writing fails.
    static void make_folder_of(const std::filesystem::path& path) {
        std::error_code failed;
        if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failed);
    }

    /// From the program's JSON to the file that plans are made with.
    void keep(const std::string& json) const {
        using namespace kdvfs::tune;
        const nlohmann::json found = kdvfs::tune::parse_json(read_input(json).text, json);
        const std::string gpu = kdvfs::tune::PlanFields{found, json, ""}.text("gpu");
        std::string text =
            "from_core_mhz,from_mem_mhz,to_core_mhz,to_mem_mhz,latency_s,transition_s\n";
        double longest = 0;
        for (const auto& pair : found.at("pairs")) {
            if (!pair.at("switching_s").is_number()) continue;
            const double latency = pair.at("switching_s").get<double>();
            longest = std::max(longest, latency);
            for (const char* end : {"from", "to"})
                for (const char* clock : {"core_mhz", "memory_mhz"})
                    text += kdvfs::io::to_csv_field(
                                kdvfs::Megahertz{pair.at(end).at(clock).get<std::uint32_t>()}) +
                            ',';
            text += kdvfs::io::to_text(latency) + ',' +
                    kdvfs::io::to_text(std::min(latency, pair.at("transition_s").get<double>())) +
                    '\n';
        }
        if (longest <= 0)
            throw kdvfs::Error{
                kdvfs::Errc::not_supported,
                {"measure switching latencies", gpu, "no change of clocks could be seen",
                 "give clocks that lie further apart: --clocks 500,1700"}};
        const auto places = switch_latency_paths(gpu);
        const std::filesystem::path path = !output.empty() ? std::filesystem::path{output}
                                           : machine       ? places.back()
                                                           : places.front();
        make_folder_of(path);
        write_or_print(path.string(), text);
        const bool printed = is_standard_output(path.string());
        std::fprintf(printed ? stderr : stdout, "%s: clocks change after %.3g ms at most%s%s\n",
                     gpu.c_str(), 1e3 * longest, printed ? "" : "; kept in ",
                     printed ? "" : path.c_str());
        finish_standard_output();
    }
};

}  // namespace cli
