// SPDX-License-Identifier: MIT
//
// Repeating kernels in place: at once, where users wait for a stretch of the program as it is.
#include "attach_fixture.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#if defined(ATTACH_LIBRARY)

namespace attached {
namespace {

const Environment at_once{{"KDVFS_ATTACH_REPEAT_AFTER", "0"}};

/// The double's time and counter are exact. But where the host has no core for the thread that
/// repeats, the board rests between two batches, and where it has none for the one that reads the
/// counter, intervals are wide: such a run is made again, a few times.
template <class Run, class Disturbed>
Outcome undisturbed(const Run& run, const Disturbed& disturbed) {
    Outcome seen = run();
    for (int again = 0; again < 4 && disturbed(seen); ++again) seen = run();
    return seen;
}

TEST_F(Attach, RepeatsKernelsUntilTheirJoulesAreTold) {
    const std::map<std::string, double> board_watts{
        {"gemm", 600}, {"attention::flash<128>", 400}, {"norm", 300}, {"adam", 250}};
    const Outcome seen = undisturbed(
        [&] {
            return run({"--repeat"}, {PROGRAM, "200", "scan"},
                       {{"KDVFS_ATTACH_REPEAT_AFTER", "1"}});
        },
        [&](const Outcome& its) {
            return std::any_of(board_watts.begin(), board_watts.end(), [&](const auto& each) {
                return !its.most_called(each.first).contains("repeated");
            });
        });
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_NE(seen.err.find("repeating kernels in place"), std::string::npos)
        << "no crash: the scan is known by its name";
    for (const auto& [kernel, watts] : board_watts) {
        const json row = seen.most_called(kernel);
        ASSERT_TRUE(row.contains("repeated")) << kernel << seen.report.dump(1);
        const json& its = row["repeated"];
        EXPECT_GT(its["repeats"], 50) << kernel;
        // The board's own 100 W, and the kernel's while it runs: less where it comes to wait.
        EXPECT_GT(its["power_w"], 0.6 * watts) << kernel;
        EXPECT_LT(its["power_w"], 1.05 * watts) << kernel;
        EXPECT_LT(its["power_half_width_w"], 0.1 * watts) << kernel;
    }
    EXPECT_EQ(seen.row("gemm")["calls"], 1600);  // the program's own
    EXPECT_EQ(seen.row("DeviceScanKernel")["calls"], 200);
    EXPECT_FALSE(seen.most_called("DeviceScanKernel").contains("repeated"));
    EXPECT_EQ(seen.notes().find("could not be taken"), std::string::npos) << seen.notes();
}

/// Ranges of a millisecond and less, whose kernels always run in the same mix.
TEST_F(Attach, TellsRangesByTheFiguresOfTheirRepeatedKernels) {
    const Outcome seen = undisturbed(
        [&] {
            std::filesystem::remove_all(folder() / "record");
            return run(
                {"--repeat", "--runs-once", "norm", "--level", "range", "--iteration", "step"},
                {PROGRAM, "550"},
                {{"KDVFS_ATTACH_REPEAT_AFTER", "2"},
                 {"KDVFS_ATTACH_RECORD", path("record")},
                 {"CUDA_DOUBLE_EXACT", "1"}});
        },
        [](const Outcome& its) {
            const json energy = its.range("step/forward").value("energy", json{});
            return energy.value("status", "") != "resolved" ||
                   energy["half_width_95"].get<double>() > 0.09 * energy["joules"].get<double>();
        });
    EXPECT_EQ(seen.exit_code(), 0);
    ASSERT_TRUE(seen.most_called("gemm").contains("repeated")) << seen.report.dump(1);
    // Four times 100 us at 300 W, 300 us at 400 W and 400 us at 600 W.
    constexpr double watts = 487.5;
    bool quiet = true;
    for (const char* range : {"step/forward", "step/backward"}) {
        const json level = seen.range(range);
        ASSERT_FALSE(level.is_null()) << range;
        if (level["energy"]["status"] != "resolved") {
            quiet = false;
            continue;
        }
        const double seconds = level["time_s"].get<double>();
        const double power = level["energy"]["joules"].get<double>() / seconds;
        const double half_width = level["energy"]["half_width_95"].get<double>() / seconds;
        EXPECT_NEAR(power, watts, 1.5 * half_width) << level;  // 3 standard deviations
        if (half_width > 0.1 * power) {
            quiet = false;
            continue;
        }
        EXPECT_GT(power, 0.9 * watts) << level;
        EXPECT_LT(power, 1.05 * watts) << level;
    }
    const auto recorded = std::filesystem::directory_iterator { folder() / "record" } -> path();
    const std::string marks = text_of(recorded / "marks.csv");
    EXPECT_NE(marks.find(",gemm,8\n"), std::string::npos) << marks;
    EXPECT_NE(marks.find("\nplace,"), std::string::npos) << marks;
    EXPECT_NE(marks.find("\nrepeated,"), std::string::npos) << marks;
    const std::string runs = text_of(recorded / "runs.csv");
    EXPECT_NE(runs.find(",0,2\n"), std::string::npos) << "no range has ended";
    if (!quiet && !HasFailure())
        GTEST_SKIP() << "no interval is wrong, but they are wide: the host is busy";
}

TEST_F(Attach, RunsAsItIsForTenSecondsBeforeItRepeats) {
    const Outcome seen = run({"--repeat"}, {PROGRAM, "20"});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_FALSE(seen.most_called("gemm").contains("repeated")) << seen.report.dump(1);
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 160);
    EXPECT_NE(seen.notes().find("launched 10000.0 ms after the first"), std::string::npos)
        << seen.notes();
}

TEST_F(Attach, RepeatsWorkOfOneNameAndGridEachByItsTime) {
    const Outcome seen = undisturbed(
        [&] {
            return run({"--repeat", "--match", "persistent"}, {PROGRAM, "200", "persistent"},
                       {{"KDVFS_ATTACH_REPEAT_AFTER", "1"}, {"CUDA_DOUBLE_EXACT", "1"}});
        },
        [](const Outcome& its) {
            const auto rows = its.rows("persistent");
            return std::count_if(rows.begin(), rows.end(),
                                 [](const json& row) { return row.contains("repeated"); }) < 2;
        });
    EXPECT_EQ(seen.exit_code(), 0);
    ASSERT_GE(seen.rows("persistent").size(), 2U) << seen.report.dump(1);
    std::map<double, double> watts;  // by the mean time of a repeated launch
    for (const json& row : seen.rows("persistent")) {
        if (!row.contains("repeated")) continue;
        const json& its = row["repeated"];
        watts[its["repeats_time_s"].get<double>() / its["repeats"].get<double>()] = its["power_w"];
    }
    ASSERT_GE(watts.size(), 2U) << seen.report.dump(1);
    EXPECT_LT(watts.begin()->first, 1e-3);   // 100 us at 300 W
    EXPECT_GT(watts.rbegin()->first, 4e-3);  // 5000 us at 500 W
    EXPECT_GT(watts.rbegin()->second, 1.2 * watts.begin()->second);
}

/// Repeated, the larger one takes about as long as the smaller one in the program.
TEST_F(Attach, KnowsWorkOfOneNameAndGridByItsPlaceInTheIteration) {
    constexpr double again = 0.7;  // of its time, where it was launched just before
    const Outcome seen = undisturbed(
        [&] {
            return run({"--repeat", "--match", "cached", "--iteration", "step"},
                       {PROGRAM, "110", "cached"},
                       {{"KDVFS_ATTACH_REPEAT_AFTER", "1"}, {"CUDA_DOUBLE_EXACT", "1"}});
        },
        [](const Outcome& its) {
            const auto rows = its.rows("cached");
            return std::any_of(rows.begin(), rows.end(), [](const json& row) {
                if (!row.contains("repeated")) return false;
                const double one = row["time_s"].get<double>() / row["calls"].get<double>();
                const json& repeated = row["repeated"];
                return repeated["repeats_time_s"].get<double>() >
                       1.15 * again * one * repeated["repeats"].get<double>();
            });
        });
    EXPECT_EQ(seen.exit_code(), 0);
    int repeated = 0;
    for (const json& row : seen.rows("cached")) {
        if (row["calls"] < 60) continue;
        ASSERT_TRUE(row.contains("repeated")) << seen.report.dump(1);
        const bool larger = row["time_s"].get<double>() / row["calls"].get<double>() > 14e-3;
        // The board's own 100 W aside, whatever the waits between repeats.
        const json& its = row["repeated"];
        const double joules = (its["power_w"].get<double>() - 100) *
                              its["repeats_time_s"].get<double>() / its["repeats"].get<double>();
        const double expected = again * (larger ? 500 * 15.6e-3 : 300 * 12e-3);
        EXPECT_NEAR(joules, expected, 0.1 * expected) << row;
        ++repeated;
    }
    EXPECT_EQ(repeated, 2) << seen.report.dump(1);
}

TEST_F(Attach, RepeatsAKernelWithTheMemsetThatItNeeds) {
    const Outcome seen = run({"--repeat", "--match", "tiles"}, {PROGRAM, "200", "tiles=set"},
                             {{"KDVFS_ATTACH_REPEAT_AFTER", "1"}});
    EXPECT_EQ(seen.exit_code(), 0);
    const json row = seen.most_called("tiles");
    ASSERT_TRUE(row.contains("repeated")) << seen.report.dump(1);
    const json& its = row["repeated"];
    EXPECT_GT(its["power_w"], 0.6 * 400) << row;
    EXPECT_GT(its["repeats_time_s"].get<double>() / its["repeats"].get<double>(), 5e-3) << row;
}

TEST_F(Attach, DoesNotTakeOtherWorkForAKernelThatIsRepeated) {
    const Outcome seen = run({"--repeat", "--match", "tiles"}, {PROGRAM, "200", "tiles=cleared"},
                             {{"KDVFS_ATTACH_REPEAT_AFTER", "1"}});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_FALSE(seen.most_called("tiles").contains("repeated")) << seen.report.dump(1);
    EXPECT_NE(seen.notes().find("kernel 'tiles' is other work when it is repeated"),
              std::string::npos)
        << seen.notes();
}

TEST_F(Attach, GoesOnWithoutAKernelThatDoesNotSurviveRepeating) {
    for (const char* way : {"fragile=ends", "fragile=fails", "fragile=hangs"}) {
        const Outcome seen = run({"--repeat", "--match", "gemm|fragile"}, {PROGRAM, "20", way},
                                 {{"KDVFS_ATTACH_PATIENCE", "6"}, *at_once.begin()});
        EXPECT_EQ(seen.exit_code(), 0) << way << seen.err;
        EXPECT_NE(seen.err.find("did not survive that kernel 'fragile' was repeated"),
                  std::string::npos)
            << way << seen.err;
        ASSERT_EQ(seen.report["processes"].size(), 1U) << way;
        const std::vector<json> gemms = seen.rows("gemm");  // one or more times, on a busy machine
        EXPECT_TRUE(std::any_of(gemms.begin(), gemms.end(), [](const json& row) {
            return row.contains("repeated");
        })) << way;
        EXPECT_FALSE(seen.most_called("fragile").contains("repeated")) << way;
        EXPECT_EQ(seen.row("fragile")["calls"], 20) << way;
    }
}

TEST_F(Attach, LeavesOutWhatMustNotBeRepeated) {
    const Outcome seen = run({"--repeat", "--match", "gemm|fragile", "--runs-once", "^frag"},
                             {PROGRAM, "20", "fragile=ends"}, at_once);
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_NE(seen.err.find("repeating kernels in place"), std::string::npos);
    EXPECT_FALSE(seen.most_called("fragile").contains("repeated"));
}

/// The parts of the round for a real GPU that repeat, around the double.
TEST_F(Attach, IsRepeatedByTheRoundForARealGpu) {
    if (std::system("python3 -c ''") != 0) GTEST_SKIP() << "no python3 here";
    const std::string python = path("python");
    std::ofstream{python} << "#!/bin/sh\ncase $1 in\n*/train.py) exec " PROGRAM
                             " 60 ;;\n*) exec python3 \"$@\" ;;\nesac\n";
    std::filesystem::permissions(python, std::filesystem::perms::owner_all);
    Environment environment{
        {"PYTHON", python}, {"KDVFS_COMMAND", KDVFS_COMMAND}, {"LARGEST", "gemm|attention"}};
    environment.merge(Environment{at_once});
    const Outcome seen =
        wait_for(start({"sh", ROUND, path("round"), "repeat_1", "repeat_2"}, environment));
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_NE(seen.out.find("==== repeat_2: exit status 0"), std::string::npos) << seen.out;
    const std::string summary = text_of(folder() / "round" / "summary.txt");
    for (const char* kernel : {"gemm#8:", "attention::flash<128>#9:"}) {
        const std::size_t at = summary.find(kernel);
        ASSERT_NE(at, std::string::npos) << kernel << summary << seen.out << seen.err;
        const std::string line = summary.substr(at, summary.find('\n', at) - at);
        EXPECT_EQ(line.find("not repeated"), std::string::npos) << summary;
        EXPECT_NE(line.find("J a call"), line.rfind("J a call")) << summary;  // in both runs
    }
    EXPECT_NE(summary.find("told in both runs: "), std::string::npos) << summary;
}

#if defined(HIP_PROGRAM)
TEST_F(Attach, RepeatsNothingWhereThereAreNoJoules) {
    const Outcome seen =
        run({"--preload", "--meter", "1", "--repeat"}, {HIP_PROGRAM, "10"}, at_once);
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_NE(seen.notes().find("no joules"), std::string::npos) << seen.notes();
    ASSERT_FALSE(seen.rows("gemm").empty());
    EXPECT_FALSE(seen.most_called("gemm").contains("repeated"));
}
#endif

}  // namespace
}  // namespace attached

#endif
