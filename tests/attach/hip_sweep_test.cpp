// SPDX-License-Identifier: MIT
//
// A HIP program swept and run by a plan, on HIP's double and a virtual board whose clock its
// kernels run at.
#include "attach_fixture.hpp"

#include <tests/virtual_amdgpu/file_system.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace attached {
namespace {

using virtual_amdgpu::FileSystem;

class AttachedHip : public Attach {
protected:
    static void SetUpTestSuite() { system_ = std::make_unique<FileSystem>("mi210"); }
    static void TearDownTestSuite() { system_.reset(); }
    void SetUp() override {
        if (!system_->missing().empty()) GTEST_SKIP() << system_->missing();
    }

private:
    static inline std::unique_ptr<FileSystem> system_;
};

/// Beside the stream of its kernels it copies on another, which rests before the first iteration,
/// or but for one iteration in three.
TEST_F(AttachedHip, IsSweptAtTheClocksOfItsBoard) {
    const std::string found = FileSystem::settings();
    for (const char* copies_every : {"1000", "3"}) {
        const Outcome swept =
            run({"--preload", "--iteration", "step", "--sweep", path(copies_every)},
                {HIP_PROGRAM, "100", copies_every},
                {{"HIP_DOUBLE_BOARD", "1"},
                 {"KDVFS_SWEEP_ROWS", "2"},
                 {"KDVFS_SWEEP_BLOCK", "0.1"},
                 {"KDVFS_SWEEP_WARM_UP", "1"},
                 {"KDVFS_RUN_SLOWDOWN", "1000"},
                 {"KDVFS_STATUS", path("status.json")}});
        EXPECT_EQ(swept.exit_code(), 0) << swept.err << swept.notes();
        const json status = json::parse(text_of(path("status.json")), nullptr, false);
        ASSERT_TRUE(status.contains("sweep")) << status << swept.notes() << swept.err;
        EXPECT_GT(status["sweep"]["points_measured"], 1) << status << swept.notes();
        EXPECT_EQ(FileSystem::settings(), found);
    }
}

TEST_F(AttachedHip, ShowsTheBoardWhereNothingIsAttached) {
    const Outcome shown = wait_for(start({KDVFS_COMMAND, "top", "--once"}));
    EXPECT_EQ(shown.exit_code(), 0) << shown.err;
    EXPECT_NE(shown.out.find("AMD Instinct MI210: "), std::string::npos) << shown.out;
    EXPECT_NE(shown.out.find(" W, "), std::string::npos) << shown.out;
    EXPECT_NE(shown.out.find("no program is attached"), std::string::npos) << shown.out;
}

TEST_F(AttachedHip, FollowsAPlanAndPutsTheClocksBack) {
    const std::string found = FileSystem::settings();
    const std::string plan = path("plan.json");
    write_plan(plan, json::array({planned("gemm", 7, 900), planned("norm<float>", 4, 900)}),
               "AMD Instinct MI210");
    const Outcome followed =
        run({"--preload", "--meter", "1", "--iteration", "step", "--plan", plan},
            {HIP_PROGRAM, "20"}, {{"HIP_DOUBLE_BOARD", "1"}});
    EXPECT_EQ(followed.exit_code(), 0) << followed.err;
    for (const char* kernel : {"gemm", "norm<float>"}) {
        EXPECT_EQ(followed.most_called(kernel)["asked"]["core_mhz"], 900)
            << kernel << followed.notes() << followed.err;
    }
    // Six million cycles at 900 MHz, not at the 1700 of the board's own, but for what the switch
    // takes. A busy machine makes kernels longer, never shorter.
    const json gemm = followed.row("gemm");
    EXPECT_GT(gemm["time_s"].get<double>() / gemm["metered_calls"].get<double>(), 0.9 * 6e6 / 900e6)
        << followed.notes();
    EXPECT_EQ(FileSystem::settings(), found);
}

TEST_F(AttachedHip, GetsAClockForTheTimeWithoutWork) {
    const std::string found = FileSystem::settings();
    const auto latencies = folder() / "data/kdvfs/switch_latency";
    std::filesystem::create_directories(latencies);
    std::ofstream{latencies / "AMD_Instinct_MI210.csv"}
        << "from_core_mhz,from_mem_mhz,to_core_mhz,to_mem_mhz,latency_s\n900,auto,auto,auto,0."
           "001\n";
    const Environment board{{"HIP_DOUBLE_BOARD", "1"}, {"XDG_DATA_HOME", path("data")}};
    const Outcome seen = run({"--preload", "--idle-clock", "900", "--idle-after", "10ms"},
                             {HIP_PROGRAM, "8", "1000", "100"}, board);
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    const json idle = seen.report["processes"][0]["devices"][0]["report"]["idle_clock"];
    ASSERT_TRUE(idle.is_object()) << seen.notes() << seen.err;
    EXPECT_GE(idle["times"], 3) << idle << seen.notes();
    EXPECT_GT(idle["time_s"], 0.1);
    EXPECT_EQ(FileSystem::settings(), found);
}

/// Work that nobody knows of would count as idle.
TEST_F(AttachedHip, PrintsNoJoulesWhereWorkIsUnknown) {
    const Environment board{{"HIP_DOUBLE_BOARD", "1"}};
    Environment sdk = board;
    sdk["HIP_DOUBLE_ROCPROFILER"] = ROCPROFILER;
    Environment asks_nobody = sdk;
    asks_nobody["ROCPROFILER_DOUBLE_ASKS_NOBODY"] = "1";
    const std::vector<std::string> options{"--preload", "--meter", "1"};
    const std::vector<std::string> command{HIP_LOOKUP_PROGRAM, "15"};
    const std::vector<std::string> with_several{HIP_LOOKUP_PROGRAM, "15", "several"};
    const auto joules = [](const Outcome& seen) {
        const json& totals = seen.report.at("totals");
        auto told = std::count_if(
            seen.report["rows"].begin(), seen.report["rows"].end(),
            [](const json& row) { return row.at("energy").at("joules").is_number(); });
        for (const char* sum : {"idle", "kernels"}) {
            told += totals.at(sum).at("joules").is_number() ? 1 : 0;
        }
        return told;
    };
    const auto says_unknown = [](const Outcome& seen) {
        return seen.notes().find("launches that were not seen") != std::string::npos;
    };
    for (const auto& [environment, words, is_known] :
         {std::tuple{board, command, true}, std::tuple{board, with_several, false},
          std::tuple{sdk, with_several, true}, std::tuple{asks_nobody, command, false}}) {
        const Outcome seen = run(options, words, environment);
        EXPECT_EQ(seen.exit_code(), 0) << seen.err;
        ASSERT_FALSE(seen.report.is_null()) << seen.err;
        EXPECT_EQ(says_unknown(seen), !is_known) << words.size() << seen.notes();
        EXPECT_EQ(joules(seen) > 0, is_known) << words.size() << seen.report.dump(1);
    }
}

}  // namespace
}  // namespace attached
