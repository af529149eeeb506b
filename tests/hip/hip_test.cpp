// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/amd/hip_api.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>

#include <tests/hip_double/hip_double.hpp>
#include <tests/timestamps/store_entry.hpp>

#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

namespace kdvfs::device {
namespace {

using namespace std::chrono_literals;

/// What the marker kernel does, done by a thread of the double's.
int launch_marker_on_double(void* stream, const MarkerArguments& arguments) {
    return hip_double::launch(stream, [arguments] {
        std::atomic_ref{*arguments.cell}.store(arguments.level);
        if (arguments.ring == nullptr) return;
        TimestampEntry entry = arguments.timestamp;
        const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
        entry.ticks = static_cast<std::uint64_t>(now.count() / 10);        // 100 MHz
        entry.cycles = static_cast<std::uint64_t>(now.count() * 17 / 10);  // 1700 MHz
        const auto ticket = std::atomic_ref{*arguments.next_ticket}.fetch_add(1) + 1;
        entry.check = timestamp_check(entry, ticket);
        timestamps_test::store_entry(arguments.ring[(ticket - 1) & arguments.ring_mask], entry);
    });
}

class Streams : public testing::TestWithParam<MarkerWay> {
protected:
    void SetUp() override {
        hip_double::reset({"0000:c1:00.0", "0000:c4:00.0"});
        ASSERT_EQ(hipStreamCreate(&stream_), hipSuccess);
        if (GetParam() == MarkerWay::kernel)
            marker_kernel_of_program<HipApi>() = launch_marker_on_double;
    }
    void TearDown() override {
        EXPECT_EQ(hipStreamDestroy(stream_), hipSuccess);
        marker_kernel_of_program<HipApi>() = nullptr;
    }

    void launch_kernel(double megacycles) const {
        void* arguments[] = {&megacycles};
        ASSERT_EQ(hipLaunchKernel(nullptr, {}, {}, arguments, 0, stream_), hipSuccess);
    }

    /// Puts a kernel into the stream that runs until it is let go.
    void launch_held_kernel() {
        ASSERT_EQ(hip_double::launch(stream_,
                                     [this] {
                                         while (held_.load()) std::this_thread::sleep_for(1ms);
                                         held_ = true;
                                     }),
                  hipSuccess);
    }
    void release() { held_ = false; }

    static bool comes_to(RequestCell* cell, RequestWord level) {
        for (int i = 0; i < 5000 && cell->load() != level; ++i) std::this_thread::sleep_for(1ms);
        return cell->load() == level;
    }

