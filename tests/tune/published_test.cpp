// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

/// Published measurements lie beside a working copy, or are absent.
std::filesystem::path data(const std::string& file) {
    const std::filesystem::path path =
        std::filesystem::path{KDVFS_SOURCE_DIR} / ".." / "shared" / "data" / file;
    return std::filesystem::exists(path) ? path : std::filesystem::path{};
}

using Row = std::map<std::string, std::string>;

std::vector<Row> read_rows(const std::filesystem::path& path) {
    std::ifstream input{path};
    kdvfs::detail::CsvReader reader{input, path.string()};
    std::vector<std::string> header;
    std::vector<std::string> fields;
    reader.next(header);
    std::vector<Row> rows;
    while (reader.next(fields)) {
        Row row;
        for (std::size_t i = 0; i < header.size(); ++i) row[header[i]] = fields[i];
        rows.push_back(row);
    }
    return rows;
}

/// One iteration as arXiv 2601.08539 gives it, kernel by kernel.
struct PublishedKernel {
    Cost automatic;  ///< per iteration
    Cost best;
};

std::vector<PublishedKernel> published_kernels(const std::filesystem::path& path) {
    std::vector<PublishedKernel> kernels;
    for (Row& row : read_rows(path)) {
        const double repeats = std::stod(row["repeats"]);
        const Cost automatic{Seconds{std::stod(row["time_auto_ms"]) * 1e-3 * repeats},
                             Joules{std::stod(row["energy_auto_j"]) * repeats}};
        const Cost best{automatic.time * (1 + std::stod(row["best_time_pct"]) / 100),
                        automatic.energy * (1 + std::stod(row["best_energy_pct"]) / 100)};
        kernels.push_back({automatic, best});
    }
    return kernels;
}

/// The two passes as two kernels, weighted as the kernels weigh that belong to them.
Profile published_passes(const std::vector<PublishedKernel>& kernels,
                         const std::filesystem::path& path) {
    Cost forward;
    Cost backward;
    for (std::size_t k = 0; k < kernels.size(); ++k)
        (k < 16 ? forward : backward) += kernels[k].automatic;
    Profile profile{"RTX 3080 Ti"};
    for (Row& row : read_rows(path)) {
        const Cost& whole = row["pass"] == "forward" ? forward : backward;
        ProfileRow measured;
        measured.key = {row["pass"], {}};
        measured.group = row["pass"];
        measured.clock = {*kdvfs::detail::parse_clock(row["core_mhz"]),
                          *kdvfs::detail::parse_clock(row["mem_mhz"])};
        measured.cost = {whole.time * (1 + std::stod(row["time_pct"]) / 100),
                         whole.energy * (1 + std::stod(row["energy_pct"]) / 100)};
        profile.add(measured);
    }
    return profile;
}

class Published : public ::testing::Test {
protected:
    void SetUp() override {
        kernels_file_ = data("gpt3_xl_rtx3080ti.csv");
        passes_file_ = data("gpt3_xl_passes_rtx3080ti.csv");
        if (kernels_file_.empty() || passes_file_.empty())
            GTEST_SKIP() << "the published measurements are not beside this working copy";
    }
    static void print(const Plan& plan) {
        std::printf("%-6s %-6s %5.2f %% slower allowed: time %+.2f %%, energy %+.2f %%, gap %.4f\n",
                    plan.objective.c_str(), std::string{to_string(plan.aggregate)}.c_str(),
                    100 * plan.max_slowdown, plan.time_pct(), plan.energy_pct(), plan.gap_pct);
    }
    std::filesystem::path kernels_file_;
    std::filesystem::path passes_file_;
};

TEST_F(Published, BestPointsSaveWhatThePaperSays) {
    Cost automatic;
    Cost best;
    for (const PublishedKernel& kernel : published_kernels(kernels_file_)) {
        automatic += kernel.automatic;
        best += kernel.best;
    }
    std::printf("auto %.4f s, %.2f J; best points: time %+.3f %%, energy %+.3f %%\n",
                automatic.time.count(), automatic.energy.count, time_percent(best, automatic),
                energy_percent(best, automatic));
    EXPECT_NEAR(time_percent(best, automatic), 0.00, 0.01);
    EXPECT_NEAR(energy_percent(best, automatic), -15.64, 0.01);
}

TEST_F(Published, EnergyDelayOfThePasses) {
    const CostTable table =
        mean_costs(published_passes(published_kernels(kernels_file_), passes_file_));
    const Plan plan = make_plan(table, energy_delay(), Aggregate::per_group);
    print(plan);
    EXPECT_NEAR(plan.time_pct(), 10.21, 0.15);
    EXPECT_NEAR(plan.energy_pct(), -25.42, 0.15);
    EXPECT_EQ(plan.gap_pct, 0);
}

TEST_F(Published, StrictWasteOfThePassesStandsOnAKnifeEdge) {
    const CostTable table =
        mean_costs(published_passes(published_kernels(kernels_file_), passes_file_));
    const Plan strict = make_plan(table, strict_waste(), Aggregate::per_group);
    const Plan edge = make_plan(table, relaxed_waste(0.0005), Aggregate::per_group);
    const Plan relaxed = make_plan(table, relaxed_waste(0.001), Aggregate::per_group);
    for (const Plan& plan : {strict, edge, relaxed}) print(plan);
    EXPECT_LE(strict.time_pct(), 1e-9);
    EXPECT_NEAR(strict.time_pct(), -0.11, 0.02);
    EXPECT_NEAR(strict.energy_pct(), -2.15, 0.02);
    EXPECT_NEAR(relaxed.energy_pct(), -9.6, 0.2);
}

TEST(TitanX, RealKernelsArePlannedToTheProvenOptimum) {
    const std::filesystem::path file = data("titanx_real.csv");
    if (file.empty()) GTEST_SKIP() << "the published measurements are not beside this working copy";
    const CostTable table = mean_costs(read_profile(file));
    ASSERT_EQ(table.kernels.size(), 25U);
    for (const double slowdown : {0.0, 0.01, 0.02, 0.05}) {
        const Plans plans = make_plans(table, relaxed_waste(slowdown));
        for (const Aggregate aggregate : all_aggregates) {
            const Plan& plan = plans[aggregate];
            std::printf("%4.1f %% %-6s time %+6.2f %%, energy %+6.2f %%, gap %.6f points\n",
                        100 * slowdown, std::string{to_string(aggregate)}.c_str(), plan.time_pct(),
                        plan.energy_pct(), plan.gap_pct);
            EXPECT_LE(plan.time_pct(), 100 * slowdown + 1e-9);
            EXPECT_LT(plan.gap_pct, 0.01);
        }
        EXPECT_LE(plans.global.energy_pct(), plans.local.energy_pct());
        EXPECT_LE(plans.global.energy_pct(), plans.per_group.energy_pct());
        EXPECT_LE(plans.per_group.energy_pct(), plans.single.energy_pct());
    }
}

}  // namespace
}  // namespace kdvfs::tune
