// SPDX-License-Identifier: MIT
//
// Clocks of attached programs: plans, sweeps, and what a program that is killed leaves behind.
#include "attach_fixture.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#if defined(ATTACH_LIBRARY)

namespace attached {
namespace {

TEST_F(Attach, ObeysAPlanAndPutsTheClocksBack) {
    write_plan(path("plan.json"),
               json::array({planned("gemm", 8, 1000), planned("norm", 6, 1500)}));
    const Outcome seen =
        run({"--plan", path("plan.json")}, {PROGRAM, "30"}, {{"NVML_DOUBLE_LOG", path("writes")}});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    const std::string writes = text_of(path("writes"));
    EXPECT_NE(writes.find("core(210, 1000)\n"), std::string::npos) << writes << seen.notes();
    EXPECT_NE(writes.find("core(210, 1500)\n"), std::string::npos) << writes;
    EXPECT_TRUE(writes.ends_with("core free\n")) << writes;
    EXPECT_EQ(seen.row("gemm")["asked"]["core_mhz"], 1000) << seen.report.dump(1);
}

TEST_F(Attach, ObeysAPlanOfRanges) {
    write_plan(path("plan.json"),
               json::array({planned("step/forward", 0, 1000), planned("step/optimizer", 0, 1500)}));
    const Outcome seen =
        run({"--plan", path("plan.json"), "--level", "range", "--iteration", "step"},
            {PROGRAM, "30"}, {{"NVML_DOUBLE_LOG", path("writes")}});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    const std::string writes = text_of(path("writes"));
    EXPECT_NE(writes.find("core(210, 1000)\n"), std::string::npos) << writes << seen.notes();
    EXPECT_NE(writes.find("core(210, 1500)\n"), std::string::npos) << writes;
    EXPECT_TRUE(writes.ends_with("core free\n")) << writes;
    EXPECT_EQ(seen.row("step/forward")["asked"]["core_mhz"], 1000) << seen.report.dump(1);
    EXPECT_EQ(seen.row("step/optimizer")["asked"]["core_mhz"], 1500);
}

TEST_F(Attach, KeepsToTheLimitsOfTheAdministratorAndGoesBackToTheLock) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, for a /run of its own";
    write_plan(path("plan.json"),
               json::array({planned("gemm", 8, 1980), planned("norm", 6, 1000)}));
    const std::string machine =
        "mount -t tmpfs none /run && mkdir /run/kdvfs && "
        "echo '0000:1b:00.0 core 210 1500' >/run/kdvfs/limits && exec \"$@\"";
    const Outcome seen = wait_for(
        start({"unshare", "-m", "sh", "-c", machine, "sh", KDVFS_COMMAND, "run", "--report",
               path("report.json"), "--plan", path("plan.json"), "--", PROGRAM, "30"},
              {{"NVML_DOUBLE_LOG", path("writes")}}));
    ASSERT_EQ(seen.exit_code(), 0) << seen.err;
    const std::string writes = text_of(path("writes"));
    EXPECT_NE(writes.find("core(210, 1000)\n"), std::string::npos) << writes << seen.notes();
    EXPECT_EQ(writes.find("core(210, 1980)"), std::string::npos) << writes;
    EXPECT_EQ(writes.find("core free"), std::string::npos) << writes;
    EXPECT_TRUE(writes.ends_with("core(210, 1500)\n")) << writes;
}

/// A program that pauses for 60 ms between iterations, on a board whose switches take 1 ms.
class AttachedIdleClock : public Attach {
protected:
    AttachedIdleClock() {
        const auto latencies = folder() / "data/kdvfs/switch_latency";
        std::filesystem::create_directories(latencies);
        std::ofstream{latencies / "Double_of_an_NVIDIA_GPU.csv"}
            << "from_core_mhz,from_mem_mhz,to_core_mhz,to_mem_mhz,latency_s\n"
               "auto,auto,1000,auto,0.0005\n1000,auto,auto,auto,0.001\n";
    }

    [[nodiscard]] int lowered() const {
        const std::string writes = text_of(path("writes"));
        int times = 0;
        for (std::size_t at = 0; (at = writes.find("core(210, 1000)\n", at)) != std::string::npos;
             ++at)
            ++times;
        return times;
    }
    [[nodiscard]] bool is_free() const { return text_of(path("writes")).ends_with("core free\n"); }