    hipStream_t stream_ = nullptr;
    std::atomic<bool> held_{true};
};

TEST_P(Streams, StoreALevelWhenTheyGetThere) {
    Hip hip{0, GetParam()};
    RequestCell* const cell = hip.make_cell();
    launch_held_kernel();
    hip.put_marker(stream_, {cell, RequestWord{7}, {}, false});
    launch_held_kernel();
    hip.put_marker(stream_, {cell, RequestWord{8}, {}, false});  // and the host is here already
    std::this_thread::sleep_for(10ms);
    EXPECT_EQ(cell->load(), RequestWord{}) << "the marker ran ahead of its stream";
    release();
    EXPECT_TRUE(comes_to(cell, RequestWord{7}));
    std::this_thread::sleep_for(10ms);
    EXPECT_EQ(cell->load(), RequestWord{7}) << "the second marker ran ahead of its stream";
    release();
    hip.synchronize(stream_);
    EXPECT_EQ(cell->load(), RequestWord{8});
}

TEST_P(Streams, TimestampWhenTheyGetThere) {
    Hip hip{0, GetParam()};
    RequestCell* const cell = hip.make_cell();
    const auto start = hip.now();
    hip.put_marker(stream_, {cell, RequestWord{1}, {3, 5, false, 2}, true});
    launch_kernel(20);
    hip.put_marker(stream_, {cell, RequestWord{2}, {3, 5, true, 2}, true});
    hip.synchronize(stream_);
    std::array<MarkerTimestamp, 8> timestamps;
    ASSERT_EQ(hip.drain_timestamps(timestamps), 2u);
    EXPECT_EQ(timestamps[0].tag.scope_kind, 5u);
    EXPECT_FALSE(timestamps[0].tag.leaving);
    EXPECT_TRUE(timestamps[1].tag.leaving);
    EXPECT_GE(timestamps[1].time - timestamps[0].time, 19ms);
    EXPECT_LE(timestamps[1].time, hip.now());
    EXPECT_GE(timestamps[0].time, start - 1ms);
    EXPECT_EQ(hip.lost_timestamps(), 0u);
    if (GetParam() != MarkerWay::kernel) return;
    const KernelInterval interval{
        .start = timestamps[0].time,
        .end = timestamps[1].time,
        .core_cycles = timestamps[1].core_cycles - timestamps[0].core_cycles};
    EXPECT_EQ(held_clock(interval), Megahertz{1700});
}

TEST_P(Streams, OfAnotherDeviceOrNoneAreErrors) {
    Hip hip{0, GetParam()};
    ASSERT_EQ(hipSetDevice(1), hipSuccess);
    hipStream_t other = nullptr;
    ASSERT_EQ(hipStreamCreate(&other), hipSuccess);
    EXPECT_THROW(static_cast<void>(hip.track_key(other)), Error);
    EXPECT_THROW(static_cast<void>(hip.track_key(nullptr)), Error);  // the current device's own
    ASSERT_EQ(hipSetDevice(0), hipSuccess);
    EXPECT_NO_THROW(static_cast<void>(hip.track_key(nullptr)));
    EXPECT_EQ(hipStreamDestroy(other), hipSuccess);
    EXPECT_THROW(static_cast<void>(hip.track_key(other)), Error);
}

TEST_P(Streams, PerThreadDefaultsAreTracksOfTheirOwn) {
    Hip hip{0, GetParam()};
    const TrackKey mine = hip.track_key(hipStreamPerThread);
    TrackKey theirs;
    std::thread{[&] { theirs = hip.track_key(hipStreamPerThread); }}.join();
    EXPECT_NE(mine, theirs);
    EXPECT_EQ(mine, hip.track_key(hipStreamPerThread));
    EXPECT_EQ(hip.track_key(stream_).thread, 0u);
}

INSTANTIATE_TEST_SUITE_P(EveryWay, Streams,
                         testing::Values(MarkerWay::kernel, MarkerWay::stream_write,
                                         MarkerWay::memset, MarkerWay::callback),
                         [](const auto& way) {
                             switch (way.param) {
                                 case MarkerWay::kernel: return std::string{"kernel"};
                                 case MarkerWay::stream_write: return std::string{"stream_write"};
                                 case MarkerWay::memset: return std::string{"memset"};
                                 default: return std::string{"callback"};
                             }
                         });

class Captures : public Streams {
protected:
    hipGraphExec_t captured(Hip& hip, RequestCell* cell) {
        EXPECT_EQ(hipStreamBeginCapture(stream_, hipStreamCaptureModeGlobal), hipSuccess);
        EXPECT_NE(hip.track_key(stream_).capture, 0u);
        hip.put_marker(stream_, {cell, RequestWord{7}, {}, true, true});
        launch_held_kernel();
        hip.put_marker(stream_, {cell, RequestWord{}, {}, true, true});
        hipGraph_t graph = nullptr;
        hipGraphExec_t ready = nullptr;
        EXPECT_EQ(hipStreamEndCapture(stream_, &graph), hipSuccess);
        EXPECT_EQ(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0), hipSuccess);
        EXPECT_EQ(hipGraphDestroy(graph), hipSuccess);
        return ready;
    }
};

TEST_P(Captures, RecordMarkersThatEveryReplayRepeats) {
    hip_double::set_quirks({.operations_run_at_once_in_capture = true});
    Hip hip{0, GetParam()};
    RequestCell* const cell = hip.make_cell();
    const hipGraphExec_t ready = captured(hip, cell);
    EXPECT_EQ(cell->load(), RequestWord{}) << "the capture ran the marker";
    for (int replay = 0; replay < 2; ++replay) {
        ASSERT_EQ(hipGraphLaunch(ready, stream_), hipSuccess);
        EXPECT_TRUE(comes_to(cell, RequestWord{7}));
        release();
        hip.synchronize(stream_);
        EXPECT_EQ(cell->load(), RequestWord{});
    }
    EXPECT_EQ(hipGraphExecDestroy(ready), hipSuccess);
}

TEST_P(Captures, AreNotBrokenByTimestampsOfAnotherThread) {
    hip_double::set_quirks({.event_query_breaks_captures = true});
    Hip hip{0, GetParam()};
    hipStream_t other = nullptr;
    ASSERT_EQ(hipStreamCreate(&other), hipSuccess);
    RequestCell* const cell = hip.make_cell();
    ASSERT_EQ(hipStreamBeginCapture(stream_, hipStreamCaptureModeGlobal), hipSuccess);
    hip.put_marker(stream_, {cell, RequestWord{7}, {}, false, true});
    std::thread{[&] {
        hip.put_marker(other, {hip.make_cell(), RequestWord{1}, {}, true});
        hip.synchronize(other);
    }}.join();
    hipGraph_t graph = nullptr;
    EXPECT_EQ(hipStreamEndCapture(stream_, &graph), hipSuccess);
    EXPECT_EQ(hipGraphDestroy(graph), hipSuccess);
    EXPECT_EQ(hipStreamDestroy(other), hipSuccess);
}

INSTANTIATE_TEST_SUITE_P(EveryWay, Captures,
                         testing::Values(MarkerWay::kernel, MarkerWay::stream_write,
                                         MarkerWay::memset));

TEST(CapturesByCallback, AreAnErrorRatherThanALevelSetTooEarly) {
    hip_double::reset({"0000:c1:00.0"});
    hip_double::set_quirks({.operations_run_at_once_in_capture = true});
    hipStream_t stream = nullptr;
    ASSERT_EQ(hipStreamCreate(&stream), hipSuccess);
    Hip hip{0, MarkerWay::callback};
    RequestCell* const cell = hip.make_cell();
    ASSERT_EQ(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal), hipSuccess);
    EXPECT_THROW(hip.put_marker(stream, {cell, RequestWord{7}, {}, false, true}), Error);
    EXPECT_EQ(cell->load(), RequestWord{});
    hipGraph_t graph = nullptr;
    EXPECT_EQ(hipStreamEndCapture(stream, &graph), hipSuccess);
    EXPECT_EQ(hipGraphDestroy(graph), hipSuccess);
    EXPECT_EQ(hipStreamDestroy(stream), hipSuccess);
}

