// SPDX-License-Identifier: MIT
#pragma once

#include <examples/cli/command_run.hpp>
#include <examples/cli/energy_watch.hpp>
#include <examples/cli/measured_gpu.hpp>
#include <examples/cli/text_options.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/plan_json.hpp>
#include <kdvfs/tune/validation.hpp>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cli {

/// `kdvfs validate PLAN.json --device replay:FILE` and `kdvfs validate PLAN.json -- COMMAND...`
struct ValidateCommand {
    std::string plan;
    std::vector<std::string> command;
    std::string device;
    std::string counter = "auto";
    std::size_t pairs = 20;
    std::string noise = "0%";
    std::uint64_t seed = 2;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<ValidateCommand>();
        CLI::App* sub = app.add_subcommand(
            "validate", "Compare a plan with the baseline by fresh runs in alternating pairs");
        sub->add_option("plan", command->plan, "Plan file (JSON)")->required();
        sub->add_option("command", command->command,
                        "After --: a program, run twice a pair, with KDVFS_PLAN set and without");
        sub->add_option("--device", command->device, "Instead of a program: sim:NAME, replay:FILE");
        sub->add_option("--counter", command->counter,
                        "What counts a program's energy: a GPU's PCI address, hwmon:FILE "
                        "(microjoules), or program: it reports its own time and energy")
            ->capture_default_str();
        sub->add_option("--pairs", command->pairs, "Pairs of runs")->capture_default_str();
        sub->add_option("--noise", command->noise, "Of a simulated measurement, such as 1%")
            ->capture_default_str();
        sub->add_option("--seed", command->seed, "Of noise, replays and resampling")
            ->capture_default_str();
        sub->callback([command] { command->run(); });
    }

    void run() const {
        using namespace kdvfs::tune;
        if (command.empty() == device.empty())
            reject("command", device, "give either --device, or a program after --");
        const std::string text = read_trusted_file(plan);
        const bool segments = has_sequence(text, plan);
        if (segments && command.empty())
            reject("--device", device, "a plan of segments is followed by a program: give one");
        const Plan planned = segments ? parse_promise(text, plan) : parse_plan(text, plan);
        const auto run_once = device.empty() ? program_runs() : device_runs(planned);
        print(planned, validate(planned, pairs, run_once, seed));
    }

private:
    /// What one iteration costs, under the plan or at the baseline.
    using Runs = std::function<kdvfs::tune::Cost(bool planned)>;

    [[nodiscard]] Runs device_runs(const kdvfs::tune::Plan& planned) const {
        using namespace kdvfs::tune;
        const MeasuredGpu gpu = open_measured(device, parse_percent("--noise", noise), seed);
        if (gpu.name != planned.gpu)
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"validate a plan", plan, "it is for another GPU, " + planned.gpu,
                                "validate it on that one"}};
        std::map<kdvfs::KernelKey, std::size_t> index;
        for (std::size_t k = 0; k < gpu.kernels.size(); ++k) index[gpu.kernels[k].key] = k;
        return [gpu, index, &planned](bool obeyed) {
            Cost sum;
            for (const PlannedKernel& kernel : planned.kernels) {
                const auto found = index.find(kernel.key);
                if (found == index.end())
                    throw kdvfs::Error{kdvfs::Errc::invalid_input,
                                       {"validate a plan", to_string(kernel.key),
                                        "the device does not have this kernel", ""}};
                sum += gpu.measure(found->second, obeyed ? kernel.clock : planned.baseline_clock) *
                       kernel.count;
            }
            return sum;
        };
    }

    [[nodiscard]] Runs program_runs() const {
        const std::string file = std::filesystem::absolute(plan).string();
        if (counter == "program") {
            return [this, file](bool planned) {
                const ReportFile report;
                static_cast<void>(
                    run_command(command, environment_with({{"KDVFS_PLAN", planned ? file : ""},
                                                           {"KDVFS_COST", report.path.string()}})));
                return kdvfs::tune::read_cost(report.path);
            };
        }
        return [this, file, energy = open_counter(counter)](bool planned) {
            EnergyWatch watch{energy};
            const RunTimes times =
                run_command(command, environment_with({{"KDVFS_PLAN", planned ? file : ""}}));
            return kdvfs::tune::Cost{times.ended - times.began,
                                     watch.between(times.began, times.ended)};
        };
    }

    /// Where a program is to report to, in a folder that nobody else can write to.
    struct ReportFile {
        std::filesystem::path folder = make_folder();
        std::filesystem::path path = folder / "cost.csv";

        ReportFile() = default;
        ReportFile(const ReportFile&) = delete;
        ReportFile& operator=(const ReportFile&) = delete;
        ~ReportFile() {
            std::error_code ignored;
            std::filesystem::remove_all(folder, ignored);
        }

        static std::filesystem::path make_folder() {
            std::string name = (std::filesystem::temp_directory_path() / "kdvfs_XXXXXX").string();
            if (::mkdtemp(name.data()) == nullptr)
                kdvfs::detail::throw_file_error("make a folder", name, errno);
            return name;
        }
    };

    static void print(const kdvfs::tune::Plan& plan, const kdvfs::tune::Validation& found) {
        const auto line = [](const char* what, double promised,
                             const kdvfs::tune::PercentInterval& validated) {
            std::printf("%-8s %+10.3f %% %+10.3f %%  [%+.3f, %+.3f]\n", what, promised,
                        validated.mean, validated.low, validated.high);
        };
        std::printf("%s: %zu pairs of runs, plan against baseline\n", plan.gpu.c_str(),
                    found.pairs);
        std::printf("%-8s %12s %12s  95 %% interval\n", "", "promised", "validated");
        line("time", found.promised_time_pct, found.time);
        line("energy", found.promised_energy_pct, found.energy);
    }
};

}  // namespace cli
