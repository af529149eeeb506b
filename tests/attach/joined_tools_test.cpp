// SPDX-License-Identifier: MIT
//
// Tools that the user has named already are called by kdvfs, never replaced.
#include "attach_fixture.hpp"

#include <string>

#if defined(ATTACH_LIBRARY)

namespace attached {
namespace {

TEST_F(Attach, PassesRangesOnToAnotherToolOfNvtx) {
    const Outcome seen =
        run({"--level", "range", "--iteration", "step"}, {PROGRAM, "20"},
            {{"NVTX_INJECTION64_PATH", TOOL_DOUBLE}, {"TOOL_DOUBLE_COUNTS", path("counts")}});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_EQ(text_of(path("counts")), "80 pushes, 80 pops, 0 kernels, sum of ends 0\n");
    seen.expect_runs("step/forward", 20);
    EXPECT_EQ(seen.notes().find("left out"), std::string::npos) << seen.notes();
}

/// Libraries open ranges in each of their calls where there is a tool, which costs time.
TEST_F(Attach, IsAToolOfNvtxOnlyWhereRangesMatter) {
    EXPECT_EQ(run({}, {PROGRAM, "3", "nvtx"}).out, "output\nno NVTX tool\n");
    EXPECT_EQ(run({"--iteration", "step"}, {PROGRAM, "3", "nvtx"}).out, "output\nan NVTX tool\n");
    const Outcome other =
        run({}, {PROGRAM, "20", "nvtx"},
            {{"NVTX_INJECTION64_PATH", TOOL_DOUBLE}, {"TOOL_DOUBLE_COUNTS", path("counts")}});
    EXPECT_EQ(other.out, "output\nan NVTX tool\n");
    EXPECT_EQ(text_of(path("counts")), "80 pushes, 80 pops, 0 kernels, sum of ends 0\n");
}

TEST_F(Attach, SaysWhichToolOfNvtxItCouldNotJoin) {
    for (const auto& [tool, refuses] :
         {std::pair{std::string{"/nowhere/tool.so"}, ""}, {std::string{TOOL_DOUBLE}, "1"}}) {
        Environment environment{{"NVTX_INJECTION64_PATH", tool},
                                {"TOOL_DOUBLE_COUNTS", path("counts")}};
        if (*refuses != '\0') environment["TOOL_DOUBLE_REFUSES"] = refuses;
        const Outcome seen =
            run({"--level", "range", "--iteration", "step"}, {PROGRAM, "20"}, environment);
        EXPECT_EQ(seen.exit_code(), 0) << seen.err;
        seen.expect_runs("step/forward", 20);
        EXPECT_NE(seen.notes().find("the NVTX tool " + tool + " is left out"), std::string::npos)
            << seen.notes();
    }
    EXPECT_EQ(text_of(path("counts")), "0 pushes, 0 pops, 0 kernels, sum of ends 0\n");
}

TEST_F(Attach, PassesKernelsOnToAnotherToolOfKokkos) {
#if defined(KOKKOS_PROGRAM)
    const auto environment = [this](const char* counts) {
        return Environment{{"KOKKOS_PROFILE_LIBRARY", TOOL_DOUBLE},
                           {"TOOL_DOUBLE_COUNTS", path(counts)}};
    };
    const Outcome alone = wait_for(start({KOKKOS_PROGRAM, "100"}, environment("alone")));
    ASSERT_EQ(alone.exit_code(), 0) << alone.err;
    ASSERT_NE(text_of(path("alone")).find("00 kernels"), std::string::npos);
    const Outcome seen = run({"--old-kokkos", "--level", "range", "--iteration", "solver"},
                             {KOKKOS_PROGRAM, "100"}, environment("counts"));
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    // The other tool has Kokkos wait around each kernel that a tool is told of: of kdvfs's, too.
    EXPECT_GE(std::stoi(seen.out), std::stoi(alone.out)) << seen.out << alone.out;
    EXPECT_GT(std::stoi(alone.out), 0);
    EXPECT_EQ(text_of(path("counts")), text_of(path("alone")));
    seen.expect_runs("solver/axpy", 100);
#else
    GTEST_SKIP() << "no Kokkos here (Debian: libtrilinos-kokkos-dev)";
#endif
}

}  // namespace
}  // namespace attached

#endif
