// SPDX-License-Identifier: MIT
//
// The round for a first AMD GPU, from end to end on virtual boards and HIP's double: all holds, and
// each assumption that is broken on purpose is the one that is named.
#include <tests/virtual_amdgpu/file_system.hpp>

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using virtual_amdgpu::FileSystem;
using Names = std::set<std::string>;

/// The rows that do not hold, and how many do.
struct Outcome {
    int status = 0;
    Names broken;
    unsigned holding = 0;
    std::string table;
};

class AmdRound : public testing::Test {
protected:
    static void SetUpTestSuite() {
        // The second is an MI300X, as most first ones will be.
        system_ = std::make_unique<FileSystem>(
            "mi210 mi300x_1.9 mi250x mi250x_second mi300x_1.3 mi300x mi300x_1.6 mi300x_1.8 "
            "mi300x_1.9_no_energy mi400_points");
    }
    static void TearDownTestSuite() { system_.reset(); }

    void SetUp() override {
        if (!system_->missing().empty()) GTEST_SKIP() << system_->missing();
        char name[] = "/tmp/kdvfs_amd_round_XXXXXX";
        ASSERT_NE(::mkdtemp(name), nullptr);
        folder_ = name;
    }
    void TearDown() override {
        for (const char* variable : {"KDVFS_ROUND_FAULT", "KDVFS_ROUND_BOARD"})
            ::unsetenv(variable);
        if (!folder_.empty()) std::filesystem::remove_all(folder_);
    }

    /// Runs the script on a board.
    Outcome run(const std::string& options, unsigned board, const std::string& fault = {}) {
        ::setenv("KDVFS_ROUND_BOARD", std::to_string(board).c_str(), 1);
        ::setenv("KDVFS_ROUND_FAULT", fault.c_str(), 1);
        ::setenv("KDVFS_PROGRAM", KDVFS_AMD_ROUND_PROGRAM, 1);
        const std::string command =
            "sh " KDVFS_AMD_ROUND_SCRIPT " " + folder_ + " --quick " + options + " > /dev/null";
        Outcome outcome;
        outcome.status = WEXITSTATUS(std::system(command.c_str()));
        std::ifstream log{folder_ + "/amd_round.log"};
        std::stringstream all;
        all << log.rdbuf();
        outcome.table = all.str();
        std::ifstream csv{folder_ + "/assumptions.csv"};
        for (std::string line; std::getline(csv, line);) {
            const auto end = line.find("\",");
            if (end == std::string::npos) continue;
            const std::string verdict = line.substr(end + 2, 3);
            if (verdict.starts_with("NO,")) outcome.broken.insert(line.substr(1, end - 1));
            if (verdict == "yes") ++outcome.holding;
        }
        return outcome;
    }

    static bool in_soak() { return std::getenv("KDVFS_ALL_BOARDS") != nullptr; }

    std::string folder_;
    static inline std::unique_ptr<FileSystem> system_;
};

TEST_F(AmdRound, HoldsOnSoundBoardsAndPutsThemBack) {
    // From open to restore: all kinds of boards in the soak, here those least alike, and of all but
    // one what is a matter of the board.
    struct Part {
        std::string options;  ///< none: all of the round
        unsigned holding = 17;
    };
    std::map<unsigned, Part> parts{{1, {}},
                                   {3, {" --only meter --only writes --only scope", 8}},
                                   {8, {" --only meter --only scope", 4}},  // tells no energy
                                   {9, {" --only meter --only writes --only kill", 10}}};
    if (in_soak()) {
        for (unsigned board = 0; board < 10; ++board) parts[board] = {};
    }
    for (const auto& [board, part] : parts) {
        FileSystem::tell("reset", board);
        const std::string before = FileSystem::settings(board);
        const Outcome outcome = run("--set-clocks" + part.options, board);
        EXPECT_EQ(outcome.status, 0) << outcome.table;
        EXPECT_EQ(outcome.broken, Names{}) << outcome.table;
        EXPECT_GE(outcome.holding, part.holding) << outcome.table;
        const bool has_scope =
            part.options.empty() || part.options.find("scope") != std::string::npos;
        EXPECT_EQ(outcome.table.find("W reported") != std::string::npos, has_scope)
            << outcome.table;
        if (board == 9) {
            EXPECT_NE(outcome.table.find("profile 2 (ppt0_limit 800 W)"), std::string::npos)
                << outcome.table;
        }
        EXPECT_EQ(FileSystem::settings(board), before);
        if (board == 1) std::puts(outcome.table.c_str());
    }
}

