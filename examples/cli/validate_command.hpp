// SPDX-License-Identifier: MIT
#pragma once

#include <examples/cli/measured_gpu.hpp>
#include <examples/cli/text_options.hpp>
#include <kdvfs/core/error.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/plan_json.hpp>
#include <kdvfs/tune/validation.hpp>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

namespace cli {

/// `kdvfs validate PLAN.json --device replay:FILE`
struct ValidateCommand {
    std::string plan;
    std::string device;
    std::size_t pairs = 20;
    std::string noise = "0%";
    std::uint64_t seed = 2;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<ValidateCommand>();
        CLI::App* sub = app.add_subcommand(
            "validate", "Compare a plan with the baseline by fresh runs in alternating pairs");
        sub->add_option("plan", command->plan, "Plan file (JSON)")->required();
        sub->add_option("--device", command->device, "sim:NAME or replay:FILE")->required();
        sub->add_option("--pairs", command->pairs, "Pairs of runs")->capture_default_str();
        sub->add_option("--noise", command->noise, "Of a simulated measurement, such as 1%")
            ->capture_default_str();
        sub->add_option("--seed", command->seed, "Of noise, replays and resampling")
            ->capture_default_str();
        sub->callback([command] { command->run(); });
    }

    void run() const {
        using namespace kdvfs::tune;
        const Plan planned = parse_plan(read_trusted_file(plan), plan);
        const MeasuredGpu gpu = open_measured(device, parse_percent("--noise", noise), seed);
        if (gpu.name != planned.gpu)
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"validate a plan", plan, "it is for another GPU, " + planned.gpu,
                                "validate it on that one"}};
        std::map<kdvfs::KernelKey, std::size_t> index;
        for (std::size_t k = 0; k < gpu.kernels.size(); ++k) index[gpu.kernels[k].key] = k;
        const auto run_once = [&](bool obeyed) {
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
        print(planned, validate(planned, pairs, run_once, seed));
    }

private:
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