    const std::vector<std::string> options{"--idle-clock", "1000", "--idle-after", "5ms"};
    const Environment measured{{"NVML_DOUBLE_LOG", path("writes")},
                               {"XDG_DATA_HOME", path("data")}};
    const Environment unknown{{"NVML_DOUBLE_LOG", path("writes")}};
};

TEST_F(AttachedIdleClock, HoldsInPausesAlone) {
    // 150 ms of work at the highest clock, twice that at the idle clock.
    std::vector<std::string> with_memory = options;
    with_memory.insert(with_memory.end(), {"--idle-memory", "405"});
    const Outcome seen = run(with_memory, {PROGRAM, "6", "long", "pauses"}, measured);
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_GE(lowered(), 4) << text_of(path("writes")) << seen.notes();
    EXPECT_LE(lowered(), 7) << text_of(path("writes"));
    EXPECT_NE(text_of(path("writes")).find("memory(405, 405)\n"), std::string::npos)
        << text_of(path("writes"));
    EXPECT_TRUE(text_of(path("writes")).ends_with(" free\n")) << text_of(path("writes"));
    const json gemm = seen.row("gemm");
    EXPECT_LT(gemm["time_s"].get<double>() / gemm["metered_calls"].get<int>(), 1.4 * 8e-3)
        << "a stream worked at the idle clock";
    const json idle = seen.report["processes"][0]["devices"][0]["report"]["idle_clock"];
    ASSERT_TRUE(idle.is_object()) << seen.notes();
    EXPECT_EQ(idle["times"], lowered());
    EXPECT_GT(idle["time_s"], 0.1);
    EXPECT_EQ(seen.notes().find("not seen"), std::string::npos) << seen.notes();
}

TEST_F(AttachedIdleClock, IsOffByDefaultAndLetsWakesCostOnePercent) {
    EXPECT_EQ(run({}, {PROGRAM, "4", "pauses"}, measured).exit_code(), 0);
    EXPECT_EQ(text_of(path("writes")), "");
    // Nobody has measured this board: a wake is taken to cost 150 ms, which 15 s must have earned.
    const Outcome seen = run(options, {PROGRAM, "4", "pauses"}, unknown);
    EXPECT_EQ(lowered(), 0) << text_of(path("writes"));
    EXPECT_NE(seen.notes().find("a wake is taken to cost 150 ms"), std::string::npos)
        << seen.notes();
    std::vector<std::string> both = options;
    both.insert(both.end(), {"--sweep", path("profile.csv")});
    EXPECT_EQ(run(both, {PROGRAM}).exit_code(), 1);
}

/// The program then waits for longer than `comes` does.
TEST_F(AttachedIdleClock, IsGivenUpForAKernelThatNobodySaw) {
    const pid_t child = start_run(options, {PROGRAM, "3", "unseen", "pauses", "waits"}, measured);
    EXPECT_TRUE(comes([&] { return lowered() > 0; }));
    // Rests in its loop are short, the one behind it never.
    EXPECT_TRUE(comes([&] {
        const int times = lowered();
        if (!is_free()) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds{700});
        return is_free() && lowered() == times;
    }));
    ::kill(-child, SIGTERM);
    const Outcome seen = wait_for(child);
    EXPECT_NE(seen.notes().find("whose launch was not seen"), std::string::npos) << seen.notes();
    EXPECT_EQ(seen.report["processes"][0]["devices"][0]["report"]["idle_clock"]["times"],
              lowered());
}

/// A pipeline of two stages whose operations are fastest at clocks of their own.
void write_case(const std::string& path, int microbatches) {
    json pipeline{
        {"format", "pipeline-case-1"},  {"schedule", "gpipe"},    {"stages", 2},
        {"microbatches", microbatches}, {"blocking_power_w", 50}, {"profiles", json::array()}};
    for (int stage = 0; stage < 2; ++stage)
        for (const bool forward : {true, false}) {
            const int fastest = stage == 0 ? 1500 : forward ? 1500 : 1000;
            pipeline["profiles"].push_back({{"stage", stage},
                                            {"op", forward ? "forward" : "backward"},
                                            {"points", {{fastest, 0.1, 30}, {210, 0.3, 20}}}});
        }
    std::ofstream{path} << pipeline.dump();
}

