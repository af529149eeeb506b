// SPDX-License-Identifier: MIT
//
// Names, iterations and ranges of attached programs, and where they are shown.
#include "attach_fixture.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#if defined(HAS_HTTPLIB)
#include <httplib.h>
#endif

#if defined(ATTACH_LIBRARY)

namespace attached {
namespace {

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
    ASSERT_EQ(totals["together"]["status"], "resolved");
    const double parts =
        totals["together"]["joules"].get<double>() + totals["unexplained_j"].get<double>();
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

/// CUPTI on an H200 crashed where its records were switched while the program ran.
TEST_F(Attach, DoesNotSwitchRecordsWhileTheProgramRuns) {
    const Outcome seen = run({"--meter", "16", "--iteration", "step"}, {PROGRAM, "100"},
                             {{"CUPTI_DOUBLE_COUNTS", path("counts")}});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.row("gemm")["calls"], 800);
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 7 * 8);  // one of each 16, none lost
    EXPECT_EQ(seen.notes().find("could not be taken"), std::string::npos) << seen.notes();
    std::istringstream counts{text_of(path("counts"))};
    int records = 0;
    int switched_off = -1;
    counts >> records >> switched_off;
    EXPECT_GE(records, 100 * 26) << counts.str();
    EXPECT_EQ(switched_off, 0) << counts.str();
}

TEST_F(Attach, HasNoRecordsWhereNothingIsMetered) {
    const Outcome seen =
        run({"--meter", "0"}, {PROGRAM, "20"}, {{"CUPTI_DOUBLE_COUNTS", path("counts")}});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.report["processes"][0]["devices"][0]["launches"], 20 * 26 + 1);
    EXPECT_EQ(seen.row("gemm")["calls"], 160);
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 0);
    EXPECT_EQ(std::atoi(text_of(path("counts")).c_str()), 0) << text_of(path("counts"));
}

TEST_F(Attach, FindsIterationsWhereSomeRangesAreAskedFor) {
    const Outcome seen = run({"--level", "range", "--match", "ward$"}, {PROGRAM, "60"});
    const json& iterations = seen.report["processes"][0]["devices"][0]["iterations"];
    EXPECT_EQ(iterations["by"], "period");
    EXPECT_EQ(iterations["launches"], 26) << iterations;
}

TEST_F(Attach, NamesCopiesThatTheProgramWaitsFor) {
    const Outcome seen = run({}, {PROGRAM, "20", "reads"});
    EXPECT_EQ(seen.exit_code(), 0);
    ASSERT_FALSE(seen.row("memcpy DtoH").is_null()) << seen.report.dump(1);
    EXPECT_EQ(seen.row("memcpy DtoH")["calls"], 20);
    EXPECT_EQ(seen.row("memcpy DtoH")["metered_calls"], 20);
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 160);
}

/// Autograd launches the backward from a thread of its own, where libraries open ranges of theirs.
TEST_F(Attach, MakesRangesScopesOnWhateverThreadLaunches) {
    const Outcome seen = run({"--level", "range", "--iteration", "step"}, {PROGRAM, "40"});
    EXPECT_EQ(seen.exit_code(), 0);
    double parts = 0;
    for (const char* range : {"step/forward", "step/backward", "step/optimizer"}) {
        seen.expect_runs(range, 40);
        EXPECT_TRUE(seen.row(range).is_null()) << "its kernels have the rows";
        parts += seen.seconds_a_run(range);
    }
    seen.expect_runs("step", 40);
    EXPECT_NEAR(seen.seconds_a_run("step"), parts, 0.05 * parts);
    // Four layers of 800 us forward, as much backward, from another thread.
    EXPECT_GE(seen.seconds_a_run("step/backward"), 0.999 * 3.2e-3);
    EXPECT_TRUE(seen.range("blas").is_null()) << seen.report.dump(1);
    EXPECT_EQ(seen.range("outside ranges")["runs"], 1);  // the copy
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 40 * 8);
    static_cast<void>(
        run({"--level", "range", "--report", path("report.txt"), "--report", path("page.html")},
            {PROGRAM, "20"}));
    const std::string text = text_of(path("report.txt"));
    EXPECT_NE(text.find("\nrange, by the kernels in it "), std::string::npos) << text;
    EXPECT_NE(text.find("\nstep/forward "), std::string::npos) << text;
    EXPECT_NE(text_of(path("page.html")).find("Measured energy of each range"), std::string::npos);
    EXPECT_EQ(seen.report["processes"][0]["devices"][0]["iterations"]["count"], 40);
}