TEST(Probe, TakesTheFirstWayThatWorks) {
    hip_double::reset({"0000:c1:00.0"});
    EXPECT_EQ(Hip{0}.marker_mechanism().substr(0, 20), "stream memory writes");
    hip_double::set_quirks({.no_stream_memory_operations = true});
    EXPECT_EQ(Hip{0}.marker_mechanism().substr(0, 7), "memsets");
    hip_double::set_quirks({.no_stream_memory_operations = true, .no_memsets = true});
    EXPECT_EQ(Hip{0}.marker_mechanism().substr(0, 14), "host functions");
    EXPECT_EQ(hipGetLastError(), hipSuccess) << "the probe has left its error to the user";
    EXPECT_THROW(Hip(0, MarkerWay::kernel), Error);  // there is no device code in this program
    EXPECT_THROW(Hip{7}, Error);
}

TEST(PciAddresses, AreHipsOwn) {
    hip_double::reset({"0000:c4:00.0", "0000:c1:00.0"});  // as under HIP_VISIBLE_DEVICES=1,0
    EXPECT_EQ(pci_address<HipApi>(0), "0000:c4:00.0");
    EXPECT_EQ(pci_address<HipApi>(1), "0000:c1:00.0");
    EXPECT_THROW(static_cast<void>(pci_address<HipApi>(2)), Error);
}

}  // namespace
}  // namespace kdvfs::device
