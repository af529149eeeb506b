// SPDX-License-Identifier: MIT
#include <kdvfs/error.hpp>
#include <tools/cli/metrics.hpp>
#include <tools/cli/report_names.hpp>

#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
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
    const json report{{"device", {{"name", "A \"GPU\""}, {"address", "0000:1b:00.0"}}},
                      {"totals", {{"counter_j", 100.5}, {"outside_j", 20.25}}},
                      {"rows", std::move(rows)}};
    return {{"devices", json::array({{{"report", report}}})}};
}
json from(double begin, json process, double seconds = 1) {
    process["begin_s"] = begin;
    process["end_s"] = begin + seconds;
    return process;
}
std::size_t count(const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
    return found;
}

TEST(Metrics, AreKernelsByNameAndTheBoardsJoules) {
    const json unresolved{
        {"joules", nullptr}, {"half_width_95", nullptr}, {"status", "unresolved"}};
    const std::string text = prometheus_text({process_with(
        json::array({row("gemm", 2, energy(8)), row("f<\"a\\b\">", 1, unresolved)}))});
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
    json process = process_with(json::array({row("gemm", 2, energy(8))}));
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
    const std::string text = prometheus_text({from(0, process), from(1, process)});
    for (const char* line :
         {"kdvfs_range_energy_joules{hw_id=\"0000:1b:00.0\",range=\"step/mlp\"} 12\n",
          "kdvfs_range_seconds_total{hw_id=\"0000:1b:00.0\",range=\"step/mlp\"} 3\n",
          "kdvfs_range_runs_total{hw_id=\"0000:1b:00.0\",range=\"step/mlp\"} 20\n"}) {
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
    }
    EXPECT_EQ(count(text, "kdvfs_range_runs_total{"), 1U) << "the iteration is none";
}

TEST(Metrics, HaveNoEnergyThatIsNotKnown) {
    // Two processes on one board at once: the text report says "unresolved", too.
    json process = process_with(json::array({row("gemm", 2, energy(8))}));
    process["devices"][0]["report"]["levels"] = {{{"level", "scope"},
                                                  {"kernel", "step/mlp"},
                                                  {"runs", 10},
                                                  {"time_s", 1.5},
                                                  {"energy", energy(6)}}};
    const std::string text = prometheus_text({from(0, process), from(0.5, process)});
    EXPECT_EQ(count(text, "_energy_joules{"), 0U) << text;
    EXPECT_NE(text.find("kernel=\"gemm\",variant=\"8\"} 4\n"), std::string::npos) << text;
    // A kernel of which no launch was metered.
    json unmetered = row("gemm", 0, energy(0));
    unmetered["metered_calls"] = 0;
    const std::string none = prometheus_text({process_with(json::array({unmetered}))});
    EXPECT_EQ(count(none, "_energy_joules{"), 0U) << none;
    EXPECT_EQ(count(none, "kdvfs_kernel_launches_total{"), 1U) << none;
}