TEST_F(Attach, TakesTheRangesOfLibrariesWhereTheProgramHasNone) {
    const Outcome seen = run({"--level", "range"}, {PROGRAM, "20", "unnamed"});
    EXPECT_EQ(seen.exit_code(), 0);
    seen.expect_runs("blas", 20);
    EXPECT_GE(seen.seconds_a_run("blas"), 3.2e-3);
    seen.expect_runs("outside ranges", 20 * 14 + 1);  // forward, optimizer, the copy
}

TEST_F(Attach, TakesTheRangesThatAreAskedFor) {
    const Outcome seen =
        run({"--level", "range", "--iteration", "step", "--match", "ward$"}, {PROGRAM, "20"});
    EXPECT_EQ(seen.exit_code(), 0);
    for (const char* range : {"forward", "backward"}) {
        seen.expect_runs(range, 20);
        EXPECT_GE(seen.seconds_a_run(range), 3.2e-3) << range;
    }
    seen.expect_runs("outside ranges", 41);  // the copy and the optimizer's launches
    EXPECT_EQ(seen.report["processes"][0]["devices"][0]["iterations"]["count"], 20);
    const Outcome librarys = run({"--level", "range", "--match", "^(step|blas)$"}, {PROGRAM, "20"});
    librarys.expect_runs("blas", 20);
}

TEST_F(Attach, SeesTheKernelsOfGraphsAndPutsNothingIntoCaptures) {
    const Outcome seen = run({}, {PROGRAM, "30", "graph"});
    EXPECT_EQ(seen.exit_code(), 0);  // 6 where something was written into the capture
    seen.expect_runs("graph of 26 nodes", 30);
    for (const auto& [kernel, calls, least_us] :
         std::vector<std::tuple<const char*, int, double>>{{"gemm", 240, 400},
                                                           {"attention::flash<128>", 240, 300},
                                                           {"norm", 240, 100},
                                                           {"adam", 60, 500}}) {
        ASSERT_FALSE(seen.row(kernel).is_null()) << kernel << seen.report.dump(1);
        EXPECT_EQ(seen.row(kernel)["metered_calls"], calls) << kernel;
        EXPECT_EQ(seen.row(kernel)["calls"], calls) << kernel;
        EXPECT_GE(seen.row(kernel)["time_s"].get<double>(), 1e-6 * least_us * calls) << kernel;
    }
    EXPECT_EQ(seen.most_called("adam")["variant"], 11);  // 1024 blocks, as without a graph
    const Outcome lost = run({}, {PROGRAM, "30", "graph"}, {{"CUPTI_DOUBLE_LOSES_ONE_IN", "9"}});
    EXPECT_EQ(lost.exit_code(), 0);
    ASSERT_FALSE(lost.row("gemm").is_null()) << lost.report.dump(1);
    EXPECT_NEAR(lost.row("gemm")["metered_calls"].get<double>(), 240 * 8 / 9.0, 12);
}

