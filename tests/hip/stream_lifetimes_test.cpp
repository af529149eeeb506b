// SPDX-License-Identifier: MIT
//
// Streams that come and go under a GPU object. On the double of libamdhip64.
#include <kdvfs/kdvfs.hpp>

#include <tests/hip_double/gpu_on_double.hpp>
#include <tests/hip_double/hip_double.hpp>
#include <tests/thread_loop/thread_costs.hpp>

#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace kdvfs {
namespace {

using namespace std::chrono_literals;
using namespace kdvfs::literals;

struct Low : Kernel<"low"> {};
struct High : Kernel<"high"> {};
using Policies = PolicyRegistry<Bind<"low", CapClock<900_MHz>>, Bind<"high", CapClock<1500_MHz>>>;

class StreamLifetimes : public testing::Test {
protected:
    void SetUp() override {
        hip_double::reset({"0000:c1:00.0"});
        gpu_ = std::make_unique<BoundGpu<Policies>>(hip_double::open(board_).with<Policies>());
    }

    static hipStream_t create() {
        hipStream_t stream = nullptr;
        EXPECT_EQ(hipStreamCreate(&stream), hipSuccess);
        return stream;
    }

    /// A new stream with the handle of one that was destroyed.
    static hipStream_t create_again(hipStream_t gone) {
        std::vector<hipStream_t> others;
        hipStream_t stream = create();
        while (stream != gone && others.size() < 1000) {
            others.push_back(stream);
            stream = create();
        }
        for (hipStream_t other : others) EXPECT_EQ(hipStreamDestroy(other), hipSuccess);
        return stream;
    }

    void capture_and_launch(hipStream_t stream) {
        ASSERT_EQ(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal), hipSuccess);
        { const FrequencyScope<Low> scope{*gpu_, stream}; }
        hipGraph_t graph = nullptr;
        hipGraphExec_t ready = nullptr;
        ASSERT_EQ(hipStreamEndCapture(stream, &graph), hipSuccess);
        ASSERT_EQ(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0), hipSuccess);
        ASSERT_EQ(hipGraphLaunch(ready, stream), hipSuccess);
        ASSERT_EQ(hipStreamSynchronize(stream), hipSuccess);
        ASSERT_EQ(hipGraphExecDestroy(ready), hipSuccess);
        ASSERT_EQ(hipGraphDestroy(graph), hipSuccess);
    }

    bool comes_to(Megahertz core) {
        for (int i = 0; i < 2000; ++i) {
            if (board_->state().cap.core == core) return true;
            std::this_thread::sleep_for(1ms);
        }
        return false;
    }

    std::shared_ptr<prompt::Board> board_ = std::make_shared<prompt::Board>();
    std::unique_ptr<BoundGpu<Policies>> gpu_;
};

TEST_F(StreamLifetimes, AHandleThatIsUsedAgainIsATrackLikeAnyOther) {
    hipStream_t stream = create();
    for (int life = 0; life < 5; ++life) {
        {
            FrequencyScope<Low> scope{*gpu_, stream};
            EXPECT_TRUE(comes_to(900_MHz)) << life;
        }
        EXPECT_TRUE(comes_to(auto_clock)) << life;
        ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
        const hipStream_t again = create_again(stream);
        if (again != stream) GTEST_SKIP() << "no stream has got the old one's address";
        stream = again;
    }
    ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
    gpu_->check();
}

TEST_F(StreamLifetimes, AHandleUsedAgainOwesNothingToAScopeThatOutlivedTheFirst) {
    hipStream_t stream = create();
    auto outlives = std::make_unique<FrequencyScope<Low>>(*gpu_, stream);
    ASSERT_TRUE(comes_to(900_MHz));
    ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
    outlives.reset();
    EXPECT_TRUE(comes_to(auto_clock)) << "a vote for nobody";
    EXPECT_THROW(gpu_->check(), Error);
    const hipStream_t again = create_again(stream);
    {
        FrequencyScope<High> scope{*gpu_, again};
        EXPECT_TRUE(comes_to(1500_MHz));
    }
    EXPECT_TRUE(comes_to(auto_clock));
    gpu_->check();
    ASSERT_EQ(hipStreamDestroy(again), hipSuccess);
}

