// SPDX-License-Identifier: MIT
#include <examples/gpt3_iteration/generate.hpp>
#include <examples/gpt3_iteration/live_run.hpp>
#include <examples/gpt3_iteration/outcome.hpp>
#include <examples/gpt3_iteration/policies.hpp>
#include <examples/gpt3_iteration/summary.hpp>
#include <examples/gpt3_iteration/sweep.hpp>
#include <examples/gpt3_xl/boards.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace gpt3 {
namespace {

using namespace std::chrono_literals;

const Case& fitted_case() {
    static const Case job = *find_case("rtx_3080_ti");
    return job;
}

const kdvfs::tune::Profile& fitted_sweep() {
    static const kdvfs::tune::Profile profile =
        sweep(fitted_case().board, fitted_case().kernels, fitted_case().points, [](std::size_t) {});
    return profile;
}

const PlansByObjective& fitted_plans() {
    static const PlansByObjective plans = plan(fitted_sweep());
    return plans;
}

const kdvfs::tune::Cost& baseline() {
    static const kdvfs::tune::Cost cost = run_unscoped(fitted_case().board, fitted_case().kernels);
    return cost;
}

LiveRun live(kdvfs::Duration latency, std::ostream* trace = nullptr) {
    return run_live<Policies>(fitted_case().board, fitted_case().kernels, latency, nullptr, trace);
}

TEST(Gpt3Iteration, TheCommittedPoliciesAreWhatThisSweepGenerates) {
    std::ifstream file{KDVFS_SOURCE_DIR "/examples/gpt3_iteration/policies.hpp"};
    std::stringstream committed;
    committed << file.rdbuf();
    EXPECT_EQ(committed.str(), generate_policies(fitted_sweep(), fitted_plans().waste.global))
        << "run the demo and copy its policies.hpp to examples/gpt3_iteration/";
}

TEST(Gpt3Iteration, TheBaselineIsThePublishedOne) {
    EXPECT_NEAR(baseline().time.count(), 5.356, 5.356e-3);
    EXPECT_NEAR(baseline().energy.count, 1815, 1.815);
}

TEST(Gpt3Iteration, PlansComeNearThePaper) {
    const auto& waste = fitted_plans().waste;
    const auto& edp = fitted_plans().edp;
    std::printf("global %+.3f %% time %+.2f %% energy, local %+.2f %+.2f, edp %+.2f %+.2f\n",
                waste.global.time_pct(), waste.global.energy_pct(), waste.local.time_pct(),
                waste.local.energy_pct(), edp.global.time_pct(), edp.global.energy_pct());
    EXPECT_LE(waste.global.time_pct(), 0.05);
    EXPECT_NEAR(waste.global.energy_pct(), -15.64, 1.0);
    EXPECT_NEAR(waste.local.energy_pct(), -11.54, 1.7);
    const double product = (1 + edp.global.time_pct() / 100) * (1 + edp.global.energy_pct() / 100);
    EXPECT_NEAR(product / (1.1028 * 0.7248), 1, 0.05);
}

TEST(Gpt3Iteration, ThePlannerFindsThePublishedPlansInThePublishedMeasurements) {
    const PublishedOutcome published;
    EXPECT_NEAR(published.points.waste.global.time_pct(), 0.00, 0.01);
    EXPECT_NEAR(published.points.waste.global.energy_pct(), -15.64, 0.01);
    EXPECT_NEAR(published.passes.edp.per_group.time_pct(), 10.21, 0.15);
    EXPECT_NEAR(published.passes.edp.per_group.energy_pct(), -25.42, 0.15);
    EXPECT_NEAR(published.passes_relaxed.energy_pct(), -9.6, 0.2);
    EXPECT_LE(published.passes_relaxed.time_pct(), 0.1);
}

TEST(Gpt3Iteration, WithoutLatencyTheLiveRunSavesWhatThePlanPromised) {
    const LiveRun run = live(0us);
    EXPECT_NEAR(kdvfs::tune::energy_percent(run.cost, baseline()),
                fitted_plans().waste.global.energy_pct(), 0.2);
    EXPECT_EQ(run.report.scopes.switches + run.report.scopes.device_redundant +
                  run.report.scopes.missed + run.report.scopes.pending,
              launch_count);
}

TEST(Gpt3Iteration, NoLatencyMakesItSlowerOrCostlier) {
    for (const kdvfs::Duration latency :
         {0us, 3us, 10us, 30us, 100us, 300us, 1000us, 6000us, 30000us, 150000us}) {
        const LiveRun run = live(latency);
        const auto& scopes = run.report.scopes;
        EXPECT_LE(kdvfs::tune::time_percent(run.cost, baseline()), 0.3) << latency.count() << " ns";
        EXPECT_LE(kdvfs::tune::energy_percent(run.cost, baseline()), 0.1)
            << latency.count() << " ns";
        EXPECT_EQ(scopes.scopes, launch_count);
        EXPECT_EQ(scopes.switches + scopes.stream_redundant + scopes.device_redundant +
                      scopes.not_worth_it + scopes.missed + scopes.overtaken + scopes.pending +
                      scopes.refused + scopes.kept + scopes.captured,
                  launch_count);
        EXPECT_EQ(scopes.refused + scopes.kept + scopes.captured, 0U);
    }
}

TEST(Gpt3Iteration, KernelsIdleAndUnexplainedAddUpToTheCounter) {
    const auto totals = live(0us).report.totals;
    EXPECT_NEAR(totals.together.joules.count + totals.unexplained.count, totals.counter.count,
                1e-6);
    EXPECT_NEAR(totals.counter.count, live(0us).cost.energy.count, 1.0);
}

struct Attributed {
    std::vector<double> errors;  ///< of the kernels that are resolved, relative, ascending
    std::size_t covered = 0;
};

Attributed attributed() {
    const LiveRun run = live(0us);
    // A scope's time, and with it its joules, is that from marker to marker: the kernel's, and that
    // of the marker behind it, in which the board idles at the kernel's clock.
    const kdvfs::Seconds marker = kdvfs::simulated::DeviceOptions{}.marker_time;
    std::map<std::string, kdvfs::Joules> truth;
    for (const auto& kernel : fitted_plans().waste.global.kernels) {
        const auto idle = kdvfs::simulated::idle_power(fitted_case().board, kernel.clock);
        truth[kernel.key.name] = (kernel.expected.energy + idle * marker) * kernel.count;
    }
    Attributed found;
    for (const auto& row : run.report.rows) {
        if (!row.energy.resolved) continue;
        const kdvfs::Joules real = truth.at(row.kernel.name);
        found.errors.push_back(std::abs(row.energy.joules / real - 1));
        if (std::abs((row.energy.joules - real).count) <= row.energy.half_width.count)
            ++found.covered;
    }
    std::sort(found.errors.begin(), found.errors.end());
    const std::size_t resolved = found.errors.size();
    std::printf(
        "%zu of %zu kernels resolved: error %.2f %% median, %.2f %% worst; %zu in interval\n",
        resolved, kernel_count, 100 * found.errors[resolved / 2], 100 * found.errors.back(),
        found.covered);
    return found;
}

TEST(Gpt3Iteration, EachKernelIsAttributedWhatItReallyDrew) {
    const Attributed found = attributed();
    ASSERT_GE(found.errors.size(), 35U);
    EXPECT_LE(found.errors[found.errors.size() / 2], 0.002);
    EXPECT_LE(found.errors.back(), 0.05);
}

TEST(Gpt3Iteration, NineOfTenKernelsLieInTheirInterval) {
    const Attributed found = attributed();
    EXPECT_GE(static_cast<double>(found.covered), 0.9 * static_cast<double>(found.errors.size()));
}

TEST(Gpt3Iteration, TheTraceIsChromeTraceJson) {
    std::ostringstream text;
    live(0us, &text);
    const auto trace = nlohmann::json::parse(text.str());
    std::map<std::string, int> counts;
    for (const auto& event : trace.at("traceEvents")) {
        ++counts[event.value("cat", event.at("name").get<std::string>())];
    }
    EXPECT_EQ(counts["kernel"], static_cast<int>(launch_count));
    EXPECT_EQ(trace.at("otherData").at("simulated"), true);
    EXPECT_GT(counts["power W"], 1000);
}

TEST(Gpt3Iteration, TheSummaryHasEveryField) {
    Outcome outcome{.plans = fitted_plans(), .baseline = baseline()};
    outcome.live.push_back(live(1ms));
    const Json json = summary(fitted_case(), outcome);
    EXPECT_NEAR(json.at("baseline").at("time_s"), 5.356, 0.01);
    for (const char* field : {"core_mhz", "mem_mhz", "time_pct", "energy_pct"})
        EXPECT_TRUE(json.at("best_static").at(field).is_number()) << field;
    EXPECT_TRUE(json.at("boards").is_array());
    for (const char* aggregate : {"single", "pass", "local", "global"}) {
        for (const char* objective : {"waste", "edp"}) {
            EXPECT_TRUE(json.at(aggregate).at(objective).at("time_pct").is_number());
            EXPECT_TRUE(json.at(aggregate).at(objective).at("energy_pct").is_number());
        }
    }
    for (const char* field : {"parameters", "data_points", "rms_time_pct", "rms_energy_pct"}) {
        EXPECT_GT(json.at("fit").at(field), 0);
    }
    for (const char* source : {"points", "passes"}) {
        EXPECT_TRUE(json.at("published").at(source).at("edp").at("energy_pct").is_number());
    }
    for (const char* field : {"switch_latency_s", "time_pct", "energy_pct", "scopes", "switches",
                              "redundant", "not_worth_it", "refused"}) {
        EXPECT_TRUE(json.at("live").at(0).at(field).is_number()) << field;
    }
}

/// Static points are kernels' points, so kernels save at least as much; more time never saves less.
TEST(Gpt3Iteration, BoardsAreComparedWithTheirBestStaticPoint) {
    const std::vector<BoardSaving> boards = board_savings();
    ASSERT_EQ(boards.size(), 15U);
    for (std::size_t i = 0; i < boards.size(); ++i) {
        SCOPED_TRACE(boards[i].name);
        EXPECT_FALSE(boards[i].accuracy.empty()) << "no figure of a preset without its error";
        EXPECT_LE(boards[i].best_static_pct, 1e-9);
        EXPECT_LE(boards[i].kernels_pct, boards[i].best_static_pct + 0.02);
        if (i % 3 > 0) {
            EXPECT_LE(boards[i].kernels_pct, boards[i - 1].kernels_pct + 0.02);
        }
        EXPECT_EQ(to_json(boards[i]).contains("assumption"), !boards[i].fitted);
    }
    EXPECT_NEAR(boards[0].kernels_pct, -15.81, 0.02);  // as the sweep's plan
}

}  // namespace
}  // namespace gpt3
