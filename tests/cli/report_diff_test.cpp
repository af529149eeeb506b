// SPDX-License-Identifier: MIT
#include <kdvfs/error.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/report_diff.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace kdvfs;
using namespace kdvfs::measure;
using cli::DiffVerdict;

ReportRow row(const char* name, double seconds, double joules, double half_width) {
    ReportRow made;
    made.kernel = {name, {}};
    made.calls = made.metered_calls = 1000;
    made.time = made.counted_time = Seconds{1000 * seconds};
    made.call_time_half_width = Seconds{seconds * 1e-3};
    made.energy = {{1000 * joules}, {1000 * half_width}, true};
    return made;
}

nlohmann::json json_of(const Report& report) {
    std::stringstream text;
    write_json(text, report);
    return nlohmann::json::parse(text.str());
}

cli::ReportDiff diff(const Report& before, const Report& after, double tolerance = 0) {
    return cli::diff_reports(cli::diff_items(json_of(before), "before"),
                             cli::diff_items(json_of(after), "after"), tolerance);
}

const cli::DiffLine& line(const cli::ReportDiff& diff, const std::string& name) {
    return *std::find_if(diff.lines.begin(), diff.lines.end(),
                         [&](const cli::DiffLine& each) { return each.name == name; });
}

TEST(ReportDiff, TheSameReportIsNoWorse) {
    Report report;
    report.rows = {row("gelu", 1e-3, 0.5, 0.01), row("softmax", 2e-3, 0.8, 0.02)};
    const cli::ReportDiff found = diff(report, report);
    EXPECT_EQ(found.verdict(), DiffVerdict::no_worse);
    EXPECT_DOUBLE_EQ(line(found, "gelu").energy->share, 0);
    EXPECT_EQ(diff(report, report, 0.01).verdict(), DiffVerdict::undecided);
    EXPECT_EQ(diff(report, report, 0.10).verdict(), DiffVerdict::no_worse);
}

TEST(ReportDiff, SlowerAndDearerAreToldApart) {
    Report before;
    before.rows = {row("gelu", 1e-3, 0.5, 0.005), row("softmax", 2e-3, 0.8, 0.008)};
    Report after = before;
    after.rows[0] = row("gelu", 1.1e-3, 0.5, 0.005);
    after.rows[1] = row("softmax", 2e-3, 0.9, 0.009);
    const cli::ReportDiff found = diff(before, after);
    EXPECT_TRUE(line(found, "gelu").time->more_than(0));
    EXPECT_FALSE(line(found, "gelu").energy->more_than(0));
    EXPECT_FALSE(line(found, "softmax").time->more_than(0));
    EXPECT_TRUE(line(found, "softmax").energy->more_than(0));
    EXPECT_EQ(found.verdict(), DiffVerdict::worse);
    EXPECT_EQ(diff(after, before).verdict(), DiffVerdict::no_worse);
    const std::string text = cli::to_text(found);
    EXPECT_NE(text.find("slower"), std::string::npos);
    EXPECT_NE(text.find("1 dearer, 1 slower, 0 new, 0 gone: worse"), std::string::npos) << text;
}

/// Its time beside another kernel counts half: a sixth less energy is not two thirds more.
TEST(ReportDiff, KernelsThatNowRunBesideOthersAreNoDearer) {
    Report before;
    before.rows = {row("gemm", 1e-3, 0.5, 0.005)};
    Report after;
    after.rows = {row("gemm", 1.7e-3, 0.42, 0.005)};
    after.rows[0].counted_time = after.rows[0].time / 2;
    const cli::ReportDiff found = diff(before, after);
    EXPECT_FALSE(line(found, "gemm").energy->more_than(0));
    after.rows[0].counted_time = after.rows[0].time;
    EXPECT_LT(line(diff(before, after), "gemm").energy->share, -0.1);
}

TEST(ReportDiff, KernelsComeAndGo) {
    Report before;
    before.rows = {row("gelu", 1e-3, 0.5, 0.005), row("bias", 1e-3, 0.4, 0.005),
                   row("dropout", 1e-3, 0.4, 0.005)};
    Report after;
    after.rows = {row("gelu", 1e-3, 0.5, 0.005), row("bias_dropout", 1.5e-3, 0.6, 0.005)};
    const cli::ReportDiff found = diff(before, after);
    EXPECT_FALSE(line(found, "bias").after);
    EXPECT_FALSE(line(found, "bias_dropout").before);
    EXPECT_NE(cli::to_text(found).find("1 new, 2 gone"), std::string::npos);
}