TEST_F(StreamLifetimes, AScopeMayBeLeftOnTheStreamThatHasTakenItsHandle) {
    hipStream_t stream = create();
    auto outlives = std::make_unique<FrequencyScope<Low>>(*gpu_, stream);
    ASSERT_TRUE(comes_to(900_MHz));
    ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
    const hipStream_t again = create_again(stream);
    if (again != stream) {
        outlives.reset();
        static_cast<void>(hipStreamDestroy(again));
        GTEST_SKIP() << "no stream has got the old one's address";
    }
    outlives.reset();
    EXPECT_TRUE(comes_to(auto_clock));
    gpu_->check();
    ASSERT_EQ(hipStreamDestroy(again), hipSuccess);
}

TEST_F(StreamLifetimes, DefaultStreamsPerThreadVoteEachForItself) {
    auto low = std::make_unique<FrequencyScope<Low>>(*gpu_, hipStreamPerThread);
    ASSERT_TRUE(comes_to(900_MHz));
    std::thread{[&] {
        FrequencyScope<High> high{*gpu_, hipStreamPerThread};
        EXPECT_TRUE(comes_to(1500_MHz));
    }}.join();
    EXPECT_TRUE(comes_to(900_MHz)) << "the other thread's vote has outlived its scope";
    low.reset();
    EXPECT_TRUE(comes_to(auto_clock));
    gpu_->check();
}

TEST_F(StreamLifetimes, AScopeWhoseTimestampFailsHoldsItsClockAndGivesItBack) {
    const hipStream_t stream = create();
    hip_double::set_quirks({.no_event_records = true});
    {
        FrequencyScope<Low> scope{*gpu_, stream};
        EXPECT_TRUE(comes_to(900_MHz));
    }
    EXPECT_TRUE(comes_to(auto_clock)) << "the clock stays low with no scope open";
    gpu_->check();
    hip_double::set_quirks({});
    const auto report = gpu_->report();
    const auto tells = [](const std::string& note) {
        return note.find("2 marker timestamps") != std::string::npos;
    };
    EXPECT_TRUE(std::any_of(report.notes.begin(), report.notes.end(), tells));
    ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
}

TEST_F(StreamLifetimes, AScopeAsksOnceForItsStreamsDeviceAndTwiceForItsCapture) {
    const hipStream_t stream = create();
    const auto before = hip_double::queries();
    for (int i = 0; i < 100; ++i) {
        const FrequencyScope<Low> scope{*gpu_, stream};
    }
    const auto after = hip_double::queries();
    std::printf("100 scopes asked %u times for their stream's device, %u times for its capture\n",
                static_cast<unsigned>(after.device - before.device),
                static_cast<unsigned>(after.capture - before.capture));
    EXPECT_EQ(after.device - before.device, 100u);
    EXPECT_EQ(after.capture - before.capture, 200u);
    ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
}

bool soaks() { return std::getenv("KDVFS_SOAK") != nullptr; }

/// Runs `once` so often, after some rounds that fill what is kept for ever. @returns by how many
/// bytes the process has grown since those
template <class Once>
std::int64_t growth(int rounds, Once once) {
    for (int i = 0; i < rounds / 10; ++i) once();
    const std::size_t before = resident_bytes();
    for (int i = 0; i < rounds; ++i) once();
    return static_cast<std::int64_t>(resident_bytes()) - static_cast<std::int64_t>(before);
}

constexpr bool sanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;  // what is freed stays for a while
#else
    false;
#endif

TEST_F(StreamLifetimes, ThreadsThatComeAndGoLeaveNothing) {
    const int threads = soaks() ? 10'000 : 1'500;
    const std::int64_t grown = growth(threads, [&] {
        std::thread{[&] {
            FrequencyScope<Low> scope{*gpu_, hipStreamPerThread};
            scope.close();
            ASSERT_EQ(hipStreamSynchronize(hipStreamPerThread), hipSuccess);
        }}.join();
        gpu_->next_iteration();
    });
    std::printf("%d threads with streams of their own: the process has grown by %lld KiB\n",
                threads, static_cast<long long>(grown / 1024));
    if (!sanitized) {
        EXPECT_LT(grown, 1 << 20);
    }
    gpu_->check();
}