TEST_F(AmdRound, SetsNothingUnlessAsked) {
    FileSystem::tell("reset", 1);
    FileSystem::tell("ail deaf", 1);  // would be found by the first write
    const Outcome outcome = run("", 1);
    EXPECT_EQ(outcome.status, 0) << outcome.table;
    EXPECT_NE(outcome.table.find("without --set-clocks"), std::string::npos);
    EXPECT_EQ(run("--only nothing", 1).status, 2) << "there is no such part";
    FileSystem::tell("reset", 1);
}

struct Case {
    std::string fault;  ///< "ail ..." is the board's, the others are the stream's
    std::string part;   ///< of the round, in which it shows
    Names broken;       ///< the rows that must be named
    bool sets = false;  ///< shows only where clocks are set
};

TEST_F(AmdRound, NamesEachAssumptionThatIsBroken) {
    const std::string files = "caps written by the driver's files are read back and go back";
    const std::string library = "caps written by ROCm SMI are read back and go back";
    const std::vector<Case> cases{
        {"no_store", "markers", {"a marker's store arrives in host memory"}},
        {"swapped", "markers", {"markers run in the order of their stream"}},
        {"no_stamp", "markers", {"a marker's stamp arrives in host memory"}},
        {"fast_clock",
         "markers",
         {"the wall clock runs at the rate that HIP tells, 100 MHz on CDNA"}},
        {"captures_run", "markers", {"a graph's replays ask anew, a capture asks for nothing"}},
        {"slow_markers", "markers", {"a marker costs a stream 20 us at most"}},
        {"wrong_cycles",
         "markers",
         {"cycles over time between markers give the core clock of gpu_metrics, within 3 %"}},
        {"freeze", "meter", {"the energy counter runs while the GPU is busy"}},
        {"ail slow_counter", "meter", {"the counter's samples are 1 ms apart (0.5 to 2)"}},
        {"ail coarse_counter", "meter", {"the counter's unit is 1/16 J or finer"}},
        {"ail inflated_counter", "meter", {"the energy is power x time, within 5 %"}},
        {"ail unknown_metrics", "meter", {"gpu_metrics is of a revision that kdvfs reads"}},
        {"ail deaf", "writes", {files, library}, true},
        {"ail mixes_domains",
         "writes",
         {"core and memory hold their caps beside one another"},
         true},
        {"ail stuck_clock", "latency", {"the running clock follows a cap within 1.0 s"}, true},
        {"ail clinging",
         "kill",
         {"the clock of a program that is killed goes back within 3 s",
          "everything is as it was found"},
         true}};
    for (const Case& each : cases) {
        FileSystem::tell("reset", 1);
        const bool boards = each.fault.starts_with("ail") || each.fault == "freeze";
        if (boards) FileSystem::tell(each.fault, 1);
        // The soak shows that no other part names it.
        const std::string part = in_soak() ? "" : " --only " + each.part;
        const Outcome outcome =
            run((each.sets ? "--set-clocks" : "") + part, 1, boards ? "" : each.fault);
        EXPECT_EQ(outcome.status, 1) << each.fault << "\n" << outcome.table;
        EXPECT_EQ(outcome.broken, each.broken) << each.fault << "\n" << outcome.table;
        FileSystem::tell("thaw", 1);
        FileSystem::tell("reset", 1);
    }
}

}  // namespace
