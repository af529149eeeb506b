// SPDX-License-Identifier: MIT
#include <examples/gpt3_iteration/clock_points.hpp>
#include <examples/gpt3_iteration/iteration.hpp>
#include <examples/gpt3_iteration/published_passes.hpp>
#include <examples/gpt3_iteration/published_table.hpp>
#include <kdvfs/kernel.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using kdvfs::auto_clock;
using kdvfs::ClockPoint;

TEST(PublishedTable, HasUniqueKernelNames) {
    std::set<std::string_view> names;
    for (const auto& kernel : gpt3::published_table) {
        EXPECT_TRUE(kdvfs::is_kernel_name(kernel.name)) << kernel.name;
        EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    }
}

TEST(PublishedTable, IsLaunchedAsOftenAsItSays) {
    std::array<int, gpt3::kernel_count> launches{};
    for (const std::size_t entry : gpt3::launch_sequence()) ++launches[entry];
    int total = 0;
    for (std::size_t k = 0; k < gpt3::kernel_count; ++k) {
        EXPECT_EQ(launches[k], gpt3::published_table[k].repeats) << k;
        total += launches[k];
    }
    EXPECT_EQ(total, 897);
}

TEST(PublishedTable, LaunchesLayerByLayer) {
    constexpr auto sequence = gpt3::launch_sequence();
    EXPECT_EQ(sequence[0], 0U);
    EXPECT_EQ(sequence[2], 2U);
    EXPECT_EQ(sequence[13], 13U);
    EXPECT_EQ(sequence[14], 2U) << "the second layer";
    EXPECT_EQ(sequence[2 + 24 * 12], 14U) << "the loss";
    EXPECT_EQ(sequence[2 + 24 * 12 + 5], 19U);
    EXPECT_EQ(sequence.back(), 45U);
}

TEST(PublishedTable, AddsUpToThePublishedIteration) {
    double seconds = 0;
    double joules = 0;
    double best_seconds = 0;
    double best_joules = 0;
    double forward_seconds = 0;
    for (std::size_t k = 0; k < gpt3::kernel_count; ++k) {
        const auto& kernel = gpt3::published_table[k];
        const double t = 1e-3 * kernel.repeats * kernel.time_auto_ms;
        const double e = kernel.repeats * kernel.energy_auto_j;
        seconds += t;
        joules += e;
        best_seconds += t * (1 + kernel.best_time_pct / 100);
        best_joules += e * (1 + kernel.best_energy_pct / 100);
        if (gpt3::pass_of(k) == "forward") forward_seconds += t;
    }
    EXPECT_NEAR(seconds / 5.356, 1, 1e-3);
    EXPECT_NEAR(joules / 1815, 1, 1e-3);
    EXPECT_NEAR(100 * (best_seconds / seconds - 1), 0.00, 0.01);
    EXPECT_NEAR(100 * (best_joules / joules - 1), -15.64, 0.01);
    EXPECT_NEAR(forward_seconds / seconds, 0.338, 0.001);
}

TEST(PublishedTable, HasExtremesOutsideItsOwnPoints) {
    for (const auto& kernel : gpt3::published_table) {
        EXPECT_GT(kernel.time_max_ms, kernel.time_auto_ms) << kernel.name;
        EXPECT_GT(kernel.energy_max_j, kernel.energy_auto_j) << kernel.name;
        EXPECT_LE(kernel.energy_min_j, kernel.energy_auto_j) << kernel.name;
    }
}

TEST(ClockPoints, AreThe66OfThePaper) {
    constexpr auto points = gpt3::paper_clock_points();
    const std::set<ClockPoint> unique{points.begin(), points.end()};
    EXPECT_EQ(unique.size(), 66U);
    EXPECT_TRUE(points.back().is_auto());
    for (const auto& kernel : gpt3::published_table) EXPECT_TRUE(unique.contains(kernel.best));
    for (std::size_t i = 0; i < points.size(); ++i) {
        EXPECT_EQ(gpt3::published_passes[i].point, points[i]) << i;
    }
}

/// Rows of a CSV without its header; empty when the file is absent.
std::vector<std::vector<std::string>> read_csv(const std::string& name) {
    std::ifstream file{std::string{KDVFS_SHARED_DATA "/"} + name};
    std::vector<std::vector<std::string>> rows;
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
        std::istringstream cells{line};
        std::vector<std::string> row;
        for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
        rows.push_back(row);
    }
    return rows;
}

kdvfs::Megahertz clock(const std::string& text) {
    if (text == "auto") return auto_clock;
    return {static_cast<std::uint32_t>(std::stoul(text))};
}

TEST(PublishedTable, IsRestatedFaithfully) {
    const auto rows = read_csv("gpt3_xl_rtx3080ti.csv");
    if (rows.empty()) GTEST_SKIP() << "no shared data at " KDVFS_SHARED_DATA;
    ASSERT_EQ(rows.size(), gpt3::kernel_count);
    for (std::size_t k = 0; k < rows.size(); ++k) {
        const auto& row = rows[k];
        const auto& kernel = gpt3::published_table[k];
        EXPECT_EQ(row[1], kernel.published_name);
        EXPECT_EQ(std::stoi(row[4]), kernel.repeats);
        const double numbers[] = {kernel.time_auto_ms,  kernel.time_min_ms,  kernel.time_max_ms,
                                  kernel.energy_auto_j, kernel.energy_min_j, kernel.energy_max_j};
        for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(std::stod(row[5 + i]), numbers[i]) << k;
        EXPECT_EQ((ClockPoint{clock(row[12]), clock(row[11])}), kernel.best) << k;
        EXPECT_EQ(std::stod(row[13]), kernel.best_time_pct) << k;
        EXPECT_EQ(std::stod(row[14]), kernel.best_energy_pct) << k;
    }
}

TEST(PublishedPasses, AreRestatedFaithfully) {
    const auto rows = read_csv("gpt3_xl_passes_rtx3080ti.csv");
    if (rows.empty()) GTEST_SKIP() << "no shared data at " KDVFS_SHARED_DATA;
    ASSERT_EQ(rows.size(), 2 * gpt3::published_passes.size());
    for (const auto& row : rows) {
        const ClockPoint point{clock(row[2]), clock(row[1])};
        const auto* pass =
            std::find_if(gpt3::published_passes.begin(), gpt3::published_passes.end(),
                         [&](const auto& p) { return p.point == point; });
        ASSERT_NE(pass, gpt3::published_passes.end());
        const bool forward = row[0] == "forward";
        EXPECT_EQ(std::stod(row[3]), forward ? pass->forward_time_pct : pass->backward_time_pct);
        EXPECT_EQ(std::stod(row[4]),
                  forward ? pass->forward_energy_pct : pass->backward_energy_pct);
    }
}

}  // namespace
