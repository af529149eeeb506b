// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/train/plan_text.hpp>
#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/train/plan.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/text_options.hpp>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>

namespace cli {

/// `kdvfs plan-pipeline CASE.json ...`
struct PlanPipelineCommand {
    std::string file;
    std::string at;
    std::string slowdown;
    std::string clocks = "one";
    std::string latency;
    std::string format;
    std::string max_gap;
    std::string namespace_name = "kdvfs_pipeline";
    std::string output;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<PlanPipelineCommand>();
        CLI::App* sub = app.add_subcommand(
            "plan-pipeline", "Choose clocks for each operation of a training pipeline");
        sub->add_option("case", command->file, "Pipeline and curves (JSON); - is standard input")
            ->required();
        CLI::Option* time = sub->add_option("--at", command->at, "Iteration's time, such as 2.4s");
        sub->add_option("--slowdown", command->slowdown,
                        "Iteration's time, such as 5% above the shortest")
            ->excludes(time);
        sub->add_option("--clocks", command->clocks, "Clocks of an operation")
            ->check(CLI::IsMember({"one", "two"}))
            ->capture_default_str();
        sub->add_option("--latency", command->latency,
                        "Plan for clocks that come so late, such as 10ms; with --clocks one");
        sub->add_option("--format", command->format,
                        "Output: csv (default without a time), json (default with one), header")
            ->check(CLI::IsMember({"csv", "json", "header"}));
        sub->add_option("--max-gap", command->max_gap,
                        "Proven gap of the frontier, such as 0.001; 0: exact. Default: exact up to "
                        "3000 operations, 0.0001 up to 10000, else 0.001");
        sub->add_option("--namespace", command->namespace_name,
                        "With --format header: of what is generated")
            ->capture_default_str();
        sub->add_option("-o,--output", command->output, "File to write instead of printing");
        sub->callback([command, sub] {
            command->check(*sub);
            command->run();
        });
    }

    void run() const {
        using namespace kdvfs::train;
        const InputText input = read_input(file);
        PipelineCase read = parse_pipeline_case(input.text, input.name);
        const double gap = allowed_gap(read.pipeline.operations.size());
        const Frontier frontier{std::move(read.pipeline), {gap}};
        write(output, at.empty() && slowdown.empty() ? whole(frontier, read.name)
                                                     : planned(frontier, read.name));
    }

private:
    void check(const CLI::App& options) const {
        if (format != "header")
            refuse_without_effect(options, "--namespace", "without --format header");
        if (at.empty() && slowdown.empty())
            refuse_without_effect(options, "--clocks", "without --at or --slowdown");
    }

    [[nodiscard]] double allowed_gap(std::size_t operations) const {
        if (max_gap.empty()) return operations <= 3000 ? 0 : operations <= 10'000 ? 1e-4 : 1e-3;
        const auto gap = kdvfs::io::parse_number<double>(max_gap);
        if (!gap || !(*gap >= 0 && *gap < 1)) reject("--max-gap", max_gap, "give such as 0.001");
        return *gap;
    }

    [[nodiscard]] std::string whole(const kdvfs::train::Frontier& frontier,
                                    const std::string& name) const {
        if (!latency.empty())
            reject("--latency", latency, "a plan has it, a frontier has none: give --at");
        if (format == "header")
            reject("--format", format, "a header is of one plan: give --at or --slowdown");
        return format == "json" ? to_json(frontier, name) : to_csv(frontier);
    }

    [[nodiscard]] std::string planned(const kdvfs::train::Frontier& frontier,
                                      const std::string& name) const {
        using namespace kdvfs::train;
        const PipelinePlan plan =
            make_plan(frontier, length(frontier), clocks == "two" ? Clocks::two : Clocks::one,
                      {switching_latency(), {}});
        if (format == "csv") return to_csv(plan);
        if (format == "header")
            return to_header(plan, {namespace_name, "Policies", source_name(file), ""});
        return to_json(plan, frontier, name);
    }

    [[nodiscard]] kdvfs::Seconds switching_latency() const {
        if (latency.empty()) return kdvfs::Seconds{0};
        if (clocks == "two")
            reject("--latency", latency, "a second clock within an operation would come too late");
        const auto time = parse_duration("--latency", latency);
        if (!time) reject("--latency", latency, "give a time such as 10ms");
        return *time;
    }

    [[nodiscard]] kdvfs::Seconds length(const kdvfs::train::Frontier& frontier) const {
        if (!slowdown.empty())
            return frontier.shortest() *
                   (1 + parse_percent("--slowdown", slowdown, most_slowdown_pct));
        const auto time = parse_duration("--at", at);
        if (!time) reject("--at", at, "give a time such as 2.4s");
        return *time;
    }
};

}  // namespace cli
