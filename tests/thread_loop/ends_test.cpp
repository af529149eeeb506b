// SPDX-License-Identifier: MIT
//
// The end of a GPU object in every way that programs end one: a few times each in the suite, 1000
// times each in the soak (KDVFS_ENDS), where the sanitizers look. A plugin's end is in
// tests/plugin.
#include <kdvfs/kdvfs.hpp>
#include <tests/thread_loop/open_on_doubles.hpp>
#include <tests/thread_loop/prompt_runtime.hpp>
#include <tests/thread_loop/two_kernels.hpp>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

namespace kdvfs {
namespace {

using namespace std::chrono_literals;

using doubles::Gelu;
using doubles::Gemm;
using doubles::Policies;
using doubles::soon;
using doubles::StuckStream;
using Handle = BoundGpu<Policies>;

/// A board whose calls fail while it is told so.
class FailingBoard : public prompt::Board {
public:
    ClockState read_clock_state() {
        fail();
        return prompt::Board::read_clock_state();
    }
    void apply(ClockPoint point) {
        fail();
        prompt::Board::apply(point);
    }
    void restore(const ClockState& state) {
        fail();
        prompt::Board::restore(state);
    }
    std::atomic<bool> fails{false};
    std::atomic<Errc> code{Errc::busy};

private:
    void fail() const {
        if (fails) throw Error{code, {"drive the board", "the double", "as told", ""}};
    }
};

/// A runtime that puts no marker while it is told so.
class FailingRuntime : public prompt::Runtime {
public:
    void put_marker(StreamRef stream, const Marker& marker) {
        if (fails) throw Error{Errc::io, {"put a marker", "the double", "as told", ""}};
        prompt::Runtime::put_marker(stream, marker);
    }
    std::atomic<bool> fails{false};
};

/// One GPU object on its way to its end.
class Life {
public:
    explicit Life(unsigned seed) : random_{seed + 1} {
        GpuOptions options;
        options.meter_every = 1;
        options.sampler.period = 1ms;
        gpu = std::make_unique<Handle>(
            doubles::open_driven(runtime, board, options).with<Policies>());
    }

    /// Enters a scope, and in half of the cases waits until its clock is set.
    std::unique_ptr<FrequencyScope<Gelu>> enter() {
        auto scope = std::make_unique<FrequencyScope<Gelu>>(*gpu, &stream);
        if (random_() % 2 == 0) {
            EXPECT_TRUE(soon([&] { return board->state().cap.core == 1100_MHz; }));
        } else {
            pause();
        }
        return scope;
    }
    /// Up to 300 us, to meet everything at any moment.
    void pause() { std::this_thread::sleep_for(std::chrono::microseconds{random_() % 300}); }

    [[nodiscard]] bool is_as_found() const { return board->state() == ClockState{}; }
    /// Nobody but this test holds the board: no thread of the GPU's is left that could touch it.
    void expect_alone() const {
        EXPECT_TRUE(soon([&] { return board.use_count() == 1; }));
    }

    std::shared_ptr<FailingBoard> board = std::make_shared<FailingBoard>();
    std::shared_ptr<FailingRuntime> runtime = std::make_shared<FailingRuntime>();
    std::unique_ptr<Handle> gpu;
    int stream = 0;

private:
    std::minstd_rand random_;
};

void with_a_call_that_comes_back_too_late(Life& life) {
    auto trace = std::make_unique<std::ostringstream>();
    life.gpu->trace_to(*trace);
    auto scope = life.enter();
    life.board->block(true);
    scope.reset();  // the call that gives the clock back hangs
    const auto began = std::chrono::steady_clock::now();
    life.gpu.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - began, 30s);
    trace.reset();
    life.board->block(false);  // and now it comes back
    life.expect_alone();
    EXPECT_TRUE(life.is_as_found());
}

void with_a_call_that_takes_a_while(Life& life) {
    auto scope = life.enter();
    life.board->block(true);
    std::thread unblocks{[&] {
        life.pause();
        life.board->block(false);
    }};
    life.gpu.reset();
    unblocks.join();
    EXPECT_TRUE(life.is_as_found());
    life.expect_alone();
}

void while_the_gpu_is_reset(Life& life) {
    const auto scope = life.enter();
    life.board->fails = true;  // transient: the restore is tried again until it works
    std::thread resets{[&] {
        std::this_thread::sleep_for(3ms);
        life.board->fails = false;
    }};
    life.gpu.reset();
    resets.join();
    EXPECT_TRUE(life.is_as_found());
    life.expect_alone();
}

void of_a_gpu_that_has_vanished(Life& life) {
    const auto scope = life.enter();
    life.board->code = Errc::vanished;
    life.board->fails = true;
    life.gpu.reset();
    life.expect_alone();
}

void with_a_trace_on_a_stuck_disk(Life& life) {
    StuckStream disk;
    life.gpu->trace_to(disk);
    auto scope = life.enter();
    life.gpu->next_iteration();
    std::thread frees{[&] {
        EXPECT_TRUE(soon([&] { return life.is_as_found(); })) << "the clocks wait for the disk";
        disk.stuck = false;
    }};
    scope.reset();
    life.gpu.reset();
    frees.join();
    life.expect_alone();
}

void before_its_scopes(Life& life) {
    auto first = life.enter();
    auto second = std::make_unique<FrequencyScope<Gemm>>(*life.gpu, &life.stream);
    life.runtime->hold(true);
    std::thread leaves{[&] {  // at the moment of the end, where nothing can be put any more
        life.pause();
        life.runtime->fails = true;
        second.reset();
        life.runtime->fails = false;
    }};
    life.gpu.reset();
    leaves.join();
    life.runtime->hold(false);
    first.reset();
    EXPECT_TRUE(life.is_as_found());
    life.expect_alone();
}

void beside_a_forked_child(Life& life) {
    auto scope = life.enter();
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(20);
        scope.reset();
        life.gpu->next_iteration();
        life.gpu.reset();
        ::_exit(0);
    }
    scope.reset();
    life.gpu.reset();
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(life.is_as_found());
    life.expect_alone();
}

