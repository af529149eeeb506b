// SPDX-License-Identifier: MIT
// Plans of segments as files: what a generated header and a plan.json say is what was planned.
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/policy_header.hpp>
#include <kdvfs/tune/segments.hpp>

#include "generated_follow.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

/// Two layers of two kernels, and an end.
SegmentPlan planned() {
    Profile profile{"simulated Radeon"};
    const auto add = [&](const char* kernel, std::uint32_t index, Megahertz core, double time,
                         double energy) {
        profile.add(
            {{kernel, variant(index)}, {core, auto_clock}, {Seconds{time}, Joules{energy}}});
    };
    add("gemm", 0, auto_clock, 1, 100);
    add("gemm", 0, {500}, 2, 90);
    add("copy", 2, auto_clock, 1, 80);
    add("copy", 2, {500}, 1, 40);
    const CostTable table = mean_costs(profile);
    std::vector<KernelKey> launches;
    for (int layer = 0; layer < 8; ++layer) {
        launches.insert(launches.end(), 3, {"gemm", {}});
        launches.insert(launches.end(), 4, {"copy", variant(2)});
    }
    launches.push_back({"gemm", {}});
    SegmentPlan plan = plan_segments(table, launch_indices(table, launches),
                                     uniform_switch_costs(Seconds{0.5}), strict_waste());
    plan.sequence.profile_hash = "fnv1a64:0123456789abcdef";
    return plan;
}

HeaderOptions options() {
    return {"sample::followed", "Policies", "sweep.csv", "fnv1a64:0123456789abcdef"};
}

void expect_same(const PlannedSequence& a, const PlannedSequence& b) {
    EXPECT_EQ(a.gpu, b.gpu);
    EXPECT_EQ(a.profile_hash, b.profile_hash);
    EXPECT_EQ(a.launches, b.launches);
    EXPECT_EQ(a.boundaries, b.boundaries);
    ASSERT_EQ(a.kernels.size(), b.kernels.size());
    for (std::size_t k = 0; k < a.kernels.size(); ++k) {
        EXPECT_EQ(a.kernels[k].key, b.kernels[k].key);
        EXPECT_EQ(a.kernels[k].lasts, b.kernels[k].lasts);
    }
}

TEST(FollowedPlan, ThePlannerSaysWhatToFollow) {
    const SegmentPlan plan = planned();
    EXPECT_EQ(plan.sequence.gpu, "simulated Radeon");
    EXPECT_EQ(plan.sequence.launches.size(), 57U);
    ASSERT_EQ(plan.sequence.boundaries.size(), plan.segments.size());
    EXPECT_GT(plan.segments.size(), 8U);
    for (std::size_t s = 0; s < plan.segments.size(); ++s) {
        EXPECT_EQ(plan.sequence.boundaries[s].before, plan.segments[s].first);
        EXPECT_EQ(plan.sequence.boundaries[s].clock, plan.segments[s].clock);
    }
}

TEST(FollowedPlan, TheGeneratedHeaderIsTheCommittedOne) {
    std::ostringstream committed;
    committed << std::ifstream{KDVFS_SOURCE_DIR "/tests/follow/generated_follow.hpp"}.rdbuf();
    EXPECT_EQ(to_segment_header(planned(), options()), committed.str());
}

TEST(FollowedPlan, TheGeneratedHeaderSaysWhatWasPlanned) {
    const auto table = sample::followed::plan();
    ASSERT_TRUE(table->sequence());
    expect_same(*table->sequence(), planned().sequence);
}

TEST(FollowedPlan, AHeaderOfAnotherVersionIsRefused) {
    SequenceConstants constants{};
    constants.version = planned_sequence_version + 1;
    EXPECT_THROW(to_sequence(constants), Error);
}

TEST(FollowedPlan, AFileSaysWhatWasPlanned) {
    const SegmentPlan plan = planned();
    const std::string text = to_json(plan);
    EXPECT_TRUE(has_sequence(text, "plan.json"));
    expect_same(parse_sequence(text, "plan.json"), plan.sequence);
}

TEST(FollowedPlan, FilesAndHeadersSayWhatIsAskedForInGaps) {
    SegmentPlan plan = planned();
    plan.segments[1].after = Seconds{0.004};
    plan.sequence.boundaries[1].after = std::chrono::milliseconds{4};
    const PlannedSequence read = parse_sequence(to_json(plan), "plan.json");
    EXPECT_EQ(read.boundaries, plan.sequence.boundaries);
    EXPECT_NE(to_segment_header(plan, options()).find("kdvfs::Duration{4000000}}"),
              std::string::npos);
}

