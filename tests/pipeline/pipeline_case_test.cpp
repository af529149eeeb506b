// SPDX-License-Identifier: MIT
#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/perseus_profile.hpp>
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/train/plan.hpp>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

namespace kdvfs::train {
namespace {

nlohmann::json good_case() {
    nlohmann::json json{{"format", "pipeline-case-1"}, {"name", "two"},
                        {"schedule", "1f1b"},          {"stages", 2},
                        {"microbatches", 3},           {"chunks", 1},
                        {"blocking_power_w", 50.0},    {"curves", "measured"}};
    for (int stage = 0; stage < 2; ++stage)
        for (const char* op : {"forward", "backward"})
            json["profiles"].push_back(
                {{"stage", stage},
                 {"op", op},
                 {"points", {{1400, 0.1, 30.0}, {1200, 0.12, 28.0}, {1000, 0.15, 27.5}}}});
    return json;
}

std::string refusal(const nlohmann::json& json) {
    try {
        (void)parse_pipeline_case(json.dump(), "case.json");
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_input);
        EXPECT_FALSE(error.text().remedy.empty()) << error.what();
        return error.what();
    }
    return "none";
}

void expect_refusal(const nlohmann::json& json, const std::string& words) {
    EXPECT_NE(refusal(json).find(words), std::string::npos) << refusal(json);
}

TEST(PipelineCase, IsRead) {
    const PipelineCase read = parse_pipeline_case(good_case().dump(), "case.json");
    EXPECT_EQ(read.name, "two");
    EXPECT_EQ(read.pipeline.operations.size(), 12U);
    EXPECT_EQ(read.pipeline.curves.size(), 4U);
    EXPECT_EQ(read.pipeline.blocking_power.count, 50);
}

/// What version 1 means, field by field: docs/training.md. A reader of another version must not
/// change what this file says.
TEST(PipelineCase, OfVersionOneMeansWhatItDid) {
    const std::string text = R"({"format": "pipeline-case-1", "name": "frozen",
        "schedule": "1f1b", "stages": 2, "chunks": 1, "microbatches": 2,
        "blocking_power_w": 50, "curves": "measured", "unknown": [1, 2],
        "profiles": [
          {"stage": 0, "op": "forward", "points": [[1000, 0.15, 27.5], [1400, 0.1, 30]]},
          {"stage": 0, "op": "backward", "chunk": 0, "points": [[1400, 0.2, 60], [1000, 0.3, 55]]},
          {"stage": 1, "op": "forward", "points": [[1400, 0.1, 30], [1000, 0.15, 27.5]]},
          {"stage": 1, "op": "backward", "points": [[1400, 0.2, 60], [1000, 0.3, 55]]}]})";
    const Pipeline pipeline = parse_pipeline_case(text, "frozen.json").pipeline;
    ASSERT_EQ(pipeline.operations.size(), 8U);
    std::string order;
    for (const Operation& operation : pipeline.operations)
        order += std::to_string(operation.stage) + (operation.pass == Pass::forward ? "f" : "b") +
                 std::to_string(operation.microbatch) + " ";
    EXPECT_EQ(order, "0f0 0f1 0b0 0b1 1f0 1b0 1f1 1b1 ");
    EXPECT_EQ(pipeline.blocking_power, Watts{50});
    const CurvePoint& fast = pipeline.curves[pipeline.operations[0].curve].points().front();
    EXPECT_EQ(fast.clock, (ClockPoint{Megahertz{1400}, auto_clock}));
    EXPECT_EQ(fast.time, Seconds{0.1});
    EXPECT_EQ(fast.energy, Joules{30});
    // 0.1 + 2 x (0.1 + 0.2) + 0.2: the first forward, stage 1, the last backward.
    EXPECT_NEAR(Frontier{pipeline}.shortest().count(), 0.9, 1e-9);
}