class AttachedPipeline : public Attach {
protected:
    /// Runs 30 iterations of the double as the second of two ranks.
    Outcome run_stage(const std::vector<std::string>& more = {}, const char* argument = "") {
        std::vector<std::string> options{"--pipeline", path("case.json")};
        options.insert(options.end(), more.begin(), more.end());
        return run(
            options,
            {"sh", "-c", std::string{"RANK=1 WORLD_SIZE=2 exec "} + PROGRAM + " 30 " + argument},
            {{"NVML_DOUBLE_LOG", path("writes")}});
    }
};

TEST_F(AttachedPipeline, RunsItsStageAtThePlannedClocks) {
    write_case(path("case.json"), 1);
    const Outcome seen = run_stage();
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_EQ(seen.notes().find("pipeline"), std::string::npos) << seen.notes();
    const std::string writes = text_of(path("writes"));
    EXPECT_NE(writes.find("core(210, 1500)\n"), std::string::npos) << writes << seen.notes();
    EXPECT_NE(writes.find("core(210, 1000)\n"), std::string::npos) << writes;
    EXPECT_TRUE(writes.ends_with("core free\n")) << writes;
    EXPECT_EQ(seen.row("forward")["calls"], 30) << seen.report.dump(1);
    EXPECT_EQ(seen.row("forward")["applied"]["core_mhz"], 1500) << seen.report.dump(1);
    EXPECT_EQ(seen.row("backward")["applied"]["core_mhz"], 1000);
}

TEST_F(AttachedPipeline, LeavesTheClocksOfAnotherOneAndSaysSo) {
    write_case(path("case.json"), 2);  // the double has one microbatch
    using Options = std::vector<std::string>;
    for (const auto& [options, argument] : {std::pair{Options{}, ""},
                                            {Options{"--iteration", "step"}, ""},
                                            {Options{}, "numbered"}}) {
        const Outcome seen = run_stage(options, argument);
        EXPECT_EQ(seen.exit_code(), 0) << seen.err;
        EXPECT_NE(seen.notes().find("came where the pipeline has the forward "
                                    "of microbatch 1, chunk 0, on stage 1"),
                  std::string::npos)
            << seen.notes() << seen.err;
        EXPECT_NE(seen.notes().find("the range 'backward"), std::string::npos);
        // Where an iteration's begin is known it tries again in each of them.
        const std::string writes = text_of(path("writes"));
        EXPECT_TRUE(writes.ends_with("core free\n")) << writes;
        int forwards = 0;
        for (std::size_t at = 0; (at = writes.find("core(210, 1500)\n", at)) != std::string::npos;
             ++at)
            ++forwards;
        if (options.empty() && *argument == '\0')
            EXPECT_LE(forwards, 1) << writes;
        else
            EXPECT_GT(forwards, 10) << writes;
        std::filesystem::remove(path("writes"));
    }
}

TEST_F(AttachedPipeline, WithoutACaseStartsNoProgram) {
    const Outcome none = run_stage();
    EXPECT_EQ(none.exit_code(), 1);
    EXPECT_NE(none.err.find("case.json"), std::string::npos) << none.err;
    EXPECT_EQ(none.out, "");
    write_case(path("case.json"), 1);
    const Outcome late = run_stage({"--latency", "soon"});
    EXPECT_EQ(late.exit_code(), 1);
    EXPECT_NE(late.err.find("give a time such as 10ms"), std::string::npos) << late.err;
}

/// Ranks that a launcher starts below `kdvfs run`, each with a board of its own.
class UnderTorchrun : public Attach {
protected:
    Outcome run_ranks(std::vector<std::string> options, int ranks, int iterations) {
        return run(
            options,
            {"python3", TORCHRUN, std::to_string(ranks), PROGRAM, std::to_string(iterations)},
            {{"FOLDER", folder().string()}, {"XDG_STATE_HOME", path("state")}});
    }
    /// What one rank reported.
    static json report_of(const Outcome& seen, int rank) {
        for (const json& process : seen.report.value("processes", json::array()))
            if (process.value("rank", "") == std::to_string(rank) && !process["devices"].empty())
                return process["devices"][0]["report"];
        return {{"rows", json::array()}};
    }
    /// Calls of NVML for the board of one rank.
    [[nodiscard]] std::string writes_of(int rank) const {
        return text_of(folder() / ("writes." + std::to_string(rank)));
    }
};

