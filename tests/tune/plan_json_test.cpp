// SPDX-License-Identifier: MIT
#include <kdvfs/tune/plan_file.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace kdvfs::tune {
namespace {

CostTable table() {
    Profile profile{"Radeon (simulated)"};
    const auto add = [&](const char* name, std::uint32_t index, ClockPoint clock, double t,
                         double e) {
        profile.add({{name, variant(index)}, clock, {Seconds{t}, Joules{e}}, "fw", 3});
    };
    add("gemm", 0, {}, 1.0 / 3, 10);
    add("gemm", 0, {{900}, {5001}}, 1.0 / 3, 7);
    add("gemm", 2, {}, 1, 10);
    add("gemm", 2, {{800}, auto_clock}, 0.9, 9);
    return mean_costs(profile);
}

TEST(PlanJson, WhatIsWrittenReadsBackTheSame) {
    for (const Objective& objective : {relaxed_waste(0.01), energy_delay()}) {
        const Plans plans = make_plans(table(), objective);
        for (const Aggregate aggregate : all_aggregates) {
            EXPECT_EQ(parse_plan(to_json(plans, aggregate), "plan.json"), plans[aggregate]);
            EXPECT_EQ(parse_plan(to_json(plans[aggregate]), "plan.json"), plans[aggregate]);
        }
    }
}

TEST(PlanJson, HasTheFieldsThatToolsGoBy) {
    const auto json =
        nlohmann::json::parse(to_json(make_plans(table(), relaxed_waste(0.01)), Aggregate::global));
    for (const char* field : {"gpu", "objective", "max_slowdown_pct", "baseline", "plan", "single",
                              "per_group", "local", "global", "kernels"})
        EXPECT_TRUE(json.contains(field)) << field;
    for (const char* field :
         {"aggregate", "time_s", "energy_j", "time_pct", "energy_pct", "gap_pct"})
        EXPECT_TRUE(json["plan"].contains(field)) << field;
    EXPECT_EQ(json["max_slowdown_pct"], 1.0);
    EXPECT_EQ(json["plan"]["aggregate"], "global");
    EXPECT_EQ(json["kernels"][0]["core_mhz"], 900);
    EXPECT_EQ(json["kernels"][1]["mem_mhz"], -1);
    EXPECT_EQ(json["kernels"][1]["variant"], 2);
    EXPECT_NEAR(json["kernels"][0]["energy_pct"].get<double>(), -30, 1e-12);
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    const std::size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

TEST(PlanJson, HostileFilesAreRejectedByName) {
    const std::string sound = to_json(make_plan(table(), strict_waste(), Aggregate::global));
    ASSERT_NO_THROW(parse_plan(sound, "plan.json"));
    const auto words_for = [](const std::string& text) -> std::string {
        try {
            parse_plan(text, "plan.json");
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::invalid_input);
            return error.what();
        }
        return "accepted";
    };
    const auto rejected = [&](const std::string& what, const std::string& by,
                              const std::string& words) {
        const std::string said = words_for(replaced(sound, what, by));
        EXPECT_NE(said.find("plan.json"), std::string::npos) << what << ": " << said;
        EXPECT_NE(said.find(words), std::string::npos) << what << ": " << said;
    };
    rejected("\"gemm\"", "\"a\\\\b\"", "kernels[0].kernel");
    rejected("\"gemm\"", "7", "kernels[0].kernel");
    rejected("\"variant\": 2", "\"variant\": 0", "twice");
    rejected("\"variant\": 2", "\"variant\": -2", "variant");
    rejected("\"variant\": 2", "\"variant\": 5000000000", "variant");
    rejected("\"core_mhz\": 900", "\"core_mhz\": 0", "core_mhz");
    rejected("\"core_mhz\": 900", "\"core_mhz\": 900.5", "core_mhz");
    rejected("\"core_mhz\": 900", "\"core_mhz\": 1e300", "core_mhz");
    rejected("\"core_mhz\": 900", "\"core_mhz\": \"900\"", "core_mhz");
    rejected("\"count\": 3", "\"count\": 0", "count");
    rejected("\"energy_j\": 7", "\"energy_j\": -7", "energy_j");
    rejected("\"gap_pct\": 0.0", "\"gap_pct\": -1", "gap_pct");
    rejected("\"aggregate\": \"global\"", "\"aggregate\": \"none\"", "aggregate");
    rejected("\"gpu\": ", "\"gpu\": \"x\", \"gpu\": ", "twice");
    rejected("Radeon", "Rade\\non", "gpu");
    rejected("\"kernels\": [", "\"kernels\": [[", "");
    EXPECT_NE(words_for("{\n\n  \"gpu\": }").find("plan.json:3"), std::string::npos);
    EXPECT_NE(words_for("").find("plan.json:1"), std::string::npos);
    EXPECT_NE(words_for(std::string(100'000, '[')).find("plan.json"), std::string::npos);
    EXPECT_NE(words_for("[]").find("no object"), std::string::npos);
    EXPECT_NE(words_for(sound.substr(0, sound.size() / 2)).find("plan.json:"), std::string::npos);
    EXPECT_NE(words_for("{\"gpu\": \"\xff\"}").find("plan.json"), std::string::npos);
}

}  // namespace
}  // namespace kdvfs::tune
