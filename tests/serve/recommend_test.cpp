// SPDX-License-Identifier: MIT
#include <kdvfs/serve/recommend.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

namespace kdvfs::serve {
namespace {

ConfigurationTable table_of(const std::string& text) {
    std::istringstream file{text};
    return ConfigurationTable{file, "rows.csv"};
}

std::optional<std::size_t> line_of(const ConfigurationTable& table, const Constraint& constraint) {
    const auto row = recommend(table, constraint);
    return row ? std::optional{table.line(*row)} : std::nullopt;
}

TEST(Recommend, LeastEnergyUnderTheTarget) {
    const auto table = table_of(
        "task,model,gpu,gpus,batch,itl_p50_ms,joules_per_token\n"
        "chat,a,H100,1,8,10,5\n"
        "chat,a,H100,1,16,20,3\n"
        "\n"
        "chat,a,B200,1,32,30,2\n"
        "code,a,H100,1,8,1,1\n");
    const auto constraint = [](double ms, std::vector<std::string> gpus) {
        return Constraint{"chat", "a", std::move(gpus), {{"itl_p50_ms", ms}}};
    };
    EXPECT_EQ(line_of(table, constraint(20, {"H100"})), 3U);
    EXPECT_EQ(line_of(table, constraint(19.99, {"H100"})), 2U);
    EXPECT_EQ(line_of(table, constraint(30, {"H100", "B200"})), 5U) << "empty lines count";
    EXPECT_EQ(line_of(table, constraint(9, {"H100"})), std::nullopt);
    EXPECT_EQ(line_of(table, constraint(30, {"MI300X"})), std::nullopt);
    EXPECT_EQ(line_of(table, {"", "", {}, {}}), 6U);
    EXPECT_EQ(line_of(table, {"chat", "a", {}, {{"itl_p50_ms", 30}, {"joules_per_token", 1}}}),
              std::nullopt);
    EXPECT_EQ(line_of(table, {"chat", "a", {}, {}, "itl_p50_ms"}), 2U);
    EXPECT_EQ(frontier(table, constraint(0, {})), (std::vector<std::size_t>{0, 1, 2}));
}

TEST(Recommend, TiesGoToFewerGpusThenSmallerBatchThenTheEarlierLine) {
    const std::string header = "gpus,batch,ms,joules_per_token\n";
    EXPECT_EQ(line_of(table_of(header + "2,8,1,5\n1,16,1,5\n1,8,1,5\n1,8,1,5\n"), {}), 4U);
    EXPECT_EQ(line_of(table_of(header + "2,1,1,5\n1,999,1,5\n"), {}), 3U);
    EXPECT_EQ(line_of(table_of(header + "2,1,1,4.9\n1,1,1,5\n"), {}), 2U);
}

TEST(Recommend, AFieldThatIsNoNumberMeetsNothing) {
    const auto table = table_of("ms,joules_per_token\n,1\nnan,1\n5,\n5,x\n7,9\n");
    EXPECT_EQ(line_of(table, {"", "", {}, {{"ms", 100}}}), 6U);
}

TEST(Recommend, BadInputIsRefused) {
    EXPECT_THROW(table_of(""), Error);
    EXPECT_THROW(table_of("a,b\n1\n"), Error);
    EXPECT_THROW(table_of("ms,joules_per_token,ms\n5,1,99\n"), Error) << "which ms?";
    EXPECT_THROW(table_of("a,b\n1,2"), Error);
    const auto table = table_of("ms,joules_per_token\n5,1\n");
    EXPECT_THROW(recommend(table, {"", "", {}, {{"s", 1}}}), Error);
    EXPECT_THROW(recommend(table, {"", "", {}, {}, "joules"}), Error);
    EXPECT_THROW(recommend(table, {"chat", "", {}, {}}), Error);
    EXPECT_THROW(recommend(table, {"", "", {"H100"}, {}}), Error);
    EXPECT_THROW(frontier(table, {}), Error);
}

/// Every (task, model), random targets on random columns, by a search that shares no code.
TEST(Recommend, MlEnergyRowsAsByBruteForce) {
    const auto path =
        std::filesystem::path{KDVFS_SOURCE_DIR} / "../shared/data/mlenergy/llm_v3.csv";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "shared/data/mlenergy is absent";
    std::ifstream input{path};
    const ConfigurationTable table{input, path.string()};
    ASSERT_EQ(table.size(), 838U);
    std::ifstream file{path};
    std::vector<std::map<std::string, std::string>> rows;
    std::vector<std::string> names;
    for (std::string line; std::getline(file, line);) {
        std::vector<std::string> fields;
        std::istringstream parts{line};
        for (std::string field; std::getline(parts, field, ',');) fields.push_back(field);
        if (names.empty()) {
            names = fields;
            continue;
        }
        rows.emplace_back();
        for (std::size_t c = 0; c < names.size(); ++c) rows.back()[names[c]] = fields[c];
    }
    const auto number = [&](std::size_t row, const std::string& column) {
        return std::stod(rows[row].at(column));
    };
    std::mt19937_64 random{1};
    const std::vector<std::string> latencies{"itl_p50_ms", "itl_p90_ms", "itl_p99_ms"};
    const std::vector<std::string> energies{"joules_per_token", "joules_per_request", "watts"};
    const std::vector<std::vector<std::string>> gpu_lists{{"H100"}, {"B200"}, {"H100", "B200"}, {}};
    int found = 0, missed = 0;
    double seconds = 0;
    for (int round = 0; round < 5000; ++round) {
        const std::size_t like = random() % rows.size();
        Constraint constraint{rows[like]["task"], rows[like]["model"], gpu_lists[random() % 4], {}};
        constraint.energy = energies[random() % 3];
        const std::string latency = latencies[random() % 3];
        // Targets on a row's very value and anywhere near.
        const double factor =
            random() % 3 == 0 ? 1 : 0.5 + static_cast<double>(random() % 1000) / 500;
        constraint.bounds = {{latency, number(like, latency) * factor}};
        if (random() % 4 == 0)
            constraint.bounds.push_back({"joules_per_token", number(like, "joules_per_token")});
        std::optional<std::size_t> best;
        for (std::size_t row = 0; row < rows.size(); ++row) {
            if (rows[row]["task"] != constraint.task || rows[row]["model"] != constraint.model)
                continue;
            const std::set<std::string> gpus{constraint.gpus.begin(), constraint.gpus.end()};
            if (!gpus.empty() && !gpus.count(rows[row]["gpu"])) continue;
            bool kept = true;
            for (const Bound& bound : constraint.bounds)
                kept = kept && number(row, bound.column) <= bound.at_most;
            if (!kept) continue;
            const auto rank = [&](std::size_t r) {
                return std::tuple{number(r, constraint.energy), number(r, "gpus"),
                                  number(r, "batch"), r};
            };
            if (!best || rank(row) < rank(*best)) best = row;
        }
        const std::clock_t begin = std::clock();
        const auto chosen = recommend(table, constraint);
        seconds += static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
        ASSERT_EQ(chosen, best) << round;
        ASSERT_TRUE(!best || table.line(*chosen) == *best + 2);
        (best ? found : missed) += 1;
    }
    std::cout << "us a query: " << seconds / 5000 * 1e6 << "; " << found << " found, " << missed
              << " not\n";
    EXPECT_GT(found, 500);
    EXPECT_GT(missed, 500);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(seconds / 5000, 20e-6);
#endif
}

}  // namespace
}  // namespace kdvfs::serve
