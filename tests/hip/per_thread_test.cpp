// SPDX-License-Identifier: MIT
#include <tests/hip/per_thread_scopes.hpp>
#include <tests/hip_double/gpu_on_double.hpp>
#include <tests/hip_double/hip_double.hpp>

#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>

#include <chrono>
#include <memory>
#include <thread>

namespace kdvfs {
namespace {

using namespace std::chrono_literals;

TEST(PerThreadStreams, AreToldByTheFileOfTheScope) {
    EXPECT_EQ(per_thread::null_stream(), StreamRef{hipStreamPerThread});
    EXPECT_EQ(StreamRef{nullptr}, StreamRef{}) << "this file has one default stream";

    hip_double::reset({"0000:c1:00.0"});
    const auto board = std::make_shared<prompt::Board>();
    const auto gpu = hip_double::open(board).with<per_thread::Policies>();
    const auto holds = [&](unsigned cap) {
        for (int i = 0; i < 2000 && board->state().cap.core.count != cap; ++i)
            std::this_thread::sleep_for(1ms);
        return board->state().cap.core.count == cap;
    };
    auto low = std::make_unique<per_thread::Token>(gpu, true);
    EXPECT_TRUE(holds(1100));
    std::thread{[&] {
        const per_thread::Token high{gpu, false};
        EXPECT_TRUE(holds(0)) << "the other thread's stream asks for auto";
    }}.join();
    EXPECT_TRUE(holds(1100));
    low.reset();
    EXPECT_TRUE(holds(0));
}

}  // namespace
}  // namespace kdvfs
