// SPDX-License-Identifier: MIT
//
// What attaching must survive. The program's exit code, output and signals are its own.
#include "attach_fixture.hpp"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#if defined(ATTACH_LIBRARY)

namespace attached {
namespace {

TEST_F(Attach, KeepsExitCodeAndOutput) {
    const Outcome seen = run({}, {PROGRAM, "3", "exit=7"});
    EXPECT_EQ(seen.exit_code(), 7);
    EXPECT_EQ(seen.out, "output\n");
    EXPECT_EQ(seen.err, "");
}

TEST_F(Attach, KeepsTheSignalThatEndsTheProgram) {
    const Outcome seen = run({}, {PROGRAM, "200", "abort"});
    EXPECT_TRUE(WIFSIGNALED(seen.status));
    EXPECT_EQ(WTERMSIG(seen.status), SIGABRT);
    // What was known up to its last second is reported, and said to be that.
    ASSERT_FALSE(seen.report.is_null());
    EXPECT_EQ(seen.report["processes"][0]["ended"], false);
    EXPECT_GT(seen.row("gemm")["calls"], 100);
}

TEST_F(Attach, PassesSignalsOn) {
    std::filesystem::create_directory(path("tmp"));
    const pid_t child = start_run({}, {PROGRAM, "100000"}, {{"TMPDIR", path("tmp")}});
    ASSERT_TRUE(comes([&] { return text_of(path("out")) == "output\n"; })) << text_of(path("err"));
    ::kill(child, SIGTERM);
    const Outcome seen = wait_for(child);
    EXPECT_TRUE(WIFSIGNALED(seen.status));
    EXPECT_EQ(WTERMSIG(seen.status), SIGTERM);
    EXPECT_TRUE(std::filesystem::is_empty(path("tmp"))) << "its reports were left behind";
}

/// Rather than at the end of a program that took a day.
TEST_F(Attach, RefusesAtOnceWhatCannotBeDone) {
    const std::string program = PROGRAM;
    for (const auto& [options, words, environment] :
         {std::tuple{std::vector<std::string>{"--report", "/nowhere/page.html"},
                     "/nowhere/page.html: No such file", Environment{}},
          {{"--report", path("")}, "Is a directory", {}},
          {{"--match", "("}, "--match: (", {}},
          {{"--repeat", "--runs-once", "["}, "--runs-once: [", {}},
          {{}, "KDVFS_ATTACH=/nowhere.so", {{"KDVFS_ATTACH", "/nowhere.so"}}},
          {{}, "TMPDIR", {{"TMPDIR", "/nowhere"}}}}) {
        const Outcome seen = run(options, {program, "1"}, environment);
        EXPECT_EQ(seen.out, "") << words;
        EXPECT_TRUE(seen.exit_code() == 1 || seen.exit_code() == 2) << seen.err;
        EXPECT_NE(seen.err.find(words), std::string::npos) << seen.err;
    }
}

TEST_F(Attach, IsNothingInAForkedChild) {
    const Outcome seen = run({}, {PROGRAM, "5", "fork"});
    EXPECT_EQ(seen.exit_code(), 0);
    ASSERT_EQ(seen.report["processes"].size(), 1U);
    EXPECT_EQ(seen.row("adam")["calls"], 12);
}

TEST_F(Attach, IsNothingInAForkedChildThatLaunches) {
    const Outcome seen =
        run({"--level", "range", "--iteration", "step"}, {PROGRAM, "20", "fork", "child_works"});
    EXPECT_EQ(seen.exit_code(), 0);
    ASSERT_EQ(seen.report["processes"].size(), 1U);
    seen.expect_runs("step/optimizer", 21);
    EXPECT_TRUE(seen.range("child").is_null());
}

TEST_F(Attach, StaysWhereEverybodyClosesIt) {
    const Outcome seen = run({}, {PROGRAM, "20", "dlclose"});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 160);
}

TEST_F(Attach, KeepsTheSignalOfACrashAtExit) {
    for (const auto& [when, ended] : std::map<std::string, bool>{{"abort_at_exit=last", true},
                                                                 {"abort_at_exit=first", false}}) {
        const Outcome seen = run({}, {PROGRAM, "200", when});
        EXPECT_TRUE(WIFSIGNALED(seen.status)) << when;
        EXPECT_EQ(WTERMSIG(seen.status), SIGABRT) << when;
        EXPECT_EQ(seen.out, "output\n") << when;
        ASSERT_FALSE(seen.report.is_null()) << when;
        EXPECT_EQ(seen.report["processes"][0]["ended"], ended) << when;
        EXPECT_GT(seen.row("gemm")["calls"], 100) << when;
    }
}

/// How often a program is to end.
int rounds(int of_test) {
    return std::getenv("KDVFS_ENDS_SOAK") != nullptr ? 50 * of_test : of_test;
}

/// The double of CUPTI ends by SIGSEGV whoever calls it while it ends, or later.
TEST_F(Attach, SurvivesLaunchesAtTheEnd) {
    for (int round = 0; round < rounds(1); ++round) {
        for (const auto& [end, code] :
             std::map<std::string, int>{{"exit=7", 7}, {"ends=thread", 0}, {"ends=quick", 0}}) {
            for (const auto& [late, calls] : std::map<std::string, int>{
                     {"late=before", 12}, {"late=behind", 0}, {"late=beside", 0}}) {
                const Outcome seen = run({}, {PROGRAM, "3", late, end});
                EXPECT_EQ(seen.status, code << 8) << late << ' ' << end << seen.err;
                EXPECT_EQ(seen.out, "output\n") << late << ' ' << end;
                if (end != "exit=7") continue;
                EXPECT_EQ(seen.row("gemm")["metered_calls"], 24) << late << seen.report.dump(1);
                const json row = seen.row("late");
                EXPECT_EQ(row.is_null() ? 0 : row["calls"].get<int>(), calls) << late;
            }
        }
    }
}

/// What CUPTI keeps of a thread would end with the thread, when CUPTI has ended.
TEST_F(Attach, EndsNoThreadThatHasCalledCupti) {
    const Outcome seen = run({}, {PROGRAM, "150", "late=slowly"});
    EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Attach, EndsBeforeCuptiWhereNothingWasLaunched) {
    const Outcome seen =
        run({}, {PROGRAM, "0", "idle"}, {{"NVTX_INJECTION64_PATH", "/nowhere.so"}});
    EXPECT_EQ(seen.status, 0) << seen.err;
    EXPECT_NE(seen.notes().find("/nowhere.so is left out"), std::string::npos) << seen.notes();
}

TEST_F(Attach, SeesAStaticRuntimeOfCuda) {
    const Outcome seen = run({}, {STATIC_PROGRAM, "cuda", "50"});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.out, "output\n");
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 50) << seen.report.dump(1);
}