TEST_F(UnderTorchrun, EachStageOfAPipelineHasItsClocks) {
    write_case(path("case.json"), 1);
    const Outcome seen = run_ranks({"--pipeline", path("case.json")}, 2, 30);
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_EQ(seen.notes().find("pipeline"), std::string::npos) << seen.notes();
    for (const int rank : {0, 1}) {
        const std::string writes = writes_of(rank);
        EXPECT_FALSE(report_of(seen, rank)["rows"].empty()) << seen.report.dump(1);
        EXPECT_NE(writes.find("core(210, 1500)\n"), std::string::npos) << writes;
        EXPECT_EQ(writes.find("core(210, 1000)\n") != std::string::npos, rank == 1) << writes;
        EXPECT_TRUE(writes.ends_with("core free\n")) << writes;
    }
}

TEST_F(Attach, MeasuresARunThatWouldSaveWithoutTheRights) {
    const Outcome seen = run({"--save", "--ledger", path("ledger.csv")}, {PROGRAM, "60"},
                             {{"CUDA_DOUBLE_REFUSES_CLOCKS", "1"}});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_EQ(seen.notes().find("without kdvfs"), std::string::npos) << seen.notes();
    const json report = seen.report["processes"][0]["devices"][0]["report"];
    EXPECT_TRUE(report["measure_only"]) << seen.report.dump(1);
    EXPECT_NE(report["device"]["mechanism"].get<std::string>().find("Insufficient Permissions"),
              std::string::npos)
        << report["device"];
    EXPECT_GT(seen.row("gemm")["calls"], 0) << seen.report.dump(1);
}

TEST_F(Attach, MeasuresARunThatIsAskedToSetNoClock) {
    const Outcome seen = run({"--save", "--measure-only", "--ledger", path("ledger.csv")},
                             {PROGRAM, "60"}, {{"NVML_DOUBLE_LOG", path("writes")}});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    const json report = seen.report["processes"][0]["devices"][0]["report"];
    EXPECT_TRUE(report["measure_only"]) << seen.report.dump(1);
    EXPECT_GT(seen.row("gemm")["calls"], 0) << seen.report.dump(1);
    EXPECT_EQ(text_of(path("writes")), "");
}

TEST_F(UnderTorchrun, RanksThatSaveAreLinkedAndLoseNoWork) {
    constexpr int ranks = 3;
    const Outcome seen = run_ranks({"--save", "--max-slowdown", "1%"}, ranks, 300);
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    for (int rank = 0; rank < ranks; ++rank) {
        const json report = report_of(seen, rank);
        int calls = 0;
        for (const json& row : report["rows"]) calls += row["calls"].get<int>();
        EXPECT_GE(calls, 300) << rank << seen.report.dump(1);
        const std::string writes = writes_of(rank);
        EXPECT_TRUE(writes.empty() || writes.ends_with("core free\n")) << writes;
    }
    const std::size_t at = seen.out.find("exchanged ");
    ASSERT_NE(at, std::string::npos) << seen.out;
    EXPECT_GE(std::stoi(seen.out.substr(at + 10)), 2) << seen.out << seen.err << seen.notes();
}

/// What makes a sweep of the double short: little is waited for, and a run may be slowed much.
Environment short_sweep() {
    return {{"CUDA_DOUBLE_FEW_CLOCKS", "1"},
            {"KDVFS_SWEEP_ROWS", "2"},
            {"KDVFS_SWEEP_BLOCK", "0.1"},
            {"KDVFS_SWEEP_WARM_UP", "1"},
            {"KDVFS_RUN_SLOWDOWN", "1000"}};
}

