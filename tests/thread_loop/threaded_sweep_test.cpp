// SPDX-License-Identifier: MIT
// A sweep inside an application on real threads, in real time, on doubles.
#include <kdvfs/kdvfs.hpp>
#include <kdvfs/tune/sweep.hpp>
#include <tests/thread_loop/open_on_doubles.hpp>
#include <tests/thread_loop/prompt_runtime.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

namespace kdvfs::tune {
namespace {

using namespace std::chrono_literals;

struct Gelu : Kernel<"gelu"> {};
struct Gemm : Kernel<"gemm"> {};
using Policies = PolicyRegistry<Default<AutoClock>>;

TEST(ThreadedSweep, SweepsWhileSeveralThreadsLaunch) {
    const auto board = std::make_shared<prompt::Board>();
    prompt::Runtime runtime;
    GpuOptions options;
    options.sampler.period = 1ms;
    const Gpu gpu = doubles::open_driven(doubles::borrowed(runtime), board, options);

    SweepOptions sweep_options;
    sweep_options.points = {{}, {{500}, auto_clock}, {{1100}, auto_clock}};
    sweep_options.block = {
        .settle = 20ms, .switch_latency = 1ms, .measured = 20ms, .counter_rows = 10};
    sweep_options.longest_warm_up = 100ms;  // this machine's sleeps are not steady
    sweep_options.max_slowdown = 1;
    int streams[2]{};
    {
        const Sweeping<Policies> sweep{gpu, sweep_options};
        const auto deadline = std::chrono::steady_clock::now() + 30s;
        // What a scope encloses is done at once here: sleeping on the host is work on the stream.
        while (!sweep.done() && std::chrono::steady_clock::now() < deadline) {
            sweep.next_iteration();
            std::thread other{[&] {
                FrequencyScope<Gemm> scope{sweep, &streams[1]};
                std::this_thread::sleep_for(1ms);
            }};
            FrequencyScope<Gelu> scope{sweep, &streams[0]};
            std::this_thread::sleep_for(2ms);
            scope.close();
            other.join();
        }
        ASSERT_TRUE(sweep.done()) << to_string(sweep.progress());
        const Profile profile = sweep.profile();
        ASSERT_EQ(profile.kernels().size(), 2U);
        for (const KernelProfile& kernel : profile.kernels()) {
            EXPECT_EQ(kernel.points.size(), 3U) << to_string(kernel.key);
            for (const ProfilePoint& point : kernel.points) {
                // The board draws 100 W, whatever runs; kernels at once share it.
                const double watts = (point.mean().energy / point.mean().time).count;
                EXPECT_GT(watts, 5) << to_string(kernel.key) << " at " << to_string(point.clock);
                EXPECT_LT(watts, 110) << to_string(kernel.key) << " at " << to_string(point.clock);
            }
        }
    }
    gpu.close();
    EXPECT_EQ(board->state().cap, ClockPoint{});
}

}  // namespace
}  // namespace kdvfs::tune
