// SPDX-License-Identifier: MIT
#include <tools/cli/metrics.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace cli {
namespace {

using nlohmann::json;

json energy(double joules) {
    return {{"joules", joules}, {"half_width_95", 0.5}, {"status", "resolved"}};
}
json row(const std::string& kernel, double seconds, const json& its) {
    return {{"kernel", kernel},    {"variant", 8},      {"calls", 40},
            {"metered_calls", 20}, {"time_s", seconds}, {"energy", its}};
}
json process_with(json rows) {
    return {{"devices",
             {{{"report",
                {{"device", {{"name", "A \"GPU\""}, {"address", "0000:1b:00.0"}}},
                 {"totals", {{"counter_j", 100.5}, {"outside_j", 20.25}}},
                 {"rows", std::move(rows)}}}}}}};
}
std::size_t count(const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
    return found;
}

TEST(Metrics, AreKernelsByNameAndTheBoardsJoules) {
    const json unresolved{
        {"joules", nullptr}, {"half_width_95", nullptr}, {"status", "too_short_to_tell"}};
    const std::string text = prometheus_text(
        {process_with({row("gemm", 2, energy(8)), row("f<\"a\\b\">", 1, unresolved)})});
    for (const char* line :
         {"kdvfs_processes 1\n", "# TYPE hw_energy_joules_total counter\n",
          "hw_energy_joules_total{hw_id=\"0000:1b:00.0\",hw_type=\"gpu\",hw_name=\"A "
          "\\\"GPU\\\"\"} "
          "120.75\n",
          "kdvfs_kernel_energy_joules{hw_id=\"0000:1b:00.0\",kernel=\"gemm\",variant=\"8\"} 8\n",
          "kdvfs_kernel_energy_half_width_joules{hw_id=\"0000:1b:00.0\",kernel=\"gemm\","
          "variant=\"8\"} 0.5\n",
          "kdvfs_kernel_seconds_total{hw_id=\"0000:1b:00.0\",kernel=\"f<\\\"a\\\\b\\\">\","
          "variant=\"8\"} 1\n",
          "kdvfs_kernel_launches_total{hw_id=\"0000:1b:00.0\",kernel=\"gemm\",variant=\"8\"} "
          "40\n"}) {
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
    }
    // No number where there is none.
    EXPECT_EQ(count(text, "kdvfs_kernel_energy_joules{"), 1U) << text;
}

TEST(Metrics, AreRangesBesideKernels) {
    json process = process_with({row("gemm", 2, energy(8))});
    process["devices"][0]["report"]["levels"] = {{{"level", "iteration"},
                                                  {"kernel", nullptr},
                                                  {"runs", 9},
                                                  {"time_s", 3},
                                                  {"energy", energy(9)}},
                                                 {{"level", "scope"},
                                                  {"kernel", "step/mlp"},
                                                  {"runs", 10},
                                                  {"time_s", 1.5},
                                                  {"energy", energy(6)}}};
    const std::string text = prometheus_text({process, process});
    for (const char* line :
         {"kdvfs_range_energy_joules{hw_id=\"0000:1b:00.0\",range=\"step/mlp\"} 12\n",
          "kdvfs_range_seconds_total{hw_id=\"0000:1b:00.0\",range=\"step/mlp\"} 3\n",
          "kdvfs_range_runs_total{hw_id=\"0000:1b:00.0\",range=\"step/mlp\"} 20\n"}) {
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
    }
    EXPECT_EQ(count(text, "kdvfs_range_runs_total{"), 1U) << "the iteration is none";
}

TEST(Metrics, AreBoundedInNumberAndLoseNothing) {
    json rows = json::array();
    for (int i = 0; i < 200; ++i) rows.push_back(row("k" + std::to_string(i), 1, energy(2)));
    const std::string text = prometheus_text({process_with(rows), process_with(rows)});
    EXPECT_EQ(count(text, "kdvfs_kernel_seconds_total{"), 65U);
    EXPECT_NE(text.find("kernel=\"(others)\",variant=\"0\"} 272\n"), std::string::npos) << text;
    EXPECT_NE(text.find("kdvfs_processes 2\n"), std::string::npos);
    EXPECT_EQ(count(text, "# TYPE "), 6U);
    EXPECT_EQ(prometheus_text({}),
              "# HELP kdvfs_processes Processes that have reported.\n"
              "# TYPE kdvfs_processes gauge\nkdvfs_processes 0\n");
}

}  // namespace
}  // namespace cli
