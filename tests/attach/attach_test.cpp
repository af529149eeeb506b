// SPDX-License-Identifier: MIT
//
// `kdvfs run` on doubles of CUDA's driver, CUPTI and NVML, around a program that knows of none.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#if defined(ATTACH_LIBRARY)

namespace {

using nlohmann::json;
using Environment = std::map<std::string, std::string>;

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

/// How a command ended, what it printed, and the report that it wrote, where it did.
struct Outcome {
    int status = -1;
    std::string out;
    std::string err;
    json report;

    [[nodiscard]] int exit_code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
    /// All rows of a kernel, whatever their variants, as one; null where there is none.
    [[nodiscard]] json row(std::string_view kernel) const {
        json sum;
        for (const json& row : rows(kernel)) {
            if (sum.is_null()) {
                sum = row;
                continue;
            }
            for (const char* key : {"calls", "metered_calls"}) {
                sum[key] = sum[key].get<int>() + row[key].get<int>();
            }
            sum["time_s"] = sum["time_s"].get<double>() + row["time_s"].get<double>();
        }
        return sum;
    }
    [[nodiscard]] std::vector<json> rows(std::string_view kernel) const {
        std::vector<json> found;
        if (report.is_null()) return found;
        for (const json& row : report["rows"]) {
            if (row["kernel"] == kernel) found.push_back(row);
        }
        return found;
    }
    [[nodiscard]] std::string notes() const {
        std::string all;
        if (report.is_null()) return all;
        for (const json& process : report["processes"]) {
            for (const json& note : process["notes"]) all += note.get<std::string>() + '\n';
            for (const json& device : process["devices"]) {
                for (const json& note : device["report"]["notes"]) all += note.get<std::string>();
            }
        }
        return all;
    }
};

class Attach : public testing::Test {
protected:
    Attach() {
        std::string name = (std::filesystem::temp_directory_path() / "attach_XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    ~Attach() override { std::filesystem::remove_all(folder_); }

    /// Starts `words` with the doubles in its reach.
    pid_t start(const std::vector<std::string>& words, const Environment& more = {}) {
        Environment environment{{"PATH", std::getenv("PATH")},
                                {"KDVFS_ATTACH", ATTACH_LIBRARY},
                                {"KDVFS_CUPTI", CUPTI},
                                {"KDVFS_NVML", NVML_DOUBLE},
                                {"XDG_RUNTIME_DIR", folder_.string()}};
        for (const auto& [name, value] : more) environment[name] = value;
        std::vector<std::string> variables;
        for (const auto& [name, value] : environment) variables.push_back(name + '=' + value);
        const auto pointers = [](const std::vector<std::string>& texts) {
            std::vector<char*> result;
            for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
            result.push_back(nullptr);
            return result;
        };
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_addopen(&actions, 1, path("out").c_str(),
                                           O_WRONLY | O_CREAT | O_TRUNC, 0600);
        ::posix_spawn_file_actions_addopen(&actions, 2, path("err").c_str(),
                                           O_WRONLY | O_CREAT | O_TRUNC, 0600);
        pid_t child = 0;
        EXPECT_EQ(::posix_spawnp(&child, words.front().c_str(), &actions, nullptr,
                                 pointers(words).data(), pointers(variables).data()),
                  0);
        ::posix_spawn_file_actions_destroy(&actions);
        return child;
    }
    Outcome wait_for(pid_t child) {
        Outcome outcome;
        ::waitpid(child, &outcome.status, 0);
        outcome.out = text_of(path("out"));
        outcome.err = text_of(path("err"));
        const std::string report = text_of(path("report.json"));
        outcome.report = json::parse(report, nullptr, false);
        if (outcome.report.is_discarded()) outcome.report = nullptr;
        return outcome;
    }

    /// `kdvfs run --report report.json OPTIONS -- COMMAND`
    pid_t start_run(const std::vector<std::string>& options,
                    const std::vector<std::string>& command, const Environment& more = {}) {
        std::vector<std::string> words{KDVFS_COMMAND, "run", "--report", path("report.json")};
        words.insert(words.end(), options.begin(), options.end());
        words.emplace_back("--");
        words.insert(words.end(), command.begin(), command.end());
        return start(words, more);
    }
    Outcome run(const std::vector<std::string>& options, const std::vector<std::string>& command,
                const Environment& more = {}) {
        return wait_for(start_run(options, command, more));
    }

    [[nodiscard]] std::string path(const char* name) const { return (folder_ / name).string(); }

private:
    std::filesystem::path folder_;
};

TEST_F(Attach, NamesEachLaunchAndFindsTheIterations) {
    const Outcome seen = run({}, {PROGRAM, "60"});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.out, "output\n");
    EXPECT_EQ(seen.err, "");
    for (const auto& [kernel, calls] : std::map<std::string, int>{
             {"gemm", 480}, {"attention::flash<128>", 480}, {"norm", 480}, {"adam", 120}}) {
        const json row = seen.row(kernel);
        ASSERT_FALSE(row.is_null()) << kernel << seen.report.dump(1);
        EXPECT_EQ(row["calls"], calls) << kernel;
        EXPECT_EQ(row["metered_calls"], calls) << kernel;  // no record was lost
    }
    EXPECT_GE(seen.row("gemm")["time_s"].get<double>(), 480 * 400e-6);
    EXPECT_EQ(seen.row("memcpy HtoD")["calls"], 1);
    const json& iterations = seen.report["processes"][0]["devices"][0]["iterations"];
    EXPECT_EQ(iterations["by"], "period");
    EXPECT_EQ(iterations["launches"], 26);
    EXPECT_GE(iterations["count"], 35);
    EXPECT_EQ(iterations["alike"], 1);
    const json& totals = seen.report["totals"];
    ASSERT_EQ(totals["kernels"]["status"], "resolved");
    const json& idle = totals["idle"]["joules"];  // null where it cannot be told from kernels
    const double parts = totals["kernels"]["joules"].get<double>() +
                         (idle.is_null() ? 0 : idle.get<double>()) +
                         totals["unexplained_j"].get<double>();
    EXPECT_NEAR(parts, totals["counter_j"].get<double>(), 1e-6 * parts);
}

TEST_F(Attach, TellsWorkOfOneNameAndGridApartByItsTime) {
    const Outcome seen = run({}, {PROGRAM, "20", "persistent"});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.row("persistent")["calls"], 40);
    double shortest = 1;
    double longest = 0;
    for (const json& row : seen.rows("persistent")) {
        const double mean = row["time_s"].get<double>() / row["metered_calls"].get<double>();
        shortest = std::min(shortest, mean);
        longest = std::max(longest, mean);
        EXPECT_EQ(row["variant"].get<int>() % 64, 8);  // 132 blocks
    }
    EXPECT_GT(longest, 1.6 * shortest) << seen.report.dump(1);
}

TEST_F(Attach, MakesRangesScopesOnWhateverThreadLaunches) {
    const Outcome seen = run({"--level", "range", "--iteration", "step"}, {PROGRAM, "40"});
    EXPECT_EQ(seen.exit_code(), 0);
    for (const char* range : {"step/forward", "step/backward", "step/optimizer"}) {
        ASSERT_FALSE(seen.row(range).is_null()) << range << seen.report.dump(1);
        EXPECT_EQ(seen.row(range)["calls"], 40) << range;
        EXPECT_EQ(seen.row(range)["metered_calls"], 40) << range;
    }
    // Four layers of 800 us forward, as much backward, from another thread.
    EXPECT_GE(seen.row("step/backward")["time_s"].get<double>(), 40 * 3.2e-3);
    EXPECT_EQ(seen.row("outside ranges")["calls"], 1);  // the copy
    EXPECT_EQ(seen.report["processes"][0]["devices"][0]["iterations"]["count"], 40);
}

TEST_F(Attach, SeesGraphsAsUnitsAndPutsNothingIntoCaptures) {
    const Outcome seen = run({}, {PROGRAM, "30", "graph"});
    EXPECT_EQ(seen.exit_code(), 0);  // 6 where something was written into the capture
    ASSERT_FALSE(seen.row("graph of 26 nodes").is_null()) << seen.report.dump(1);
    EXPECT_EQ(seen.row("graph of 26 nodes")["calls"], 30);
    EXPECT_TRUE(seen.row("gemm").is_null());
}

TEST_F(Attach, ReportsKernelsThatAreNotAskedForTogether) {
    const Outcome seen = run({"--match", "^gemm"}, {PROGRAM, "10"});
    EXPECT_EQ(seen.row("gemm")["calls"], 80);
    EXPECT_EQ(seen.row("other kernels")["calls"], 181);
    EXPECT_TRUE(seen.row("norm").is_null());
}

TEST_F(Attach, ObeysAPlanAndPutsTheClocksBack) {
    const auto kernel = [](const char* name, int variant, int clock) {
        json row{{"kernel", name}, {"variant", variant}, {"count", 8}, {"core_mhz", clock}};
        for (const char* key : {"time_pct", "energy_pct"}) row[key] = 0.0;
        for (const char* key : {"time_s", "baseline_time_s"}) row[key] = 0.0032;
        for (const char* key : {"energy_j", "baseline_energy_j"}) row[key] = 1.6;
        row["mem_mhz"] = -1;
        return row;
    };
    const json cost{{"time_s", 0.01}, {"energy_j", 5.0}, {"core_mhz", -1}, {"mem_mhz", -1}};
    const json plan{{"gpu", "Double of an NVIDIA GPU"},
                    {"objective", "waste"},
                    {"max_slowdown_pct", 2.0},
                    {"baseline", cost},
                    {"plan",
                     {{"aggregate", "global"},
                      {"time_s", 0.01},
                      {"energy_j", 5.0},
                      {"time_pct", 0.0},
                      {"energy_pct", 0.0},
                      {"gap_pct", 0.0}}},
                    {"kernels", json::array({kernel("gemm", 8, 1000), kernel("norm", 6, 1500)})}};
    std::ofstream{path("plan.json")} << plan.dump();
    std::filesystem::permissions(path("plan.json"), std::filesystem::perms::owner_read);
    const Outcome seen =
        run({"--plan", path("plan.json")}, {PROGRAM, "30"}, {{"NVML_DOUBLE_LOG", path("writes")}});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    const std::string writes = text_of(path("writes"));
    EXPECT_NE(writes.find("core(210, 1000)\n"), std::string::npos) << writes << seen.notes();
    EXPECT_NE(writes.find("core(210, 1500)\n"), std::string::npos) << writes;
    EXPECT_TRUE(writes.ends_with("core free\n")) << writes;
    EXPECT_EQ(seen.row("gemm")["asked"]["core_mhz"], 1000) << seen.report.dump(1);
}

TEST_F(Attach, IsShownByTopWhileItRuns) {
    const pid_t child = start_run({}, {PROGRAM, "100000"});
    Outcome shown;
    for (int tries = 0; tries < 60 && shown.out.find("gemm") == std::string::npos; ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds{250});
        int status = 0;
        ::waitpid(start({"sh", "-c", KDVFS_COMMAND " top --once >" + path("top")}), &status, 0);
        shown.out = text_of(path("top"));
    }
    EXPECT_NE(shown.out.find("gemm"), std::string::npos) << shown.out;
    EXPECT_NE(shown.out.find("Double of an NVIDIA GPU: "), std::string::npos) << shown.out;
    ::kill(child, SIGTERM);
    static_cast<void>(wait_for(child));
}