/// A kernel in place of two that were called as often is compared with their sum.
TEST(ReportDiff, FusedKernelsAreComparedWithTheirSum) {
    Report before;
    before.rows = {row("gelu", 1e-3, 0.5, 0.005), row("bias", 1e-3, 0.4, 0.005),
                   row("dropout", 1e-3, 0.4, 0.005), row("rare", 1e-3, 0.4, 0.005)};
    before.rows[3].calls = 10;
    Report after;
    after.rows = {row("gelu", 1e-3, 0.5, 0.005), row("bias_dropout", 1.5e-3, 0.9, 0.005)};
    const cli::ReportDiff found = diff(before, after);
    const cli::DiffLine& fused = line(found, "bias_dropout");
    EXPECT_EQ(fused.replaces, (std::vector<std::string>{"bias", "dropout"}));
    EXPECT_NEAR(fused.time->share, -0.25, 1e-9);
    EXPECT_NEAR(fused.energy->share, 0.125, 1e-9);
    EXPECT_EQ(found.verdict(), DiffVerdict::worse);
    EXPECT_NE(cli::to_text(found).find("in place of bias, dropout"), std::string::npos);
    after.rows.push_back(row("other", 1e-3, 0.4, 0.005));  // either may be the one
    EXPECT_TRUE(line(diff(before, after), "bias_dropout").replaces.empty());
}

TEST(ReportDiff, ManyIntervalsAreWiderThanOne) {
    Report few;
    few.rows = {row("gelu", 1e-3, 0.5, 0.01)};
    Report many = few;
    for (int i = 0; i < 40; ++i) {
        many.rows.push_back(row(("other" + std::to_string(i)).c_str(), 1e-3, 0.5, 0.01));
    }
    EXPECT_GT(line(diff(many, many), "gelu").energy->half_width,
              1.3 * line(diff(few, few), "gelu").energy->half_width);
}

TEST(ReportDiff, WhatIsUnresolvedIsNotCompared) {
    Report before;
    before.rows = {row("gelu", 1e-3, 0.5, 0.01)};
    Report after = before;
    after.rows[0].energy = {};
    const cli::ReportDiff found = diff(before, after);
    EXPECT_FALSE(line(found, "gelu").energy);
    EXPECT_TRUE(line(found, "gelu").time);
    after.rows[0].call_time_half_width = Seconds{0};
    EXPECT_EQ(diff(before, after).verdict(), DiffVerdict::undecided);
}

/// What `kdvfs run` and `kdvfs merge` write, of processes that had a board of their own each.
nlohmann::json merged(const std::vector<Report>& reports) {
    std::vector<nlohmann::json> processes;
    for (const Report& report : reports) {
        nlohmann::json device{{"report", json_of(report)}};
        device["report"]["device"]["address"] = std::to_string(processes.size());
        processes.push_back({{"pid", 1}, {"devices", {device}}});
    }
    return cli::merge_attached_reports(processes);
}

TEST(ReportDiff, ComparesMergedReports) {
    Report before;
    before.rows = {row("gelu", 1e-3, 0.5, 0.005)};
    before.levels.resize(1);
    before.levels[0].iteration = true;
    before.levels[0].runs = 100;
    before.levels[0].time = Seconds{1};
    before.levels[0].run_time_half_width = Seconds{1e-5};
    before.levels[0].energy = {{500}, {2}, true};
    Report after = before;
    after.rows[0] = row("gelu", 1.1e-3, 0.6, 0.005);
    const auto diff_of = [](const std::vector<Report>& one, const std::vector<Report>& other) {
        return cli::diff_reports(cli::diff_items(merged(one), "before"),
                                 cli::diff_items(merged(other), "after"), 0);
    };
    const cli::ReportDiff found = diff_of({before}, {after});
    EXPECT_EQ(found.verdict(), DiffVerdict::worse);
    ASSERT_TRUE(line(found, "gelu").time && line(found, "gelu").energy);
    const cli::DiffLine alone = line(diff(before, after), "gelu");
    EXPECT_DOUBLE_EQ(line(found, "gelu").time->half_width, alone.time->half_width);
    EXPECT_DOUBLE_EQ(line(found, "gelu").energy->half_width, alone.energy->half_width);
    EXPECT_EQ(diff_of({before}, {before}).verdict(), DiffVerdict::no_worse);
    EXPECT_TRUE(line(found, "iteration").time);

    // Of two processes: the mean over their calls, of which one has three times as many.
    Report longer = before;
    longer.rows[0].calls = longer.rows[0].metered_calls = 3000;
    longer.rows[0].time = longer.rows[0].counted_time = Seconds{3};
    longer.rows[0].call_time_half_width = Seconds{2e-6};
    const nlohmann::json both = merged({before, longer});
    EXPECT_NEAR(both["rows"][0]["call_time_half_width_s"].get<double>(),
                std::hypot(1000 * 1e-6, 3000 * 2e-6) / 4000, 1e-15);
    longer.rows[0].call_time_half_width = Seconds{0};
    EXPECT_TRUE(merged({before, longer})["rows"][0]["call_time_half_width_s"].is_null());
}

TEST(ReportDiff, RefusesWhatIsNoReportOrIsOfALaterVersion) {
    EXPECT_EQ(json_of(Report{}).at("version"), 1);
    for (const char* text : {"[]", "{}", "null", R"({"rows": 1, "totals": {}})",
                             R"({"version": 2, "rows": [], "totals": {}})"}) {
        EXPECT_THROW(static_cast<void>(cli::diff_items(nlohmann::json::parse(text), "x.json")),
                     Error)
            << text;
    }
}

}  // namespace