TEST(PerseusProfile, IsThePipelineOfItsCase) {
    std::string text = "stage,instruction,frequency,time,energy\n0,load,1400,0.01,1\n";
    for (int stage = 0; stage < 2; ++stage)
        for (const char* op : {"forward", "backward"})
            for (const auto& [mhz, time, energy] :
                 {std::tuple{1400, 0.1, 30.0}, {1200, 0.12, 28.0}, {1000, 0.15, 27.5}})
                for (const double off : {-0.01, 0.01})  // two samples of each place
                    text += std::to_string(stage) + ',' + op + ',' + std::to_string(mhz) + ',' +
                            std::to_string(time * (1 + off)) + ',' +
                            std::to_string(energy * (1 - off)) + '\n';
    const auto read = [](const std::string& csv) {
        std::istringstream input{csv};
        return read_perseus_profile(input, "profile.csv", {Schedule::one_f_one_b, 2, 1, 3},
                                    Watts{50});
    };
    const Frontier given{parse_pipeline_case(good_case().dump(), "case.json").pipeline};
    const Frontier found{read(text)};
    EXPECT_NEAR(found.shortest() / given.shortest(), 1, 1e-6);
    EXPECT_NEAR(found.frugal() / given.frugal(), 1, 1e-6);
    EXPECT_NEAR(found.total(found.shortest()) / given.total(given.shortest()), 1, 1e-6);

    const auto refused = [&](const std::string& csv, const std::string& words) {
        try {
            static_cast<void>(read(csv));
            ADD_FAILURE() << "read: " << csv;
        } catch (const Error& error) {
            EXPECT_NE(std::string{error.what()}.find(words), std::string::npos) << error.what();
        }
    };
    refused("", "the file is empty");
    refused("stage,instruction,frequency,time\n", "there is no column energy");
    refused("stage,instruction,frequency,time,energy\n0,fly,1400,1,1\n", "\"fly\" is not known");
    refused("stage,instruction,frequency,time,energy\n0,forward,0,1,1\n", "frequency");
    refused("stage,instruction,frequency,time,energy\n0,forward,1400,1,1\n", "stage 0");
}

TEST(PipelineCase, OfAnotherVersionIsRefused) {
    nlohmann::json json = good_case();
    json["format"] = "pipeline-case-2";
    expect_refusal(json, "this version reads pipeline-case-1 (invalid input); use a newer kdvfs");
}

TEST(PipelineCase, SpellingsOfOthersAreRead) {
    for (const auto& [spelled, schedule] : {std::pair{"GPipe", Schedule::gpipe},
                                            {"1F1B", Schedule::one_f_one_b},
                                            {"interleaved-1f1b", Schedule::interleaved_1f1b},
                                            {"Interleaved", Schedule::interleaved_1f1b}}) {
        nlohmann::json json = good_case();
        json["schedule"] = spelled;
        json["microbatches"] = 4;
        EXPECT_EQ(parse_pipeline_case(json.dump(), "c").pipeline.schedule, schedule) << spelled;
    }
    for (const char* spelled : {"zb-h1", "ZB-H1", "zb_h1", "zbh1"}) {
        nlohmann::json json = good_case();
        json["schedule"] = spelled;
        for (int stage = 0; stage < 2; ++stage) {
            nlohmann::json& backward = json["profiles"][static_cast<std::size_t>(2 * stage + 1)];
            backward["op"] = "input";
            nlohmann::json weight = backward;
            weight["op"] = "weight";
            json["profiles"].push_back(weight);
        }
        const Pipeline read = parse_pipeline_case(json.dump(), "c").pipeline;
        EXPECT_EQ(read.schedule, Schedule::zb_h1) << spelled;
        EXPECT_EQ(read.operations.size(), 18U) << spelled;
    }
}