TEST_F(Attach, SaysThatNothingWasSeenOfAStaticRuntimeOfHip) {
    const pid_t child =
        start({KDVFS_COMMAND, "run", "--preload", "--", STATIC_PROGRAM, "hip", "9"});
    const Outcome seen = wait_for(child);
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.out, "output\n");
    EXPECT_EQ(seen.err, "kdvfs: no GPU work was seen\n");
}

TEST_F(Attach, LeavesAnotherToolsInjectionWhereItIs) {
    const Outcome seen = run({}, {"sh", "-c", "echo $CUDA_INJECTION64_PATH"},
                             {{"CUDA_INJECTION64_PATH", "/theirs"}});
    EXPECT_EQ(seen.out, "/theirs\n");
    EXPECT_NE(seen.err.find("another tool is injected"), std::string::npos) << seen.err;
}

TEST_F(Attach, SurvivesLaunchesThatFail) {
    const Outcome seen = run({}, {PROGRAM, "5", "failing"});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 40);
}

TEST_F(Attach, RunsPlainWhereAnotherProfilerHoldsCupti) {
    const Outcome seen = run({}, {PROGRAM, "3"}, {{"CUPTI_DOUBLE_HELD", "1"}});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_NE(seen.notes().find("another profiler holds CUPTI"), std::string::npos);
    EXPECT_TRUE(seen.report["rows"].empty());
}

TEST_F(Attach, RunsPlainWhereThereIsNoCupti) {
    const Outcome seen = run({}, {PROGRAM, "3"}, {{"KDVFS_CUPTI", "/nowhere/libcupti.so"}});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_NE(seen.notes().find("runs on without kdvfs: CUPTI: "), std::string::npos);
}

TEST_F(Attach, TellsTimesWhereThereAreNoJoules) {
    const Outcome seen = run({}, {PROGRAM, "5"}, {{"KDVFS_NVML", "/nowhere/libnvidia-ml.so"}});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 40);
    EXPECT_EQ(seen.row("gemm")["energy"]["status"], "unresolved");
    EXPECT_NE(seen.notes().find("no joules"), std::string::npos) << seen.notes();
}

TEST_F(Attach, SaysHowManyRecordsNeverCame) {
    const Outcome seen = run({}, {PROGRAM, "60"}, {{"CUPTI_DOUBLE_LOSES_ONE_IN", "50"}});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_NE(seen.notes().find("could not be taken"), std::string::npos) << seen.notes();
    const json row = seen.row("gemm");
    EXPECT_LT(row["metered_calls"], 480);
    EXPECT_GT(row["metered_calls"], 300);
}

TEST_F(Attach, AttachesToChildrenAndAddsTheirReports) {
    const std::string one = std::string{PROGRAM} + " 5";
    const Outcome seen =
        run({}, {"sh", "-c", "RANK=0 " + one + " & RANK=1 " + one + " & wait; exit 3"});
    EXPECT_EQ(seen.exit_code(), 3);
    ASSERT_EQ(seen.report["processes"].size(), 2U) << seen.report.dump(1);
    EXPECT_EQ(seen.report["processes"][1]["rank"], "1");
    EXPECT_EQ(seen.row("gemm")["calls"], 80);
}
TEST_F(Attach, SaysWhatCannotBeRun) {
    const Outcome missing = run({}, {"/nowhere/program"});
    EXPECT_EQ(missing.exit_code(), 127);
    EXPECT_NE(missing.err.find("/nowhere/program"), std::string::npos);
    const Outcome forbidden = run({}, {"/etc/passwd"});
    EXPECT_EQ(forbidden.exit_code(), 126);
}

TEST_F(Attach, LeavesProgramsWithoutAGpuAlone) {
    const Outcome seen = run({}, {"sh", "-c", "echo quiet; exit 4"});
    EXPECT_EQ(seen.exit_code(), 4);
    EXPECT_EQ(seen.out, "quiet\n");
    EXPECT_EQ(seen.err, "");
    EXPECT_TRUE(seen.report["processes"].empty());
}

}  // namespace
}  // namespace attached

#endif