// What it must survive. The program's exit code, output and signals are its own.

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
    const pid_t child = start_run({}, {PROGRAM, "100000"});
    while (text_of(path("out")) != "output\n") {
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    ::kill(child, SIGTERM);
    const Outcome seen = wait_for(child);
    EXPECT_TRUE(WIFSIGNALED(seen.status));
    EXPECT_EQ(WTERMSIG(seen.status), SIGTERM);
}

TEST_F(Attach, IsNothingInAForkedChild) {
    const Outcome seen = run({}, {PROGRAM, "5", "fork"});
    EXPECT_EQ(seen.exit_code(), 0);
    ASSERT_EQ(seen.report["processes"].size(), 1U);
    EXPECT_EQ(seen.row("adam")["calls"], 12);
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
    EXPECT_EQ(seen.row("gemm")["energy"]["status"], "too_short_to_tell");
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

#if defined(HIP_PROGRAM)
TEST_F(Attach, StandsBeforeTheLaunchesOfHip) {
    const Outcome seen = run({"--preload", "--meter", "1"}, {HIP_PROGRAM, "50"});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_EQ(seen.out, "output\n");
    for (const auto& [kernel, calls] : std::map<std::string, int>{
             {"gemm", 200}, {"norm<float>", 200}, {"module_kernel", 100}, {"graph", 50}}) {
        ASSERT_FALSE(seen.row(kernel).is_null()) << kernel << seen.report.dump(1) << seen.notes();
        EXPECT_EQ(seen.row(kernel)["calls"], calls) << kernel;
    }
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 200);
    EXPECT_GE(seen.row("gemm")["time_s"].get<double>(), 200 * 300e-6);
    EXPECT_EQ(seen.report["processes"][0]["devices"][0]["iterations"]["launches"], 11);
}

TEST_F(Attach, TakesRangesOfRoctxAndKokkos) {
    const Outcome seen =
        run({"--preload", "--meter", "1", "--level", "range", "--iteration", "step"},
            {HIP_PROGRAM, "10"});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    ASSERT_FALSE(seen.row("step/layers").is_null()) << seen.report.dump(1) << seen.notes();
    EXPECT_EQ(seen.row("step/layers")["calls"], 10);
    EXPECT_EQ(seen.row("step/axpy")["calls"], 10);
}
#endif

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

#endif
