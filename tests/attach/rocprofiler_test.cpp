// SPDX-License-Identifier: MIT
#include "attach_fixture.hpp"

#include <map>
#include <string>

#if defined(HIP_PROGRAM) && defined(ATTACH_LIBRARY)

namespace attached {
namespace {

/// HIP programs where the process has (a double of) rocprofiler-sdk.
class Rocprofiler : public Attach {
protected:
    Environment sdk_{{"HIP_DOUBLE_ROCPROFILER", ROCPROFILER}};

    static void expect_calls(const Outcome& seen, const std::map<std::string, int>& expected) {
        EXPECT_EQ(seen.exit_code(), 0) << seen.err;
        for (const auto& [kernel, calls] : expected) {
            ASSERT_FALSE(seen.row(kernel).is_null()) << kernel << seen.report.dump(1);
            EXPECT_EQ(seen.row(kernel)["calls"], calls) << kernel;
            EXPECT_EQ(seen.row(kernel)["metered_calls"], calls) << kernel;
        }
    }
};

TEST_F(Rocprofiler, TellsTimesWithoutMarkers) {
    for (const char* version : {"600", "10000"}) {
        Environment environment = sdk_;
        environment["ROCPROFILER_DOUBLE_VERSION"] = version;
        const Outcome seen = run({"--preload"}, {HIP_PROGRAM, "50"}, environment);
        // gemm: four times an iteration, and once in its graph.
        expect_calls(seen, {{"gemm", 250},
                            {"norm<float>", 200},
                            {"module_kernel", 100},
                            {"memcpy HtoD", 1},
                            {"memcpy DtoH", 1}});
        seen.expect_runs("graph of 1 node", 50);
        EXPECT_GE(seen.row("gemm")["time_s"].get<double>(), 250 * 300e-6);
        EXPECT_NE(seen.notes().find("markers: none"), std::string::npos) << seen.notes();
    }
    const Outcome ranges =
        run({"--preload", "--level", "range", "--iteration", "step"}, {HIP_PROGRAM, "40"}, sdk_);
    ranges.expect_runs("step/layers", 40);
    EXPECT_GE(ranges.seconds_a_run("step/layers"), 8 * 300e-6);
    Environment off = sdk_;
    off["KDVFS_ROCPROFILER"] = "off";
    const Outcome by_markers = run({"--preload", "--meter", "1"}, {HIP_PROGRAM, "5"}, off);
    EXPECT_EQ(by_markers.row("graph of 1 node")["calls"], 5);
    EXPECT_EQ(by_markers.notes().find("markers: none"), std::string::npos);
}

/// Whatever way they take into the library, and whoever looked for the function.
TEST_F(Rocprofiler, SeesEveryLaunch) {
    const Outcome seen = run(
        {"--preload"}, {HIP_LOOKUP_PROGRAM, "40", "extension", "several", "graph", "copy"}, sdk_);
    expect_calls(seen, {{"gemm", 40},
                        {"triton_poi_fused_gelu_0", 120},
                        {"triton_red_fused_norm_1", 80},
                        {"attention", 40},
                        {"several", 80},
                        {"in_graph", 120},
                        {"memcpy HtoD", 40}});
    EXPECT_EQ(seen.most_called("several")["variant"], 3);  // 4 blocks
    EXPECT_EQ(seen.notes().find("not seen"), std::string::npos) << seen.notes();
}

TEST_F(Rocprofiler, LeavesOtherToolsAsTheyAre) {
    Environment environment = sdk_;
    environment["ROCP_TOOL_LIBRARIES"] = ROCPROFILER_CLIENT;
    environment["ROCPROFILER_CLIENT_COUNTS"] = path("counts");
    const Outcome seen = run({"--preload"}, {HIP_LOOKUP_PROGRAM, "20", "graph"}, environment);
    expect_calls(seen, {{"gemm", 20}, {"in_graph", 60}});
    EXPECT_EQ(text_of(path("counts")), std::to_string(20 * (6 + 3)) + '\n');
}

TEST_F(Rocprofiler, TellsRangesOfARoctxThatTheProgramHasOpened) {
    const std::string roctx = std::string{"roctx="} + ROCTX;
    const std::vector<std::string> options{"--preload", "--level", "range", "--iteration", "step"};
    for (const char* version : {"600", "10000"}) {
        Environment environment = sdk_;
        environment["ROCPROFILER_DOUBLE_VERSION"] = version;
        const Outcome seen = run(options, {HIP_LOOKUP_PROGRAM, "30", roctx}, environment);
        seen.expect_runs("step", 30);
        EXPECT_GE(seen.seconds_a_run("step"), 6 * 300e-6);
    }
}

}  // namespace
}  // namespace attached

#endif
