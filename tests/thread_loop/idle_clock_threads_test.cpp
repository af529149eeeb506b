// SPDX-License-Identifier: MIT
// The clock without work under two real threads.
#include <kdvfs/kdvfs.hpp>
#include <tests/thread_loop/open_on_doubles.hpp>
#include <tests/thread_loop/prompt_runtime.hpp>
#include <tests/thread_loop/two_kernels.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

namespace kdvfs::idle_clock_test {
namespace {

using namespace std::chrono_literals;
using doubles::soon;

struct Work : Kernel<"work"> {};
using IdlePolicies = PolicyRegistry<Bind<"work", AutoClock>>;
constexpr ClockPoint idle{.core = 600_MHz};
/// So long that a test which waits for a core still sees the clock that is back.
constexpr Duration after = 100ms;

TEST(IdleClockThreads, LowerWithoutWorkAndRaiseBeforeTheStreamGetsThere) {
    prompt::Runtime runtime;
    const auto board = std::make_shared<prompt::Board>();
    GpuOptions options;
    options.switch_latency = 100us;
    options.idle_clock = {.clock = idle, .after = after, .tolerated_loss = 1};
    const auto gpu =
        doubles::open_driven(doubles::borrowed(runtime), board, options).with<IdlePolicies>();
    int stream = 0;
    const auto is_low = [&] { return board->state().cap == idle; };
    const auto is_back = [&] { return board->state() == ClockState{}; };
    { FrequencyScope<Work> scope{gpu, &stream}; }
    EXPECT_TRUE(soon(is_low));
    runtime.hold(true);  // the stream stands still: only the host knows of the work
    { FrequencyScope<Work> scope{gpu, &stream}; }
    EXPECT_TRUE(soon(is_back));
    runtime.hold(false);
    EXPECT_TRUE(soon(is_low));
    gpu.next_iteration();
    EXPECT_TRUE(soon(is_back));
    EXPECT_TRUE(soon(is_low));
    EXPECT_GE(gpu.report().idle_clock->times, 3U);
    EXPECT_FALSE(board->overlapped());
    gpu.close();
    EXPECT_TRUE(is_back());
}

}  // namespace
}  // namespace kdvfs::idle_clock_test