/// One point: communication, or loading, that takes the same at all clocks. The iteration gets
/// longer by it, and the rest is planned around it.
TEST(PipelineCase, AnOperationOfOnePointTakesTheSameAtAllClocks) {
    nlohmann::json json = good_case();
    json["profiles"][2]["points"] = {{1400, 0.3, 30.0}};  // stage 1, forward
    const Pipeline pipeline = parse_pipeline_case(json.dump(), "c").pipeline;
    const Frontier frontier{pipeline};
    // 0.1 + 3 x (0.3 + 0.1) + 0.1 at 1400 MHz, and 0.15 + 3 x (0.3 + 0.15) + 0.15 at 1000 MHz.
    EXPECT_NEAR(frontier.shortest().count(), 1.4, 1e-9);
    EXPECT_NEAR(frontier.frugal().count(), 1.65, 1e-9);
    for (const Clocks clocks : {Clocks::one, Clocks::two}) {
        const PipelinePlan plan = make_plan(frontier, Seconds{1.5}, clocks);
        EXPECT_LE(plan.makespan.count(), 1.5 + 1e-9);
        double longest = 0;
        for (const PlannedOperation& planned : plan.operations)
            if (planned.clocks.operation.curve == 2) {
                EXPECT_NEAR(planned.duration.count(), 0.3, 1e-9);
                longest += planned.duration.count();
            }
        EXPECT_NEAR(longest, 0.9, 1e-9);
    }
    const std::string text = to_case_text(pipeline, "again");
    EXPECT_EQ(to_case_text(parse_pipeline_case(text, "again.json").pipeline, "again"), text);
}

TEST(PipelineCase, WaitsHaveAPowerByClock) {
    nlohmann::json json = good_case();
    json["waiting_power_w"] = {{1050, 31.5}, {600, 33}};
    const Pipeline read = parse_pipeline_case(json.dump(), "case.json").pipeline;
    EXPECT_EQ(read.blocking_power.count, 31.5);
    EXPECT_EQ(read.waiting.at(Megahertz{500}).count, 33);
    EXPECT_EQ(read.waiting.at(Megahertz{1000}).count, 31.5);
    EXPECT_EQ(read.waiting.at(Megahertz{1051}).count, 50);
    EXPECT_EQ(read.waiting.at(auto_clock).count, 50);
    const std::string text = to_case_text(read, "again");
    const Pipeline again = parse_pipeline_case(text, "again.json").pipeline;
    EXPECT_EQ(to_case_text(again, "again"), text);
    EXPECT_EQ(again.blocking_power.count, 31.5);
    json.erase("waiting_power_w");  // one power at all clocks
    EXPECT_EQ(parse_pipeline_case(json.dump(), "c").pipeline.waiting.at(Megahertz{600}).count, 50);
}

TEST(PipelineCase, ChunksShareACurveOrHaveTheirOwn) {
    nlohmann::json json = good_case();
    json["schedule"] = "interleaved_1f1b";
    json["chunks"] = 2;
    json["microbatches"] = 4;
    EXPECT_EQ(parse_pipeline_case(json.dump(), "c").pipeline.operations.size(), 32U);
    nlohmann::json own = json["profiles"][0];
    own["chunk"] = 1;
    json["profiles"].push_back(own);
    const Pipeline pipeline = parse_pipeline_case(json.dump(), "c").pipeline;
    for (const Operation& operation : pipeline.operations)
        if (operation.stage == 0 && operation.pass == Pass::forward) {
            EXPECT_EQ(operation.curve, operation.chunk == 1 ? 4U : 0U);
        }
    json["profiles"].push_back(own);
    expect_refusal(json, "two profiles");
}

TEST(PipelineCase, GraphsHaveOperationsAndDependencies) {
    nlohmann::json json = good_case();
    json["schedule"] = "graph";
    json["operations"] = {{{"stage", 1}, {"op", "forward"}, {"microbatch", 0}},
                          {{"stage", 0}, {"op", "forward"}, {"microbatch", 0}}};
    json["dependencies"] = {{1, 0}};
    const Pipeline pipeline = parse_pipeline_case(json.dump(), "c").pipeline;
    ASSERT_EQ(pipeline.dependencies.size(), 1U);
    EXPECT_EQ(pipeline.operations[pipeline.dependencies[0].first].stage, 0U);
    EXPECT_EQ(pipeline.operations[pipeline.dependencies[0].then].stage, 1U);
    json["dependencies"] = {{1, 0}, {0, 1}};
    expect_refusal(json, "cycle");
    json["dependencies"] = {{1, 2}};
    expect_refusal(json, "dependencies");
}