/// Nobody tells of a replay: the listener looks, ever less often.
void expect_an_idle_listener() {
    std::this_thread::sleep_for(soaks() ? 12s : 1s);
    const ThreadCost before[] = {cost_of_thread("kdvfs-listen"), cost_of_thread("kdvfs-act")};
    const auto length = soaks() ? 20s : 1s;
    std::this_thread::sleep_for(length);
    const ThreadCost listener = cost_of_thread("kdvfs-listen") - before[0];
    const ThreadCost actuator = cost_of_thread("kdvfs-act") - before[1];
    const double seconds = std::chrono::duration<double>(length).count();
    std::printf(
        "idle after them: CPU of listener %.3f %%, actuator %.3f %% of a core; %.1f and %.1f "
        "wakes a second\n",
        100 * listener.cpu / seconds, 100 * actuator.cpu / seconds,
        static_cast<double>(listener.wakes) / seconds,
        static_cast<double>(actuator.wakes) / seconds);
    EXPECT_LT(static_cast<double>(listener.wakes) / seconds, soaks() ? 15 : 150);
    if (soaks()) {
        EXPECT_LT((listener.cpu + actuator.cpu) / seconds, 0.0005);
    }
}

TEST_F(StreamLifetimes, HandlesLeaveNothing) {
    hip_double::run_at_once(true);  // a thread for each would be too many
    const int handles = soaks() ? 100'000 : 3'000;
    std::vector<hipStream_t> streams;  // alive, or they would share few handles
    while (streams.size() < static_cast<std::size_t>(handles + handles / 10)) {
        streams.push_back(create());
    }
    auto next = streams.begin();
    const std::int64_t grown = growth(handles, [&] {
        { const FrequencyScope<Low> scope{*gpu_, *next}; }
        capture_and_launch(*next++);
        gpu_->next_iteration();
    });
    std::printf("%d streams, a scope and a capture on each: the process has grown by %lld KiB\n",
                handles, static_cast<long long>(grown / 1024));
    if (!sanitized) {
        EXPECT_LT(grown, 1 << 21);
    }
    for (hipStream_t stream : streams) ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
    hip_double::run_at_once(false);
    if (soaks()) expect_an_idle_listener();  // else that of captures will do

    const hipStream_t stream = create();
    {
        const FrequencyScope<Low> scope{*gpu_, stream};
        EXPECT_TRUE(comes_to(900_MHz));
    }
    EXPECT_TRUE(comes_to(auto_clock));
    ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
    gpu_->check();
}

TEST_F(StreamLifetimes, CapturesLeaveNothingAndAnIdleListener) {
    const hipStream_t stream = create();
    const int captures = soaks() ? 100'000 : 2'000;
    const std::int64_t grown = growth(captures, [&] {
        capture_and_launch(stream);
        gpu_->next_iteration();
    });
    std::printf("%d captures, each launched: the process has grown by %lld KiB\n", captures,
                static_cast<long long>(grown / 1024));
    if (!sanitized) {
        EXPECT_LT(grown, 1 << 20);
    }

    expect_an_idle_listener();

    // And hears the next one.
    ASSERT_EQ(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal), hipSuccess);
    {
        const FrequencyScope<Low> scope{*gpu_, stream};
        ASSERT_EQ(hip_double::launch(stream, [] { std::this_thread::sleep_for(500ms); }),
                  hipSuccess);
    }
    hipGraph_t graph = nullptr;
    hipGraphExec_t ready = nullptr;
    ASSERT_EQ(hipStreamEndCapture(stream, &graph), hipSuccess);
    ASSERT_EQ(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0), hipSuccess);
    std::this_thread::sleep_for(soaks() ? 12s : 500ms);
    gpu_->next_iteration();
    const auto launched = std::chrono::steady_clock::now();
    ASSERT_EQ(hipGraphLaunch(ready, stream), hipSuccess);
    EXPECT_TRUE(comes_to(900_MHz));
    std::printf(
        "the next replay was heard after %.1f ms\n",
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - launched)
            .count());
    ASSERT_EQ(hipStreamSynchronize(stream), hipSuccess);
    EXPECT_TRUE(comes_to(auto_clock));
    ASSERT_EQ(hipGraphExecDestroy(ready), hipSuccess);
    ASSERT_EQ(hipGraphDestroy(graph), hipSuccess);
    ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
    gpu_->check();
}