TEST(FollowedPlan, AFileSaysWhatIsPromised) {
    const SegmentPlan plan = planned();
    const Plan promise = parse_promise(to_json(plan), "plan.json");
    EXPECT_EQ(promise.gpu, plan.gpu);
    EXPECT_NEAR(promise.energy_pct(), plan.energy_pct(), 1e-9);
    EXPECT_NEAR(promise.time_pct(), plan.time_pct(), 1e-9);
}

TEST(FollowedPlan, AFileIsForOneGpuAndItsClocks) {
    const PlannedSequence sequence = planned().sequence;
    const DeviceInfo device{"Radeon", "simulated", "gfx90a", "", true};
    const SupportedClocks clocks{{{{500}, {900}}, false}, {}};
    EXPECT_TRUE(to_plan_table(sequence, device, clocks)->sequence());
    EXPECT_THROW(to_plan_table(sequence, {"Other", "", "", "", true}, clocks), Error);
    EXPECT_THROW(to_plan_table(sequence, device, {{{{900}}, false}, {}}), Error);
}

TEST(FollowedPlan, FilesThatMakeNoSenseAreRefused) {
    using Json = nlohmann::json;
    const auto refused = [](const char* words, const std::function<void(Json&)>& change) {
        Json json = Json::parse(to_json(planned()));
        change(json);
        try {
            parse_sequence(json.dump(), "plan.json");
            ADD_FAILURE() << "was read: " << words;
        } catch (const Error& error) {
            EXPECT_NE(std::string{error.what()}.find(words), std::string::npos) << error.what();
        }
    };
    refused("version", [](Json& j) { j["sequence"]["version"] = 2; });
    refused("hash", [](Json& j) { j["sequence"]["launches"][0] = 1; });
    refused("hash", [](Json& j) { j["sequence"]["kernels"][0]["kernel"] = "gelu"; });
    refused("kernel", [](Json& j) { j["sequence"]["kernels"][0]["kernel"] = "a\nb"; });
    refused("there twice",
            [](Json& j) { j["sequence"]["kernels"][1] = j["sequence"]["kernels"][0]; });
    refused("names no kernel", [](Json& j) { j["sequence"]["launches"][0] = 7; });
    refused("whole number", [](Json& j) { j["sequence"]["launches"][0] = -1; });
    refused("pair", [](Json& j) { j["sequence"]["runs"][0] = 3; });
    refused("16 million", [](Json& j) { j["sequence"]["runs"][0][0] = 4'000'000'000; });
    refused("empty", [](Json& j) { j["sequence"]["runs"][0][1] = 0; });
    refused("beyond", [](Json& j) { j["segments"][1]["first"] = 57; });
    refused("not behind", [](Json& j) { j["segments"][1]["first"] = 0; });
    refused("segments", [](Json& j) { j["segments"] = Json::array(); });
    refused("sequence", [](Json& j) { j.erase("sequence"); });
    refused("gpu", [](Json& j) { j["gpu"] = "x\n"; });
}

TEST(FollowedPlan, AMillionLaunchesAreCodedAndNoneAreNoPlan) {
    SegmentPlan plan = planned();
    std::vector<std::uint32_t>& launches = plan.sequence.launches;
    launches.clear();
    for (std::uint32_t i = 0; i < 1'000'000; ++i) launches.push_back(i % 1000 % 7 % 2);
    const std::string text = to_json(plan);
    EXPECT_LT(text.size(), launches.size());
    EXPECT_EQ(parse_sequence(text, "plan.json").launches, launches);
    launches.clear();
    EXPECT_FALSE(has_sequence(to_json(plan), "plan.json"));
    EXPECT_THROW(parse_sequence(to_json(plan), "plan.json"), Error);
    EXPECT_THROW(parse_plan(to_json(plan), "plan.json"), Error);
}

TEST(FollowedPlan, NamesThatCouldBecomeCodeAreRejected) {
    SegmentPlan plan = planned();
    plan.sequence.kernels[0].key.name = "a\", 0}}; #error";
    EXPECT_THROW(to_segment_header(plan, options()), Error);
}

}  // namespace
}  // namespace kdvfs::tune
