// SPDX-License-Identifier: MIT
// Plans for nested scopes, and for several GPUs that do one job.
#include <kdvfs/detail/tune/ranks.hpp>
#include <kdvfs/detail/tune/session_status.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/segments.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

/// gemm loses time at 500 MHz, copy does not, 1 s each; norm neither, and it is next to nothing.
Profile measured(double energy = 1, double time = 1) {
    Profile profile{"simulated Radeon"};
    const auto add = [&](const char* kernel, Megahertz core, double seconds, double joules) {
        profile.add(
            {{kernel, {}}, {core, auto_clock}, {Seconds{time * seconds}, Joules{energy * joules}}});
    };
    add("gemm", auto_clock, 1, 100);
    add("gemm", {500}, 2, 90);
    add("copy", auto_clock, 1, 80);
    add("copy", {500}, 1, 40);
    add("norm", auto_clock, 0.001, 0.1);
    add("norm", {500}, 0.001, 0.05);
    return profile;
}

/// Scopes by letters: F and B around kernels, g a gemm, c a copy, n a norm.
LaunchSequence sequence(const std::string& letters) {
    LaunchSequence launches;
    const std::map<char, const char*> names{
        {'F', "forward"}, {'B', "backward"}, {'g', "gemm"}, {'c', "copy"}, {'n', "norm"}};
    for (const char letter : letters) {
        launches.launches.push_back({names.at(letter), {}});
        launches.depths.push_back(letter == 'F' || letter == 'B' ? 0 : 1);
    }
    return launches;
}

SegmentPlan planned(const LaunchSequence& launches) {
    const CostTable table = mean_costs(measured());
    return plan_segments(table,
                         match_launches(table, launches.launches, launches.gaps, launches.depths),
                         uniform_switch_costs(Seconds{0}), strict_waste());
}

TEST(Levels, APhaseIsPlannedAsAWholeWhereItsKernelsGainNoMore) {
    const SegmentPlan plan = planned(sequence("FgngngngnBcccc"));
    EXPECT_FALSE(plan.level.empty());
    ASSERT_EQ(plan.segments.size(), 2U);
    // Launches are those that can be planned; the scopes around them are passed over.
    EXPECT_EQ(plan.sequence.launches.size(), 12U);
    ASSERT_EQ(plan.sequence.kernels.size(), 5U);
    EXPECT_EQ(plan.sequence.boundaries[0].before, 0U);
    EXPECT_TRUE(plan.sequence.boundaries[0].clock.is_auto());
    EXPECT_EQ(plan.sequence.boundaries[1].before, 8U);
    EXPECT_EQ(plan.sequence.boundaries[1].clock.core, Megahertz{500});
    EXPECT_EQ(plan.segments[0].last, 8U);
    EXPECT_EQ(plan.segments[1].last, 12U);
    EXPECT_NEAR(plan.baseline.energy.count, 720.4, 1e-9);
    EXPECT_NEAR(plan.expected.energy.count, 560.4, 1e-9);
    EXPECT_NEAR(plan.expected.time / plan.baseline.time, 1, 1e-12);
    LaunchSequence flat = sequence("FgngngngnBcccc");
    flat.depths.clear();
    EXPECT_GT(planned(flat).segments.size(), 2U) << "else nothing was chosen";
}

TEST(Levels, KernelsArePlannedOneByOneWhereThatPays) {
    const SegmentPlan plan = planned(sequence("FggggccccBggggcccc"));
    EXPECT_TRUE(plan.level.empty());
    EXPECT_EQ(plan.segments.size(), 4U);
    EXPECT_LT(plan.energy_pct(), -20);
}

TEST(Levels, FilesKeepTheDepth) {
    const auto path = std::filesystem::temp_directory_path() /
                      ("kdvfs_depths_" + std::to_string(::getpid()) + ".csv");
    const LaunchSequence written = sequence("FgcBc");
    write_launches(path, written);
    EXPECT_EQ(read_launches(path).depths, written.depths);
    LaunchSequence broken = written;
    broken.depths = {0, 1, 3, 0, 1};
    write_launches(path, broken);
    EXPECT_THROW(read_launches(path), Error);
    std::filesystem::remove(path);
}

