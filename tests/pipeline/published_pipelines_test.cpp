// SPDX-License-Identifier: MIT
// What others measured and computed. The data are no part of the project: without them, skipped.
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/train/plan.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kdvfs::train {
namespace {

const std::filesystem::path folder =
    std::filesystem::path{KDVFS_SOURCE_DIR}.parent_path() / "shared/data/perseus";

nlohmann::json read_json(const std::string& name) {
    std::ifstream input{folder / name};
    return nlohmann::json::parse(input);
}

double energy_at_top_clocks(const Pipeline& pipeline) {
    double sum = 0;
    for (const Operation& operation : pipeline.operations)
        sum += to_joules(pipeline.curves[operation.curve].effective(0)).count;
    return sum;
}

TEST(PublishedPipelines, TheSyntheticFrontierIsFound) {
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
    const Frontier frontier{read_pipeline_case(folder / "synthetic_4x8.json").pipeline};
    std::ifstream input{folder / "synthetic_4x8_frontier.csv"};
    kdvfs::detail::CsvReader reader{input, "synthetic_4x8_frontier.csv"};
    std::vector<std::string> fields;
    ASSERT_TRUE(reader.next(fields));
    int rows = 0;
    double last = 0;
    while (reader.next(fields)) {
        const Seconds time{kdvfs::detail::parse_number<double>(fields[1]).value()};
        const double effective = kdvfs::detail::parse_number<double>(fields[2]).value();
        const double total = kdvfs::detail::parse_number<double>(fields[3]).value();
        if (rows++ == 0) {
            EXPECT_NEAR(frontier.shortest().count(), time.count(), 1e-6);
        }
        EXPECT_NEAR(frontier.effective(time).count / effective, 1, 1e-7);
        EXPECT_NEAR(frontier.total(time).count / total, 1, 1e-7);
        last = time.count();
    }
    EXPECT_EQ(rows, 49);
    EXPECT_NEAR(frontier.frugal().count(), last, 1e-6);
}

/// Stages that wait at 61 W, another A100's idle power at 1050 MHz or less (an assumption), save so
/// much of all energy at the shortest time.
TEST(PublishedPipelines, GptThreeWaitsAtALowClock) {
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
    struct Expected {
        int microbatches;
        double bound_pct;  ///< switching free
        double late_pct;   ///< at least, with clocks that come and go 10 ms late
    };
    for (const Expected& expected : {Expected{12, -2.502, -2.1},
                                     {24, -1.291, -1.1},
                                     {48, -0.656, -0.55},
                                     {96, -0.331, -0.27}}) {
        nlohmann::json json = read_json("gpt3_175b_a100.json");
        json["microbatches"] = expected.microbatches;
        const Frontier plain{parse_pipeline_case(json.dump(), "measured").pipeline};
        json["waiting_power_w"] = {{1050, 61}};
        const Frontier frontier{parse_pipeline_case(json.dump(), "lowered").pipeline};
        const double before = plain.total(plain.shortest()).count;
        const auto percent = [&](Joules total) { return 100 * (total.count / before - 1); };
        EXPECT_NEAR(percent(frontier.total(frontier.shortest())), expected.bound_pct, 0.001);
        PipelinePlan plan = make_plan(frontier, frontier.shortest(), Clocks::two);
        EXPECT_NEAR(percent(plan.total), expected.bound_pct, 0.001);
        plan_waits(frontier.pipeline(), Seconds{0.010}, plan);
        EXPECT_LT(percent(plan.total), expected.late_pct);
        EXPECT_GT(percent(plan.total), expected.bound_pct);
    }
}

TEST(PublishedPipelines, GptThreeSavesWhatPerseusLeaves) {
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
    nlohmann::json json = read_json("gpt3_175b_a100.json");
    for (const auto& [microbatches, least] : {std::pair{12, 15.8}, {24, 14.7}}) {
        json["microbatches"] = microbatches;
        const Frontier frontier{parse_pipeline_case(json.dump(), "gpt3").pipeline};
        const Seconds time = frontier.shortest();
        const PipelinePlan plan = make_plan(frontier, time, Clocks::one);
        const double top = energy_at_top_clocks(frontier.pipeline()) +
                           frontier.pipeline().blocking_energy(time).count;
        EXPECT_GE(100 * (1 - plan.total.count / top), least) << microbatches;
        EXPECT_LE(plan.gap(), 0.0015) << microbatches;
        EXPECT_LE(make_plan(frontier, time, Clocks::two).gap(), 1e-4) << microbatches;
    }
}

}  // namespace
}  // namespace kdvfs::train