/// Several threads, each with a handle and a scope of its own.
void by_whichever_thread_is_the_last(Life& life) {
    std::vector<std::thread> threads;
    int streams[3]{};
    for (int& stream : streams) {
        threads.emplace_back([&stream, handle = std::optional<Handle>{*life.gpu}]() mutable {
            for (int i = 0; i < 20; ++i) FrequencyScope<Gemm> scope{*handle, &stream};
            FrequencyScope<Gelu> late{*handle, &stream};
            handle.reset();
        });
    }
    life.pause();
    life.gpu.reset();
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(life.is_as_found());
    life.expect_alone();
}

void by_two_who_close_it_under_scopes(Life& life) {
    std::atomic<bool> over{false};
    std::thread scopes{[&] {
        while (!over) FrequencyScope<Gelu> scope{*life.gpu, &life.stream};
    }};
    life.pause();
    std::thread closes{[&] { life.gpu->close(); }};
    life.gpu->close();
    EXPECT_TRUE(life.is_as_found());
    closes.join();
    over = true;
    scopes.join();
    life.gpu.reset();
    life.expect_alone();
}

void while_others_ask(Life& life) {
    auto scope = life.enter();
    std::thread asks{[&life, handle = *life.gpu] {
        for (int i = 0; i < 3; ++i) {
            static_cast<void>(handle.report());
            handle.next_iteration();
            handle.protect(&life.stream);
            handle.check();
            handle.rearm();
        }
    }};
    life.pause();
    life.gpu->close();
    life.gpu.reset();
    asks.join();
    scope.reset();
    EXPECT_TRUE(life.is_as_found());
    life.expect_alone();
}

struct Way {
    const char* name;
    void (*end)(Life&);
    unsigned at_once;  ///< so many GPUs side by side
};

class Ends : public testing::TestWithParam<Way> {};

TEST_P(Ends, LeaveNothingThatIsTouchedLater) {
    const char* const soak = std::getenv("KDVFS_ENDS");
    const unsigned ends = soak != nullptr ? static_cast<unsigned>(std::atoi(soak)) : 3;
    std::atomic<unsigned> next{0};
    std::vector<std::thread> workers;
    for (unsigned i = 0; i < std::min(ends, GetParam().at_once); ++i) {
        workers.emplace_back([&] {
            for (unsigned number = next++; number < ends; number = next++) {
                Life life{number};
                GetParam().end(life);
            }
        });
    }
    for (std::thread& worker : workers) worker.join();
    std::printf("%u ends %s\n", ends, GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Ends,
    testing::Values(Way{"BesideAForkedChild", beside_a_forked_child, 1},  // before memory has grown
                    Way{"WithACallThatComesBackTooLate", with_a_call_that_comes_back_too_late, 50},
                    Way{"WithACallThatTakesAWhile", with_a_call_that_takes_a_while, 2},
                    Way{"WhileTheGpuIsReset", while_the_gpu_is_reset, 2},
                    Way{"OfAGpuThatHasVanished", of_a_gpu_that_has_vanished, 2},
                    Way{"WithATraceOnAStuckDisk", with_a_trace_on_a_stuck_disk, 2},
                    Way{"BeforeItsScopes", before_its_scopes, 2},
                    Way{"ByWhicheverThreadIsTheLast", by_whichever_thread_is_the_last, 2},
                    Way{"ByTwoWhoCloseItUnderScopes", by_two_who_close_it_under_scopes, 2},
                    Way{"WhileOthersAsk", while_others_ask, 2}),
    [](const auto& way) { return way.param.name; });

}  // namespace
}  // namespace kdvfs