class RankFiles : public ::testing::Test {
protected:
    RankFiles() { std::filesystem::create_directory(folder); }
    ~RankFiles() override { std::filesystem::remove_all(folder); }

    void write(std::size_t rank, const Profile& profile, const LaunchSequence& launches) const {
        const auto path = rank_path(folder / "profile.csv", rank);
        kdvfs::detail::write_file_atomically(path, to_csv(profile));
        write_launches(sequence_path(path), launches);
    }

    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("kdvfs_ranks_" + std::to_string(::getpid()));
};

TEST_F(RankFiles, EqualRanksShareAProfileOfSummedEnergiesAndTheLongestTime) {
    write(0, measured(), sequence("Fgc"));
    write(1, measured(1.5, 0.9), sequence("Fgc"));
    write(10, measured(2, 1.1), sequence("Fgc"));
    write(2, measured(), sequence("Bcg"));
    const auto ranks = read_rank_profiles(folder / "profile.csv");
    ASSERT_EQ(ranks.size(), 4U);
    EXPECT_EQ(ranks[3].rank, 10U);
    const auto groups = equal_ranks(ranks);
    ASSERT_EQ(groups.size(), 2U);
    EXPECT_EQ(groups[0], (std::vector<std::size_t>{0, 1, 3}));
    EXPECT_EQ(groups[1], (std::vector<std::size_t>{2}));
    const RankProfile merged = merge_ranks(ranks, groups[0]);
    const ProfilePoint& gemm = *merged.profile.kernels()[0].find({{500}, auto_clock});
    EXPECT_NEAR(gemm.mean().energy.count, 90 * 4.5, 1e-9);
    EXPECT_NEAR(gemm.mean().time.count(), 2.2, 1e-12);
    EXPECT_EQ(merged.sequence.launches, ranks[0].sequence.launches);
    EXPECT_NEAR(mean_costs(merged.profile).baseline_cost().energy.count, 180.1 * 4.5, 1e-9);
}

TEST_F(RankFiles, PointsThatNotAllRanksMeasuredAreLeftOut) {
    Profile less{"simulated Radeon"};
    less.add({{"gemm", {}}, {}, {Seconds{1}, Joules{100}}});
    less.add({{"copy", {}}, {}, {Seconds{1}, Joules{80}}});
    less.add({{"norm", {}}, {}, {Seconds{0.001}, Joules{0.1}}});
    write(0, measured(), sequence("Fgc"));
    write(1, less, sequence("Fgc"));
    const auto ranks = read_rank_profiles(folder / "profile.csv");
    const RankProfile merged = merge_ranks(ranks, equal_ranks(ranks).front());
    EXPECT_EQ(merged.profile.kernels()[0].points.size(), 1U);
}

TEST_F(RankFiles, OneProfileAndThoseOfRanksDoNotGoTogether) {
    EXPECT_THROW(read_rank_profiles(folder / "profile.csv"), Error);
    write(0, measured(), sequence("Fgc"));
    kdvfs::detail::write_file_atomically(folder / "profile.csv", to_csv(measured()));
    EXPECT_THROW(read_rank_profiles(folder / "profile.csv"), Error);
}

TEST(SessionStatus, IsReadAsItWasWritten) {
    SessionStatus status{.gpu = "simulated Radeon",
                         .iterations = 50,
                         .grid_points = 17,
                         .sample_period = std::chrono::milliseconds{10}};
    EXPECT_EQ(to_json(parse_session_status(to_json(status), "s.json")), to_json(status));
    status.sweep = {.points_measured = 3, .points = 17, .slowdown_pct = -0.5, .done = true};
    status.followed_pct = 99.5;
    const SessionStatus read = parse_session_status(to_json(status), "s.json");
    EXPECT_EQ(to_json(read), to_json(status));
    EXPECT_TRUE(read.sweep->done);
    EXPECT_THROW(parse_session_status("{}", "s.json"), Error);
    EXPECT_THROW(parse_session_status("{\"gpu\": \"x\\n\"}", "s.json"), Error);
}

}  // namespace
}  // namespace kdvfs::tune
