// SPDX-License-Identifier: MIT
// One GPT-3-XL training iteration (arXiv 2601.08539) on a simulated GPU: measure every kernel, plan
// its clock, generate the policies, and run it live through scopes that follow them.

#include <examples/gpt3_iteration/arguments.hpp>
#include <examples/gpt3_iteration/generate.hpp>
#include <examples/gpt3_iteration/live_run.hpp>
#include <examples/gpt3_iteration/outcome.hpp>
#include <examples/gpt3_iteration/policies.hpp>
#include <examples/gpt3_iteration/summary.hpp>
#include <examples/gpt3_iteration/sweep.hpp>
#include <examples/gpt3_iteration/tables.hpp>
#include <examples/gpt3_xl/boards.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>

#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

namespace gpt3 {
namespace {

using namespace std::chrono_literals;

constexpr std::array<kdvfs::Duration, 6> latencies{0us, 10us, 100us, 1ms, 6ms, 150ms};

kdvfs::tune::Profile sweep_with_progress(const Case& job) {
    const bool terminal = isatty(STDERR_FILENO) == 1;
    const auto progress = [&](std::size_t done) {
        if (!terminal) return;
        std::fprintf(stderr, "\rmeasuring kernels: %zu of %zu, %zu clock points each%s", done,
                     kernel_count, job.points.size(), done == kernel_count ? "\n" : "");
    };
    return sweep(job.board, job.kernels, job.points, progress);
}

/// The fitted board runs what the compiler was given; the others obey their plan at run time, for
/// no header has been compiled in for them.
LiveRun run_case(const Case& job, kdvfs::Duration latency,
                 const std::shared_ptr<const kdvfs::PlanTable>& plan, std::ostream* trace) {
    using FollowPlan = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::FromPlan<kdvfs::AutoClock>>>;
    return job.fitted ? run_live<Policies>(job.board, job.kernels, latency, nullptr, trace)
                      : run_live<FollowPlan>(job.board, job.kernels, latency, plan, trace);
}

/// The same scopes, conducted by a plan that knows the latency.
FollowedRun follow_case(const Case& job, const kdvfs::tune::CostTable& table,
                        kdvfs::Duration latency) {
    kdvfs::tune::SegmentPlan plan =
        plan_segments(job.board, table, kdvfs::tune::strict_waste(), latency);
    using Free = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::AutoClock>>;
    return job.fitted ? run_followed<Policies>(job.board, job.kernels, std::move(plan), latency)
                      : run_followed<Free>(job.board, job.kernels, std::move(plan), latency);
}

void run(const Arguments& arguments) {
    const Case job = *find_case(arguments.gpu);
    std::printf(
        "One GPT-3-XL training iteration, %zu launches of %zu kernels, on a SIMULATED %s%s\n",
        launch_count, kernel_count, job.board.name.c_str(),
        job.fitted ? "" : "\n(a prediction from FLOPs and bytes, fitted to nothing)");

    const kdvfs::tune::Profile profile = sweep_with_progress(job);
    Outcome outcome{.plans = plan(profile), .baseline = run_unscoped(job.board, job.kernels)};
    const auto plan_table =
        std::make_shared<const kdvfs::PlanTable>(to_plan_table(outcome.plans.waste.global));

    std::ostringstream trace;
    for (const kdvfs::Duration latency : latencies) {
        outcome.live.push_back(
            run_case(job, latency, plan_table, latency == latencies.front() ? &trace : nullptr));
    }
    const kdvfs::tune::CostTable table = kdvfs::tune::mean_costs(profile);
    for (const kdvfs::Duration latency : latencies)
        outcome.live_followed.push_back(follow_case(job, table, latency));
    outcome.costs = scope_costs(job.board, job.kernels, plan_table);
    outcome.boards = board_savings();
    if (job.fitted) outcome.paper = paper_figures(job, table, outcome.plans.waste.global);
    const kdvfs::measure::Report& report = outcome.live.front().report;

    std::printf("\nBaseline (auto): %.4f s, %.1f J%s\n", outcome.baseline.time.count(),
                outcome.baseline.energy.count, job.fitted ? "; published: 5.356 s, 1815 J" : "");
    print_boards(outcome.boards);
    print_plans(job, outcome.plans);
    print_published(outcome.published);
    if (job.fitted) print_fit(job);
    print_live(outcome);
    std::printf("\nPer kernel, at switching latency 0:\n");
    std::cout << report << std::flush;

    std::ostringstream csv;
    kdvfs::measure::write_csv(csv, report);
    const auto write = [&](const char* name, const std::string& content) {
        kdvfs::io::write_file_atomically(arguments.out / name, content);
    };
    write("summary.json", summary(job, outcome).dump(2) + "\n");
    write("report.csv", csv.str());
    std::ostringstream json;
    kdvfs::measure::write_json(json, report);
    write("report.json", json.str());
    write("profile.csv", kdvfs::tune::to_csv(profile));
    write("plan.json", to_json(outcome.plans.waste, kdvfs::tune::Aggregate::global));
    write("policies.hpp", generate_policies(profile, outcome.plans.waste.global));
    write("trace.json", trace.str());
    std::printf(
        "\nWrote summary.json, profile.csv, plan.json, report.csv, report.json, policies.hpp and\n"
        "trace.json (for ui.perfetto.dev) to %s; kdvfs report draws profile, plan, report and "
        "trace\n",
        arguments.out.string().c_str());
}

}  // namespace
}  // namespace gpt3

int main(int argc, char** argv) {
    try {
        const auto arguments = gpt3::parse_arguments(argc, argv);
        if (!arguments) return 1;
        gpt3::run(*arguments);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "gpt3_iteration: %s\n", error.what());
        return 1;
    }
}