TEST_F(Attach, SeesGraphsAsUnitsWhereItIsAsked) {
    const Outcome seen = run({}, {PROGRAM, "30", "graph"}, {{"KDVFS_ATTACH_GRAPHS", "whole"}});
    EXPECT_EQ(seen.exit_code(), 0);
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

/// Beside a run that was killed, and one whose report is damaged.
TEST_F(Attach, IsShownByTopWhileItRuns) {
    const pid_t gone = start({"true"});
    static_cast<void>(wait_for(gone));
    const std::filesystem::path runs = folder() / "kdvfs";
    const std::filesystem::path left_behind = runs / ("run." + std::to_string(gone));
    std::filesystem::create_directories(folder() / "damaged");
    std::filesystem::create_directories(runs);
    std::ofstream{folder() / "damaged" / "attached.1.json"} << R"({"devices":[{"report":{}}]})";
    std::ofstream{left_behind} << path("damaged");
    // Its process is of another PID namespace: it lives as long as its lock is held.
    const std::string elsewhere = left_behind.string() + ".1";
    std::ofstream{elsewhere} << path("damaged");
    const int lock = ::open(elsewhere.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(::flock(lock, LOCK_EX), 0);
    const pid_t child = start_run({"--level", "range"}, {PROGRAM, "100000"});
    std::string shown;
    static_cast<void>(comes([&] {
        const pid_t top = start({"sh", "-c", KDVFS_COMMAND " top --once >" + path("top")});
        static_cast<void>(wait_for(top));
        shown = text_of(path("top"));
        return shown.find("gemm") != std::string::npos &&
               shown.find("step/forward") != std::string::npos;
    }));
    EXPECT_NE(shown.find("gemm"), std::string::npos) << shown;
    EXPECT_NE(shown.find("\nrange "), std::string::npos) << shown;
    EXPECT_NE(shown.find("\nstep/forward "), std::string::npos) << shown;
    EXPECT_NE(shown.find("Double of an NVIDIA GPU: "), std::string::npos) << shown;
    EXPECT_NE(shown.find("power %"), std::string::npos) << shown;
    EXPECT_FALSE(std::filesystem::exists(left_behind));
    EXPECT_TRUE(std::filesystem::exists(elsewhere));
    ::close(lock);
    const pid_t top = start({"sh", "-c", KDVFS_COMMAND " top --once --json >" + path("json")});
    EXPECT_EQ(wait_for(top).exit_code(), 0);
    const json look = json::parse(text_of(path("json")), nullptr, false);
    ASSERT_TRUE(look.is_object()) << text_of(path("json"));
    EXPECT_EQ(look["processes"], 1);
    EXPECT_EQ(look["boards"].size(), 1U) << look;
    for (const auto& [list, name] : {std::pair{"kernels", "gemm"}, {"ranges", "step/forward"}}) {
        EXPECT_TRUE(std::any_of(look[list].begin(), look[list].end(),
                                [wanted = name](const json& line) {
                                    return line["name"] == wanted && line["time_s"] > 0;
                                }))
            << list << look;
    }
    ::kill(child, SIGTERM);
    static_cast<void>(wait_for(child));
}

TEST_F(Attach, ServesMetricsOnTheLoopback) {
#if defined(HAS_HTTPLIB)
    const pid_t child = start_run({"--metrics", "0"}, {PROGRAM, "100000"});
    int port = 0;
    ASSERT_TRUE(comes([&] {
        const std::string said = text_of(path("err"));
        const std::string before = "kdvfs: metrics at http://127.0.0.1:";
        const std::size_t at = said.find(before);
        if (at != std::string::npos) port = std::atoi(said.c_str() + at + before.size());
        return port > 0;
    })) << text_of(path("err"));
    httplib::Client client{"127.0.0.1", port};
    std::string text;
    static_cast<void>(comes([&] {
        const auto answer = client.Get("/metrics");
        if (!answer) return false;
        EXPECT_EQ(answer->status, 200);
        EXPECT_EQ(answer->get_header_value("Content-Type").find("text/plain; version=0.0.4"), 0U);
        text = answer->body;
        return text.find("\"gemm\"") != std::string::npos;
    }));
    EXPECT_NE(text.find("kdvfs_kernel_launches_total{hw_id=\"0000:1b:00.0\",kernel=\"gemm\","),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("\nhw_energy_joules_total{hw_id=\"0000:1b:00.0\",hw_type=\"gpu\""),
              std::string::npos)
        << text;
    EXPECT_EQ(client.Get("/else")->status, 404);
    const Outcome second = run({"--metrics", std::to_string(port)}, {PROGRAM, "1"});
    EXPECT_EQ(second.out, "") << "two runs share a port";
    EXPECT_NE(second.err.find("give another port"), std::string::npos) << second.err;
    ::kill(child, SIGTERM);
    const Outcome seen = wait_for(child);
    EXPECT_EQ(WTERMSIG(seen.status), SIGTERM);
    const Outcome refused = run({"--metrics", "port"}, {PROGRAM, "1"});
    EXPECT_EQ(refused.out, "");  // said before the program is started
    EXPECT_NE(refused.err.find("the port is not a number"), std::string::npos) << refused.err;
#else
    GTEST_SKIP() << "no cpp-httplib here (Debian: libcpp-httplib-dev)";
#endif
}

#if defined(HIP_PROGRAM)
TEST_F(Attach, StandsBeforeTheLaunchesOfHip) {
    const Outcome seen = run({"--preload", "--meter", "1"}, {HIP_PROGRAM, "50"});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_EQ(seen.out, "output\n");
    for (const auto& [kernel, calls] : std::map<std::string, int>{{"gemm", 200},
                                                                  {"norm<float>", 200},
                                                                  {"module_kernel", 100},
                                                                  {"graph of 1 node", 50},
                                                                  {"memcpy HtoD", 1},
                                                                  {"memcpy DtoH", 1}}) {
        ASSERT_FALSE(seen.row(kernel).is_null()) << kernel << seen.report.dump(1) << seen.notes();
        EXPECT_EQ(seen.row(kernel)["calls"], calls) << kernel;
    }
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 200);
    EXPECT_GE(seen.row("gemm")["time_s"].get<double>(), 200 * 300e-6);
    EXPECT_EQ(seen.report["processes"][0]["devices"][0]["iterations"]["launches"], 11);
}

TEST_F(Attach, LeavesTheErrorOfALaunchToTheProgram) {
    const Outcome seen =
        run({"--preload", "--meter", "1"}, {HIP_PROGRAM, "20"}, {{"HIP_DOUBLE_FAILS", "1"}});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 20 * 4) << "those that failed took no time";
}