/// `Ordering::acked` where four hardware queues serve all streams, as on ROCm: a stream that waits
/// holds up those that share its queue.
class AckedStreams : public StreamLifetimes {
protected:
    void SetUp() override {
        hip_double::reset({"0000:c1:00.0"});
        hip_double::set_quirks({.streams_share_queues = true});
        GpuOptions options;
        options.ordering = Ordering::acked;
        options.ack_deadline = 200ms;
        gpu_ = std::make_unique<BoundGpu<Policies>>(
            hip_double::open(board_, options).with<Policies>());
        for (hipStream_t& stream : streams_) stream = create();
    }
    void TearDown() override {
        gpu_.reset();
        for (hipStream_t stream : streams_) EXPECT_EQ(hipStreamDestroy(stream), hipSuccess);
    }

    /// Puts a look at the board's clock into a stream.
    void look(hipStream_t stream) {
        const auto note = [this] {
            const std::lock_guard lock{mutex_};
            seen_.push_back(board_->state().cap.core);
        };
        ASSERT_EQ(hip_double::launch(stream, note), hipSuccess);
    }

    std::vector<Megahertz> seen() {
        const std::lock_guard lock{mutex_};
        return seen_;
    }

    hipStream_t streams_[5]{};

private:
    std::mutex mutex_;
    std::vector<Megahertz> seen_;
};

TEST_F(AckedStreams, RunTheirWorkAtItsClock) {
    for (int i = 0; i < 20; ++i) {
        {
            FrequencyScope<Low> scope{*gpu_, streams_[0]};
            look(streams_[0]);
        }
        look(streams_[0]);
    }
    ASSERT_EQ(hipStreamSynchronize(streams_[0]), hipSuccess);
    const auto clocks = seen();
    ASSERT_EQ(clocks.size(), 40u);
    for (std::size_t i = 0; i < clocks.size(); ++i) {
        EXPECT_EQ(clocks[i], i % 2 == 0 ? 900_MHz : auto_clock) << i;
    }
    gpu_->check();
}

TEST_F(AckedStreams, HoldUpTheirQueueUntilTheDeadlineAtMost) {
    board_->block(true);
    const auto began = std::chrono::steady_clock::now();
    FrequencyScope<Low> scope{*gpu_, streams_[0]};
    std::this_thread::sleep_for(10ms);  // it waits now
    look(streams_[4]);                  // of the same queue
    std::this_thread::sleep_for(50ms);
    EXPECT_TRUE(seen().empty()) << "the double's queues are not shared";
    std::thread unblocks{[&] {
        std::this_thread::sleep_for(600ms);
        board_->block(false);
    }};
    ASSERT_EQ(hipStreamSynchronize(streams_[0]), hipSuccess);
    const auto waited = std::chrono::steady_clock::now() - began;
    unblocks.join();
    EXPECT_GE(waited, 190ms);
    EXPECT_LT(waited, 590ms) << "the stream has waited for the board";
    EXPECT_THROW(gpu_->check(), Error);
}

TEST_F(AckedStreams, GiveTheClockBackWhereTheWaitCannotBePut) {
    hip_double::set_quirks({.no_waits = true});
    EXPECT_THROW(const FrequencyScope<Low> scope(*gpu_, streams_[0]), Error);
    ASSERT_EQ(hipStreamSynchronize(streams_[0]), hipSuccess);
    std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(comes_to(auto_clock)) << "the clock stays low with no scope open";
}

TEST_F(AckedStreams, AreRefusedWhereStreamsCannotWait) {
    hip_double::set_quirks({.no_stream_memory_operations = true});
    GpuOptions options;
    options.ordering = Ordering::acked;
    EXPECT_THROW(static_cast<void>(hip_double::open(board_, options)), Error);
}

}  // namespace
}  // namespace kdvfs