class AttachedSweep : public Attach {
protected:
    /// Sweeps a program into profile.csv; what a run has not measured when it ends, the next one
    /// does. @returns the sweep's last status
    json sweep(std::vector<std::string> options, const std::vector<std::string>& command) {
        Environment environment = short_sweep();
        environment["KDVFS_STATUS"] = path("status.json");
        options.insert(options.end(), {"--sweep", path("profile.csv")});
        json status = json::object();
        for (int runs = 0; runs < 4 && !status.value("done", false); ++runs) {
            const Outcome swept = run(options, command, environment);
            EXPECT_EQ(swept.exit_code(), 0) << swept.err;
            const json resolved = json::parse(text_of(path("status.json")), nullptr, false);
            if (!resolved.contains("sweep")) {
                ADD_FAILURE() << resolved << swept.notes();
                break;
            }
            status = resolved["sweep"];
            EXPECT_GT(status["points_measured"], 1) << resolved << swept.notes();
        }
        return status;
    }
    /// Plans what was swept, and runs a program by that. @returns what has a clock in the plan
    json follow(std::vector<std::string> options, const std::vector<std::string>& command) {
        const std::string plan = path("plan.json");
        const Outcome planned =
            wait_for(start({KDVFS_COMMAND, "plan", path("profile.csv"), "--max-slowdown", "60%",
                            "--format", "json", "-o", plan}));
        EXPECT_EQ(planned.exit_code(), 0) << planned.err;
        std::filesystem::permissions(plan, std::filesystem::perms::owner_read);
        options.insert(options.end(), {"--plan", plan});
        const Outcome followed =
            run(options, command,
                {{"CUDA_DOUBLE_FEW_CLOCKS", "1"}, {"NVML_DOUBLE_LOG", path("writes")}});
        EXPECT_EQ(followed.exit_code(), 0) << followed.err;
        const std::string writes = text_of(path("writes"));
        EXPECT_NE(writes.find("core(1000, "), std::string::npos)
            << text_of(plan) << followed.notes();
        EXPECT_TRUE(writes.ends_with("free\n")) << writes;
        json kernels = json::parse(text_of(plan), nullptr, false)["kernels"];
        for (const json& kernel : kernels) {
            const json asked = followed.most_called(kernel["kernel"].get<std::string>())["asked"];
            // The board's own choice is -1 in a plan and 0 in a report.
            EXPECT_EQ(asked["core_mhz"], std::max(kernel["core_mhz"].get<int>(), 0))
                << kernel << asked << followed.notes();
        }
        return kernels;
    }
};

/// The double launches its backward pass from a new thread in each iteration.
TEST_F(AttachedSweep, OfKernelsIsFollowedByAPlan) {
    const json status = sweep({}, {PROGRAM, "600"});
    EXPECT_TRUE(status["done"]) << status;
    EXPECT_EQ(status["points"], 6) << status;
    EXPECT_EQ(status["points_given_up"], 0) << status;
    EXPECT_GE(follow({}, {PROGRAM, "30"}).size(), 4U);
}

TEST_F(AttachedSweep, OfRangesIsFollowedByAPlan) {
    const std::vector<std::string> ranges{"--level", "range", "--iteration", "step"};
    const json status = sweep(ranges, {PROGRAM, "600"});
    EXPECT_TRUE(status["done"]) << status;
    EXPECT_EQ(status["points_given_up"], 0) << status;
    std::set<std::string> planned;
    for (const json& range : follow(ranges, {PROGRAM, "30"})) planned.insert(range["kernel"]);
    for (const char* range : {"step/forward", "step/backward", "step/optimizer"}) {
        EXPECT_TRUE(planned.contains(range)) << range << text_of(path("plan.json"));
    }
}

