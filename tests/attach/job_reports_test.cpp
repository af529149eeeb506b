// SPDX-License-Identifier: MIT
// What several processes report of boards that they share, one after the other or at once.
#include <kdvfs/error.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/board_energy.hpp>
#include <tools/cli/metrics.hpp>
#include <tools/cli/report_names.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cli {
namespace {

using nlohmann::json;

json resolved_energy(double joules) {
    return {{"joules", joules}, {"half_width_95", 1.0}, {"status", "resolved"}};
}

/// A process that saw `counter` joules of a board, of which `kernel` are a gemm's.
json process(const std::string& host, const std::string& address, double begin, double end,
             double counter, double kernel) {
    const json row{{"kernel", "gemm"}, {"variant", 1},        {"calls", 10},
                   {"time_s", 2},      {"metered_calls", 10}, {"energy", resolved_energy(kernel)},
                   {"asked", {}},      {"applied", {}},       {"held_core_mhz", 900}};
    const json totals{{"counter_j", counter},
                      {"outside_j", 0},
                      {"kernels", resolved_energy(kernel)},
                      {"idle", resolved_energy(counter - kernel)},
                      {"unexplained_j", 0}};
    const json report{{"device", {{"name", "GPU"}, {"address", address}}},
                      {"totals", totals},
                      {"rows", {row}},
                      {"levels", json::array()}};
    return {{"pid", 1},         {"rank", ""},
            {"ended", true},    {"host", host},
            {"begin_s", begin}, {"end_s", end},
            {"notes", {}},      {"devices", {{{"launches", 10}, {"report", report}}}}};
}

double printed(const std::string& metrics) {
    const std::string name = "\nhw_energy_joules_total{";
    double sum = 0;
    for (std::size_t at = 0; (at = metrics.find(name, at)) != std::string::npos; ++at) {
        sum += std::stod(metrics.substr(metrics.find("} ", at) + 2));
    }
    return sum;
}

TEST(JobReports, CountABoardOnceHoweverManyProcessesSeeIt) {
    // Two hosts with a board of the same address; on the first, two processes at once, then one.
    const std::vector<json> job{
        process("a", "0:1", 0, 10, 700, 300), process("a", "0:1", 2, 9, 500, 200),
        process("a", "0:1", 20, 30, 100, 60), process("b", "0:1", 0, 10, 50, 20)};
    const json merged = merge_attached_reports(job);
    EXPECT_DOUBLE_EQ(merged["totals"]["counter_j"], 700 + 100 + 50);
    EXPECT_DOUBLE_EQ(printed(prometheus_text(job)), 700 + 100 + 50);
    ASSERT_EQ(merged["totals"]["shared_boards"].size(), 1U);
    EXPECT_EQ(merged["totals"]["shared_boards"][0]["host"], "a");
    EXPECT_EQ(merged["rows"][0]["calls"], 40);
    EXPECT_NE(merged["rows"][0]["energy"]["status"], "resolved")
        << "two processes at once: no energy of a kernel is known";
    EXPECT_NE(merged["totals"]["kernels"]["status"], "resolved");
}

TEST(JobReports, HaveNoEnergyOfAKernelThatWasNeverMetered) {
    json job = process("a", "0:1", 0, 10, 700, 0);
    json& row = job["devices"][0]["report"]["rows"][0];
    row["metered_calls"] = 0;
    EXPECT_EQ(merge_attached_reports({job})["rows"][0]["energy"]["status"], "unresolved");
    json later = process("a", "0:1", 10, 20, 500, 200);
    const json both = merge_attached_reports({job, later});
    EXPECT_DOUBLE_EQ(both["rows"][0]["energy"]["joules"], 200) << "of what was metered";
}

TEST(JobReports, AddRunsThatFollowEachOther) {
    const json merged = merge_attached_reports(
        {process("a", "0:1", 0, 10, 700, 300), process("a", "0:1", 10, 20, 500, 200)});
    EXPECT_DOUBLE_EQ(merged["totals"]["counter_j"], 1200);
    EXPECT_DOUBLE_EQ(merged["rows"][0]["energy"]["joules"], 500);
    EXPECT_TRUE(merged["totals"]["shared_boards"].empty());
}

TEST(JobReports, LoseNoFractionWhereANumberIsWhole) {
    std::vector<json> job{process("a", "0:1", 0, 10, 700.75, 300), process("b", "0:1", 0, 10, 0, 0),
                          process("c", "0:1", 0, 10, 20.5, 10)};
    job[1]["devices"][0]["report"]["totals"]["counter_j"] = 500;
    EXPECT_DOUBLE_EQ(merge_attached_reports(job)["totals"]["counter_j"], 700.75 + 500 + 20.5);
    EXPECT_EQ(merge_attached_reports(job)["rows"][0]["calls"], 30);
    EXPECT_TRUE(merge_attached_reports(job)["rows"][0]["calls"].is_number_integer());
}

TEST(JobReports, TakeReportsWithoutTimesForReportsOfOneTime) {
    json first = process("", "0:1", 0, 0, 700, 300);
    json second = process("", "0:1", 0, 0, 500, 200);
    for (json* each : {&first, &second}) {
        each->erase("begin_s");
        each->erase("end_s");
        each->erase("host");
    }
    EXPECT_DOUBLE_EQ(merge_attached_reports({first, second})["totals"]["counter_j"], 700);
}

TEST(JobReports, MayLeaveOpenWhatIsNotKnown) {
    const json places = report_sums::optional_of_reports().flatten();
    json whole = process("a", "0:1", 0, 10, 700, 300);
    whole["notes"] = json::array();
    json& row = whole["devices"][0]["report"]["rows"][0];
    row["asked"] = row["applied"] = json::object();
    json& iterations = whole["devices"][0]["iterations"];
    iterations = {{"count", 1}, {"launches", 1}};
    for (const auto& place : places.items()) whole[json::json_pointer{place.key()}] = place.value();
    iterations["by"] = "period";
    const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                         ("kdvfs_open_reports_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    std::size_t tried = 0;
    for (const auto& place : places.items()) {
        for (json::json_pointer at{place.key()}; !at.empty(); at.pop_back()) {
            const bool is_needed = at.back() == "0" || at.back() == "devices" ||
                                   at.back() == "report" || at.back() == "iterations" ||
                                   at.back() == "totals" || at.back() == "rows";
            if (is_needed) continue;
            SCOPED_TRACE(at.to_string());
            json open = whole;
            open[at] = nullptr;
            std::ofstream{folder / "attached.1.json"} << open;
            const std::vector<json> read = read_attached_reports(folder);
            ASSERT_EQ(read.size(), 1U);
            EXPECT_NO_THROW({
                const json merged = merge_attached_reports(read);
                EXPECT_NE(attached_text(merged, 9), "");
                EXPECT_NE(prometheus_text(read), "");
                EXPECT_EQ(merged["rows"][0]["calls"], 10);
            });
            ++tried;
        }
    }
    EXPECT_GT(tried, places.size());
    std::filesystem::remove_all(folder);
}

TEST(ReportNames, ExpandPlacesOrGetTheRank) {
    const JobPlace place{"node7", "12", "4711", 99};
    EXPECT_EQ(report_name("r.%h.%r.%j.%p.json", place), "r.node7.12.4711.99.json");
    EXPECT_EQ(report_name("out/r.json", place), "out/r.rank12.json");
    EXPECT_EQ(report_name("100%%.json", place), "100%.rank12.json");
    EXPECT_EQ(report_name("-", place), "-");
    const JobPlace alone{"node7", "", "", 99};
    EXPECT_EQ(report_name("out/r.json", alone), "out/r.json");
    EXPECT_EQ(report_name("r.%r.%j.json", alone), "r.0.0.json");
    JobPlace requeued = place;
    requeued.restart = "restart2";
    EXPECT_EQ(report_name("%j.%r.json", requeued), "4711.restart2.12.json");
    EXPECT_EQ(report_name("out/r.json", requeued), "out/r.rank12.restart2.json");
    EXPECT_THROW(static_cast<void>(report_name("r.%x", place)), kdvfs::Error);
    EXPECT_THROW(static_cast<void>(report_name("r.%", place)), kdvfs::Error);
}

}  // namespace
}  // namespace cli
