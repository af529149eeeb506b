// SPDX-License-Identifier: MIT
//
// The iteration's stand-ins: their work is what is described, and all of it is launched in its
// scopes. On the double of libamdhip64, where copies stand in for the kernels.
#include <examples/gpt3_iteration/scoped_iteration.hpp>
#include <examples/gpt3_iteration/stand_in.hpp>
#include <examples/gpt3_xl/kernel_work.hpp>
#include <tests/hip_double/gpu_on_double.hpp>
#include <tests/hip_double/hip_double.hpp>

#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

namespace gpt3 {
namespace {

constexpr unsigned blocks_of_an_mi210 = 8 * 104;

TEST(StandIns, BurnTheDescribedFlopsAndBytes) {
    for (std::size_t entry = 0; entry < kernel_count; ++entry) {
        const auto& work = kernel_work[entry];
        const StandIn stand_in = deal_out(work, blocks_of_an_mi210);
        const char* const name = published_table[entry].name.data();
        EXPECT_LE(stand_in.blocks, blocks_of_an_mi210) << name;
        // Half a step of every thread is the most that rounding may add or take.
        EXPECT_NEAR(stand_in.bytes() / work.memory_bytes, 1, 0.5 / stand_in.steps) << name;
        EXPECT_NEAR(stand_in.bytes() / work.memory_bytes, 1, 0.02) << name;
        if (work.matrix_flops > 0) {
            EXPECT_NEAR(stand_in.matrix_flops() / work.matrix_flops, 1, 0.01) << name;
        } else {
            EXPECT_EQ(stand_in.matrix_flops(), 0) << name;
        }
        EXPECT_NEAR(stand_in.vector_flops(), work.vector_flops,
                    std::max(0.05 * work.vector_flops, 1.0))
            << name;
    }
}

TEST(StandIns, RunTheWholeIterationInItsScopes) {
    using AtOwnClocks =
        kdvfs::PolicyRegistry<kdvfs::Bind<"gelu_11", kdvfs::CapClock<kdvfs::Megahertz{1100}>>,
                              kdvfs::Default<kdvfs::AutoClock>>;
    hip_double::reset({"0000:c1:00.0"});
    const auto board = std::make_shared<prompt::Board>();
    hipStream_t stream = nullptr;
    ASSERT_EQ(hipStreamCreate(&stream), hipSuccess);
    {
        const auto gpu = hip_double::open(board, {.meter_every = 1}).with<AtOwnClocks>();
        const StandIns stand_ins{std::size_t{1} << 16U};
        std::array<StandIn, kernel_count> kernels;
        std::uint64_t bytes = 0;
        for (std::size_t entry = 0; entry < kernel_count; ++entry) {
            auto work = kernel_work[entry];
            work.memory_bytes *= 1e-5;
            kernels[entry] = deal_out(work, stand_ins.blocks_at_once());
        }
        for (const std::size_t entry : launch_sequence()) {
            bytes += static_cast<std::uint64_t>(kernels[entry].bytes() / 2);
        }
        launch_iteration(gpu, stream,
                         [&](std::size_t entry) { stand_ins.launch(stream, kernels[entry]); });
        ASSERT_EQ(hipStreamSynchronize(stream), hipSuccess);
        EXPECT_EQ(hip_double::copied_bytes(), bytes);
        std::this_thread::sleep_for(
            std::chrono::milliseconds{30});  // for the counter's next sample
        gpu.next_iteration();
        const auto report = gpu.report();
        EXPECT_EQ(report.scopes.scopes, launch_count);
        ASSERT_EQ(report.rows.size(), kernel_count);
        for (const auto& kernel : published_table) {
            const auto row = std::find_if(report.rows.begin(), report.rows.end(),
                                          [&](auto& r) { return r.kernel.name == kernel.name; });
            ASSERT_NE(row, report.rows.end()) << kernel.name;
            EXPECT_EQ(row->calls, static_cast<std::uint64_t>(kernel.repeats)) << kernel.name;
        }
        gpu.close();
        EXPECT_FALSE(StandIns::burns_flops());
    }
    EXPECT_EQ(hipStreamDestroy(stream), hipSuccess);
    EXPECT_EQ(board->state(), kdvfs::ClockState{});
}

}  // namespace
}  // namespace gpt3