TEST(PipelineCase, RejectsCurvesThatAreNone) {
    nlohmann::json json = good_case();
    auto& points = json["profiles"][2]["points"];
    points = nlohmann::json::array();
    expect_refusal(json, "no points");
    points = {{1400, -0.1, 30.0}, {1200, 0.12, 28.0}};
    expect_refusal(json, "time");
    points = {{1400, 0.1, -30.0}, {1200, 0.12, 28.0}};
    expect_refusal(json, "energy");
    points = {{1400, 0.1, 30.0}, {1400, 0.12, 28.0}};
    expect_refusal(json, "two points");
    points = {{1400, nullptr, 30.0}, {1200, 0.12, 28.0}};  // what a NaN becomes
    expect_refusal(json, "point of stage 1, forward");
    points = {{1400, 0.1, 30.0}, {0, 0.12, 28.0}};
    expect_refusal(json, "clock");
    points = {{1400, 0.1, 30.0}, {1200, 1e300, 28.0}};
    expect_refusal(json, "time");
}

/// Measured points above the hull are left out; a curve that is said to be convex has none.
TEST(PipelineCase, TakesTheHullOfWhatIsMeasuredAndRejectsWhatIsSaidToBeConvex) {
    nlohmann::json json = good_case();
    json["profiles"][0]["points"] = {{1400, 0.1, 30.0}, {1200, 0.12, 29.9}, {1000, 0.15, 26.0}};
    EXPECT_EQ(parse_pipeline_case(json.dump(), "c").pipeline.curves[0].hull().size(), 2U);
    json["curves"] = "convex";
    expect_refusal(json, "convex");
    EXPECT_NO_THROW((void)parse_pipeline_case(good_case().dump(), "c"));
}

TEST(PipelineCase, RejectsWhatIsNoPipeline) {
    const auto with = [](const char* field, const nlohmann::json& value) {
        nlohmann::json json = good_case();
        json[field] = value;
        return json;
    };
    expect_refusal(with("format", "other"), "format");
    expect_refusal(with("schedule", "dualpipe"), "schedule");
    expect_refusal(with("stages", 0), "stages");
    expect_refusal(with("stages", -2), "stages");
    expect_refusal(with("stages", 2.5), "stages");
    expect_refusal(with("stages", 1), "which the pipeline has not");
    expect_refusal(with("stages", 3), "no curve");
    expect_refusal(with("microbatches", 0), "microbatches");
    expect_refusal(with("microbatches", 1e15), "microbatches");
    expect_refusal(with("chunks", 2), "one chunk");
    expect_refusal(with("waiting_power_w", 61), "waiting_power_w");
    expect_refusal(with("waiting_power_w", {{1050}}), "waiting_power_w");
    expect_refusal(with("waiting_power_w", {{0, 61}}), "waiting_power_w");
    expect_refusal(with("waiting_power_w", {{1050, -1}}), "waiting_power_w");
    expect_refusal(with("blocking_power_w", "much"), "blocking_power_w");
    expect_refusal(with("blocking_power_w", -1), "blocking power");
    expect_refusal(with("schedule", "zb_h1"), "backward_input");
    expect_refusal(with("profiles", 3), "profiles");
    nlohmann::json interleaved = with("schedule", "interleaved_1f1b");
    interleaved["chunks"] = 2;
    expect_refusal(interleaved, "do not divide");
    EXPECT_THROW((void)parse_pipeline_case("{\"points\": NaN}", "c"), Error);
    EXPECT_THROW((void)parse_pipeline_case("", "c"), Error);
    EXPECT_THROW((void)read_pipeline_case("/nonexistent/case.json"), Error);
}

}  // namespace
}  // namespace kdvfs::train