TEST(Metrics, HaveWhatWasSavedByAllProcessesOfABoard) {
    json process = process_with(json::array({row("gemm", 2, energy(8))}));
    process["devices"][0]["saving"] = {
        {"saved_j", 500}, {"saved_low_j", 470}, {"saved_high_j", 560}, {"lost_s", 1.5}};
    const json other = process_with(json::array({row("gemm", 2, energy(8))}));
    const std::string text = prometheus_text({from(0, process), from(1, process), from(2, other)});
    for (const char* line : {"kdvfs_saved_joules{hw_id=\"0000:1b:00.0\"} 1000\n",
                             "kdvfs_saved_low_joules{hw_id=\"0000:1b:00.0\"} 957.573593\n",
                             "kdvfs_saved_high_joules{hw_id=\"0000:1b:00.0\"} 1084.85281\n",
                             "kdvfs_lost_seconds{hw_id=\"0000:1b:00.0\"} 3\n"})
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

/// A process that has saved so much on the board.
json saver(double saved) {
    json process = process_with(json::array({row("gemm", 2, energy(8))}));
    process["devices"][0]["saving"] = {{"saved_j", saved},
                                       {"saved_low_j", 0.94 * saved},
                                       {"saved_high_j", 1.12 * saved},
                                       {"lost_s", 1.5}};
    return process;
}
/// The value of a metric of the board.
double value_of(const std::string& name, const std::vector<json>& processes) {
    const std::string text = prometheus_text(processes);
    const std::string line = '\n' + name + "{hw_id=\"0000:1b:00.0\"} ";
    const auto at = text.find(line);
    EXPECT_NE(at, std::string::npos) << line << text;
    return at == std::string::npos ? -1 : std::stod(text.substr(at + line.size()));
}

TEST(Metrics, HaveWhatWasSavedOnASharedBoardOnce) {
    json other = process_with(json::array({row("gemm", 2, energy(8))}));
    other["devices"][0]["report"]["totals"]["counter_j"] = 200;  // it does not tune itself
    const std::vector<json> all{from(0, saver(500), 4), from(1, saver(500), 2), from(0.7, other),
                                from(5, saver(500)), from(5, saver(500))};
    EXPECT_DOUBLE_EQ(value_of("kdvfs_saved_joules", all), 1000);
    EXPECT_DOUBLE_EQ(value_of("kdvfs_saved_low_joules", all), 957.573593);
    EXPECT_DOUBLE_EQ(value_of("kdvfs_lost_seconds", all), 6);
    json elsewhere = saver(500);
    elsewhere["host"] = "another";
    EXPECT_DOUBLE_EQ(value_of("kdvfs_saved_joules", {from(0, saver(500)), from(0, elsewhere)}),
                     1000);
    // Reports of older versions have no times: they may have been there at the same time.
    EXPECT_DOUBLE_EQ(value_of("kdvfs_saved_joules", {saver(500), saver(500)}), 500);
    EXPECT_DOUBLE_EQ(value_of("kdvfs_saved_joules", {from(-1, saver(500), 2), saver(500)}), 1000);
}

/// A restart that overlaps its predecessor, as it goes on.
TEST(Metrics, HaveASavingThatGrowsAsARestartGoesOn) {
    const json first = from(0, saver(5000), 1000);
    double before = value_of("kdvfs_saved_joules", {first});
    EXPECT_DOUBLE_EQ(before, 5000);
    for (double seconds = 1; seconds <= 1500; seconds += 7) {
        json next = from(990, saver(5 * seconds), seconds);
        next["devices"][0]["report"]["totals"]["counter_j"] = seconds;  // more than the first's
        const double saved = value_of("kdvfs_saved_joules", {next, first});
        EXPECT_GE(saved, before) << seconds;
        EXPECT_NEAR(saved, 5000 + 5 * std::max(seconds - 10, 0.0), 1e-3);
        before = saved;
    }
    const std::vector<json> chain{from(0, saver(5000), 1000), from(990, saver(5000), 1000),
                                  from(1980, saver(5000), 1000), from(2970, saver(5000), 1000)};
    EXPECT_DOUBLE_EQ(value_of("kdvfs_saved_joules", chain), 5000 + 3 * 0.99 * 5000);
}

TEST(Metrics, AreBoundedInNumberAndLoseNothing) {
    json rows = json::array();
    for (int i = 0; i < 200; ++i) rows.push_back(row("k" + std::to_string(i), 1, energy(2)));
    const std::string text =
        prometheus_text({from(0, process_with(rows)), from(1, process_with(rows))});
    EXPECT_EQ(count(text, "kdvfs_kernel_seconds_total{"), 65U);
    EXPECT_NE(text.find("kernel=\"(others)\",variant=\"0\"} 272\n"), std::string::npos) << text;
    EXPECT_NE(text.find("kdvfs_processes 2\n"), std::string::npos);
    EXPECT_EQ(count(text, "# TYPE "), 6U);
    EXPECT_EQ(prometheus_text({}),
              "# HELP kdvfs_processes Processes that have reported.\n"
              "# TYPE kdvfs_processes gauge\nkdvfs_processes 0\n");
}

TEST(Metrics, HaveTheLabelsOfTheJobOnEveryLine) {
    const JobPlace place{.host = "node7", .rank = "3", .job = "812", .process = 1, .step = "0"};
    const std::string text =
        prometheus_text({process_with(json::array({row("gemm", 2, energy(8))}))}, place.labels());
    const std::string labels = "Hostname=\"node7\",jobid=\"812\",jobstep=\"0\",rank=\"3\"} ";
    EXPECT_NE(text.find("kdvfs_processes{" + labels + "1\n"), std::string::npos) << text;
    EXPECT_EQ(count(text, labels), count(text, "\n") - count(text, "# "));
}

TEST(Metrics, FileIsThereWhileItIsWrittenAndGoneAfter) {
    std::string name = (std::filesystem::temp_directory_path() / "metrics_XXXXXX").string();
    const std::filesystem::path folder = ::mkdtemp(name.data());
    {
        const MetricsFile file{folder / "kdvfs.prom", folder, {{"jobid", "812"}}};
        std::ifstream text{folder / "kdvfs.prom"};
        std::string all{std::istreambuf_iterator<char>{text}, {}};
        EXPECT_NE(all.find("kdvfs_processes{jobid=\"812\"} 0\n"), std::string::npos) << all;
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    EXPECT_THROW((MetricsFile{folder / "kdvfs.txt", folder, {}}), kdvfs::Error);
    EXPECT_THROW((MetricsFile{folder / "none" / "kdvfs.prom", folder, {}}), kdvfs::Error);
    std::filesystem::remove_all(folder);
}

/// Grafana's dashboard model, as far as it is used, and what its queries name.
TEST(Metrics, AreWhatTheDashboardAsksFor) {
    std::ifstream file{DASHBOARD};
    const json dashboard = json::parse(file, nullptr, false);
    ASSERT_TRUE(dashboard.is_object()) << DASHBOARD;
    for (const char* key : {"title", "uid"}) EXPECT_TRUE(dashboard.at(key).is_string()) << key;
    EXPECT_TRUE(dashboard.at("schemaVersion").is_number_integer());
    json range{{"level", "scope"}, {"kernel", "step"}, {"runs", 3}, {"time_s", 1.5}};
    range["energy"] = energy(5);
    json process = process_with(json::array({row("gemm", 2, energy(8))}));
    process["devices"][0]["report"]["levels"] = json::array({range});
    const JobPlace place{.host = "node7", .rank = "3", .job = "812", .process = 1, .step = "0"};
    const std::string text = prometheus_text({process}, place.labels());
    std::set<std::string> known;
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with('#')) known.insert(line.substr(0, line.find('{')));
    }
    std::set<std::string> labels{"hw_id",    "hw_name", "kernel",  "variant", "range",
                                 "Hostname", "jobid",   "jobstep", "rank"};
    for (const std::string& label : labels) {
        EXPECT_NE(text.find(label + "=\""), std::string::npos) << label;
    }
    std::set<int> ids;
    std::set<std::string> asked;
    const std::regex metric{"(?:kdvfs|hw)_[a-z_]+"};
    const auto check = [&](const std::string& query) {
        for (std::sregex_iterator at{query.begin(), query.end(), metric}, end; at != end; ++at) {
            const std::string name = at->str();
            if (labels.contains(name)) continue;
            EXPECT_TRUE(known.contains(name)) << name << " in " << query;
            asked.insert(name);
        }
        const std::regex by{R"(by \(([^)]*)\))"};
        for (std::sregex_iterator at{query.begin(), query.end(), by}, end; at != end; ++at) {
            std::istringstream words{(*at)[1].str()};
            for (std::string word; std::getline(words, word, ',');) {
                word.erase(0, word.find_first_not_of(' '));
                EXPECT_TRUE(labels.contains(word)) << word << " in " << query;
            }
        }
    };
    for (const json& panel : dashboard.at("panels")) {
        EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second) << panel.at("id");
        EXPECT_TRUE(panel.at("title").is_string());
        const std::string type = panel.at("type").get<std::string>();
        EXPECT_TRUE(type == "timeseries" || type == "table" || type == "stat") << type;
        const json& place_of = panel.at("gridPos");
        EXPECT_LE(place_of.at("x").get<int>() + place_of.at("w").get<int>(), 24);
        EXPECT_GT(place_of.at("h").get<int>(), 0);
        EXPECT_EQ(panel.at("datasource").at("type"), "prometheus");
        ASSERT_FALSE(panel.at("targets").empty());
        std::set<std::string> references;
        for (const json& target : panel.at("targets")) {
            EXPECT_TRUE(references.insert(target.at("refId").get<std::string>()).second);
            check(target.at("expr").get<std::string>());
        }
    }
    for (const json& variable : dashboard.at("templating").at("list")) {
        EXPECT_TRUE(variable.at("name").is_string());
        if (variable.at("type") == "query") check(variable.at("query").get<std::string>());
    }
    EXPECT_EQ(asked, known) << "every metric has a place";
}

}  // namespace
}  // namespace cli