TEST_F(AttachedSweep, IsTunedByOneCommand) {
    if (std::getenv("KDVFS_TUNE_SOAK") == nullptr) GTEST_SKIP() << "minutes: ctest -C soak -L soak";
    const Outcome tuned = wait_for(
        start({KDVFS_COMMAND, "tune", "--max-slowdown", "60%", "--run-slowdown", "1000%", "--pairs",
               "4", "--switch-latency", "100us", "-o", path("tuned"), "--", PROGRAM, "600"},
              short_sweep()));
    // 3: a saving of some percent is not always told by four pairs of runs of a double that sleeps.
    EXPECT_TRUE(tuned.exit_code() == 0 || tuned.exit_code() == 3) << tuned.out << tuned.err;
    EXPECT_NE(tuned.out.find("slowdown up to 60 %: kept"), std::string::npos) << tuned.out;
    for (const char* file : {"profile.csv", "plan.json", "policies.hpp", "kept.json"}) {
        EXPECT_NE(text_of(folder() / "tuned" / file), "") << file;
    }
    // Blocks of one run were compared, or whole runs.
    const bool whole_runs = std::filesystem::exists(folder() / "tuned" / "runs.csv");
    const json followed = json::parse(
        text_of(folder() / "tuned" / (whole_runs ? "follow_status.json" : "compare_status.json")));
    EXPECT_GT(followed["followed_pct"], 90) << followed;
    // The forecast is of the order of what then comes: one run for each line that the double says,
    // but the two that try it out and those that compare.
    const std::size_t others = whole_runs ? 10 : 3;
    const std::string log = text_of(folder() / "tuned" / "program.log");
    std::size_t runs = 0;
    for (std::size_t at = 0; (at = log.find("output\n", at)) != std::string::npos; ++at) ++runs;
    ASSERT_GT(runs, others) << tuned.out << tuned.err;
    const std::size_t about = tuned.out.find("about ");
    ASSERT_NE(about, std::string::npos) << tuned.out;
    const double expected = std::strtod(tuned.out.c_str() + about + 6, nullptr);
    EXPECT_GE(expected, 1) << tuned.out;
    EXPECT_LE(expected, 5 * static_cast<double>(runs - others)) << tuned.out << tuned.err;
    std::cout << tuned.out;
}

TEST_F(Attach, PutsTheClocksBackOfAProgramThatIsKilled) {
    write_plan(path("plan.json"),
               json::array({planned("gemm", 8, 1000), planned("attention::flash<128>", 9, 1000),
                            planned("norm", 6, 1000), planned("adam", 11, 1000)}));
    const std::string smi = path("nvidia-smi");
    std::ofstream{smi} << "#!/bin/sh\necho \"$@\" >>" << path("calls") << '\n';
    std::filesystem::permissions(smi, std::filesystem::perms::owner_all);
    const pid_t child = start_run({"--plan", path("plan.json")},
                                  {"sh", "-c", std::string{PROGRAM} + " 100000; exit 9"},
                                  {{"NVML_DOUBLE_LOG", path("writes")}, {"KDVFS_NVIDIA_SMI", smi}});
    // Between its launches the clock is free, and while it is written nobody knows what it is: the
    // program stands still while its record is read, and dies where that says that 1000 MHz hold.
    pid_t program = 0;
    int looks = 0;
    const bool held = comes([&] {
        const auto before = record();
        if (!before || parent_of(parent_of(before->entry.process)) != child) return false;
        ++looks;
        if (!stop(before->entry.process)) return false;
        const auto now = record();
        if (now && !now->entry.history.uncertain && now->entry.history.written &&
            now->entry.history.written->cap.core.count == 1000) {
            program = now->entry.process;
            return true;
        }
        ::kill(before->entry.process, SIGCONT);
        return false;
    });
    if (!held) {
        const std::string before = seen_so_far();
        ::kill(child, SIGTERM);
        const Outcome ended = wait_for(child);
        FAIL() << looks << " looks" << before << "then:\n" << ended.notes() << ended.err;
    }
    EXPECT_EQ(text_of(path("calls")), "") << seen_so_far();
    ASSERT_EQ(::kill(program, SIGKILL), 0);
    const Outcome seen = wait_for(child);
    EXPECT_EQ(seen.exit_code(), 9) << seen_so_far() << seen.notes();
    EXPECT_TRUE(comes([&] {
        const auto left = record();
        return left && left->note.words == "restored";
    })) << looks
        << " looks" << seen_so_far() << seen.notes();
    EXPECT_EQ(text_of(path("calls")), "-i 0000:1b:00.0 -rgc\n") << seen_so_far() << seen.notes();
    // The board died with the program here: what its record says is of none that comes.
    for (const std::filesystem::path& root :
         {std::filesystem::path{kdvfs::detail::RestorePlace::machine_root}, folder() / "kdvfs"}) {
        std::error_code ignored;
        std::filesystem::remove(root / double_address / kdvfs::detail::record_name, ignored);
    }
}

}  // namespace
}  // namespace attached

#endif