/// As Triton does, and so torch.compile and vLLM.
TEST_F(Attach, StandsBeforeLaunchesThatAreLookedUpInHip) {
    const Outcome seen = run({"--preload", "--meter", "1"}, {HIP_LOOKUP_PROGRAM, "50"});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    for (const auto& [kernel, calls] : std::map<std::string, int>{
             {"gemm", 50}, {"triton_poi_fused_gelu_0", 150}, {"triton_red_fused_norm_1", 100}}) {
        ASSERT_FALSE(seen.row(kernel).is_null()) << kernel << seen.report.dump(1) << seen.notes();
        EXPECT_EQ(seen.row(kernel)["calls"], calls) << kernel;
        EXPECT_EQ(seen.row(kernel)["metered_calls"], calls) << kernel;
    }
}

TEST_F(Attach, TakesRangesOfRoctxAndKokkos) {
    const Outcome seen =
        run({"--preload", "--meter", "1", "--level", "range", "--iteration", "step"},
            {HIP_PROGRAM, "40"});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    seen.expect_runs("step/layers", 40);
    seen.expect_runs("step/axpy", 40);
}
#endif

TEST_F(Attach, WorthKnowsTheBoardAndItsLimitFromTheDriver) {
    const Outcome seen = wait_for(start({KDVFS_COMMAND, "worth", "--", PROGRAM, "400"}));
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_NE(seen.out.find("Double of an NVIDIA GPU: "), std::string::npos) << seen.out;
    EXPECT_NE(seen.out.find("% of 700 W\n"), std::string::npos) << seen.out;
}

TEST_F(Attach, TakesTheNamesOfTheRealKokkosAndAsksForNoFence) {
#if defined(KOKKOS_PROGRAM)
    const Outcome seen =
        run({"--old-kokkos", "--level", "range", "--iteration", "solver"}, {KOKKOS_PROGRAM, "100"});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_EQ(seen.out, "0 fences\n");
    EXPECT_EQ(seen.err, "");
    for (const char* range : {"solver", "solver/axpy", "solver/dot"}) {
        seen.expect_runs(range, 100);
    }
    EXPECT_GE(seen.seconds_a_run("solver/axpy"), 0.999 * 4 * 200e-6);
    EXPECT_EQ(seen.report["processes"][0]["devices"][0]["launches"], 100 * 6);
#else
    GTEST_SKIP() << "no Kokkos here (Debian: libtrilinos-kokkos-dev)";
#endif
}

}  // namespace
}  // namespace attached

#endif
