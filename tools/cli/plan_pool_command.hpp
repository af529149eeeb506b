// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/serve/pool_json.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/output.hpp>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace cli {

/// `kdvfs plan-pool POOLS.json`: exit status 3 where no plan keeps the targets.
struct PlanPoolCommand {
    static constexpr int nothing_found = 3;

    std::string question;
    std::string output;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<PlanPoolCommand>();
        CLI::App* sub = app.add_subcommand(
            "plan-pool", "Choose instances, parallelism and clocks of serving pools (JSON)");
        sub->add_option("pools", command->question,
                        "JSON: GPUs, classes, their loads and profiles; - for "
                        "standard input")
            ->required();
        sub->add_option("-o,--output", command->output, "File to write instead of printing");
        sub->callback([command] { command->run(); });
    }

    /// @throws CLI::RuntimeError with status 3 where there is no such plan
    void run() const {
        using namespace kdvfs::serve;
        const InputText input = read_input(question);
        const ClusterQuestion asked = parse_cluster_question(input.text, input.name);
        const ClusterPlan plan = plan_cluster(asked.classes, asked.gpus, asked.idle_gpu);
        write(output, to_json(asked, plan));
        if (!plan.refused.empty()) throw CLI::RuntimeError{nothing_found};
    }
};

}  // namespace cli
