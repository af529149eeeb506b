// SPDX-License-Identifier: MIT
#include <tests/simulated/board.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace simulated_device;

class Streams : public testing::Test {
protected:
    Device device{mi210(), at_once()};
    Stream* stream = device.create_stream();
    Stream* other = device.create_stream();
    Event* event = device.create_event();
};

TEST_F(Streams, EnqueueingTakesNoTime) {
    for (int i = 0; i < 10; ++i) device.launch(stream, work(1));
    EXPECT_EQ(device.now(), TimePoint{});
    device.synchronize(stream);
    EXPECT_EQ(device.now(), TimePoint{10ms});
}

TEST_F(Streams, RefuseWorkThatDoesNotFitInTheClock) {
    for (const double seconds : {std::numeric_limits<double>::infinity(), 1e30, std::nan("")}) {
        EXPECT_THROW(device.launch(stream, KernelModel{.core_time = Seconds{seconds}}), Error);
        EXPECT_THROW(device.launch(stream, KernelModel{.memory_time = Seconds{seconds}}), Error);
    }
    device.synchronize();
    EXPECT_EQ(device.now(), TimePoint{});
}

TEST_F(Streams, WorkWhileTheHostDoesSomethingElse) {
    device.launch(stream, work(3));
    device.advance(2ms);
    EXPECT_EQ(device.now(), TimePoint{2ms});
    device.synchronize(stream);
    EXPECT_EQ(device.now(), TimePoint{3ms});
    device.synchronize(stream);
    EXPECT_EQ(device.now(), TimePoint{3ms}) << "waiting for nothing took time";
}

TEST_F(Streams, ShareTheBoardEvenly) {
    Stream* third = device.create_stream();
    device.launch(stream, work(1));
    device.launch(other, work(2));
    device.launch(third, work(3));
    device.synchronize(stream);
    EXPECT_EQ(device.now(), TimePoint{3ms});  // 1 ms at a third
    device.synchronize(other);
    EXPECT_EQ(device.now(), TimePoint{5ms});  // its second at a half
    device.synchronize();
    EXPECT_EQ(device.now(), TimePoint{6ms});  // its third alone
}

TEST_F(Streams, WaitForEventsOfOthers) {
    device.launch(stream, work(2));
    device.record(stream, event);
    device.wait(other, event);
    device.launch(other, work(1));
    device.synchronize();
    EXPECT_EQ(event->time(), TimePoint{2ms});
    EXPECT_EQ(device.now(), TimePoint{3ms}) << "they ran at the same time";
}

TEST_F(Streams, DoNotWaitForAnEventThatNobodyHasRecorded) {
    device.wait(other, event);
    device.launch(other, work(1));
    device.synchronize(other);
    EXPECT_EQ(device.now(), TimePoint{1ms});
}

TEST_F(Streams, CallBackInOrder) {
    std::string order;
    device.call_back(stream, [&] { order += 'a'; });
    device.launch(stream, work(1));
    device.call_back(stream, [&] { order += 'c'; });
    device.launch(other, work(0.25));
    device.call_back(other, [&] { order += 'b'; });
    device.synchronize();
    EXPECT_EQ(order, "abc");
}

TEST_F(Streams, TheNullStreamIsOneOfThem) {
    device.launch(nullptr, work(1));
    device.synchronize(nullptr);
    EXPECT_EQ(device.now(), TimePoint{1ms});
}

TEST_F(Streams, OfAnotherDeviceAreAnError) {
    Device stranger{mi210()};
    Stream* theirs = stranger.create_stream();
    EXPECT_THROW(static_cast<void>(device.track_key(theirs)), Error);
    EXPECT_THROW(device.launch(theirs, work(1)), Error);
    EXPECT_THROW(device.put_marker(theirs, {}), Error);
    EXPECT_THROW(device.synchronize(theirs), Error);
}

// Graphs.

TEST_F(Streams, CapturesRecordAndDoNotRun) {
    int calls = 0;
    device.begin_capture(stream);
    EXPECT_NE(device.track_key(stream).capture, 0u);
    EXPECT_EQ(device.track_key(other).capture, 0u);
    device.launch(stream, work(1));
    device.call_back(stream, [&] { ++calls; });
    const Graph graph = device.end_capture(stream);
    EXPECT_EQ(device.track_key(stream).capture, 0u);
    device.synchronize();
    EXPECT_EQ(device.now(), TimePoint{});
    for (int i = 0; i < 3; ++i) device.launch(other, graph);
    device.synchronize();
    EXPECT_EQ(calls, 3);
    EXPECT_EQ(device.now(), TimePoint{3ms});
}

TEST_F(Streams, EachCaptureIsItsOwn) {
    device.begin_capture(stream);
    const auto first = device.track_key(stream).capture;
    static_cast<void>(device.end_capture(stream));
    device.begin_capture(stream);
    EXPECT_NE(device.track_key(stream).capture, first);
}

TEST_F(Streams, GraphsRecordTheirEventsAtEachReplay) {
    device.begin_capture(stream);
    device.launch(stream, work(1));
    device.record(stream, event);
    const Graph graph = device.end_capture(stream);
    for (int replay = 1; replay <= 3; ++replay) {
        device.launch(stream, graph);
        device.wait(other, event);
        device.call_back(other, [&, replay] { EXPECT_EQ(device.now(), TimePoint{replay * 1ms}); });
    }
    device.synchronize();
    EXPECT_EQ(event->time(), TimePoint{3ms});
}

// Markers.

TEST_F(Streams, MarkersStoreTheirLevelAndTimestampWhenTheStreamGetsThere) {
    RequestCell* cell = device.make_cell();
    int written = 0;
    device.on_cell_written([&] { ++written; });
    device.launch(stream, work(1));
    device.put_marker(stream, {cell, RequestWord{7}, {.track = 3, .scope_kind = 5}, true});
    device.launch(stream, work(1));
    device.put_marker(stream, {cell, RequestWord{8}, {.track = 3, .leaving = true}, true});
    device.put_marker(stream, {cell, RequestWord{9}, {}, false});
    device.advance(1ms);
    EXPECT_EQ(cell->load(), RequestWord{}) << "the marker ran ahead";
    device.advance(100us);
    EXPECT_EQ(cell->load(), RequestWord{7});
    device.synchronize();
    EXPECT_EQ(cell->load(), RequestWord{9});
    EXPECT_EQ(written, 3);
    std::array<MarkerTimestamp, 8> timestamps;
    ASSERT_EQ(device.drain_timestamps(timestamps), 2u);
    EXPECT_EQ(timestamps[0].tag.scope_kind, 5u);
    EXPECT_EQ(timestamps[0].time, TimePoint{1ms + 2us});
    EXPECT_EQ(timestamps[1].time, TimePoint{2ms + 4us});
    // 1700 MHz for 1.002 ms.
    EXPECT_NEAR(static_cast<double>(timestamps[1].core_cycles - timestamps[0].core_cycles),
                1.7e6 * 1.002, 1.7e6 * 0.002);
    EXPECT_EQ(device.drain_timestamps(timestamps), 0u);
}

TEST_F(Streams, TimestampsThatNobodyTookAreCountedAsLost) {
    DeviceOptions options = at_once();
    options.timestamp_capacity = 4;
    Device small{mi210(), options};
    for (std::uint32_t i = 0; i < 10; ++i) {
        small.put_marker(nullptr, {nullptr, {}, {.scope_kind = i}, true});
    }
    small.synchronize();
    std::array<MarkerTimestamp, 8> timestamps;
    ASSERT_EQ(small.drain_timestamps(timestamps), 4u);
    EXPECT_EQ(timestamps[0].tag.scope_kind, 6u) << "the oldest give way";
    EXPECT_EQ(small.lost_timestamps(), 6u);
}

// Energy.

TEST_F(Streams, OfOtherUnitsOverlapAndDrawTheirOwnEnergy) {
    const Board& board = device.board();
    device.launch(stream, work(4));
    device.launch(other, {.memory_time = Seconds{3e-3}, .memory_energy = {0.2}});
    device.synchronize();
    device.advance(5ms);
    // Together each needs (4^4 + 4^4)^(1/4) ms for 4 ms of its own: 3/4 of that for the second, and
    // 1 ms for the rest of the first.
    const double together = 0.75 * 4 * std::pow(2, 0.25);
    const Seconds busy{(together + 1) * 1e-3};
    const Watts waiting = operate(board, {.fixed_time = Seconds{1}}, {}).power;
    const Joules of_core =
        operate(board, work(4), {}).power * Seconds{4e-3} + waiting * Seconds{-4e-3};
    const Joules expected =
        of_core + Joules{0.2} + waiting * busy + idle_power(board, {}) * Seconds{5e-3};
    EXPECT_NEAR(since_start(device.now()).count(), busy.count() + 5e-3, 2e-9);
    EXPECT_NEAR(device.true_energy().count, expected.count, 1e-6);
}

TEST_F(Streams, TheChipWarmsUpAndItsLeakageFollows) {
    Board board = mi210();
    board.thermal = {0.02, 60, 30, 0.2, 10s};
    Device warming{board, at_once()};
    EXPECT_DOUBLE_EQ(warming.celsius(), 30);
    Stream* queue = warming.create_stream();
    const KernelModel kernel = work(1000);
    for (int i = 0; i < 10; ++i) warming.launch(queue, kernel);
    warming.synchronize();
    // The chip follows its power, which grows with it by a few watts.
    const double least = operate(at_temperature(board, 30), kernel, {}).power.count;
    const double most = operate(at_temperature(board, 90), kernel, {}).power.count;
    EXPECT_GT(warming.celsius(), 30 + 0.2 * least * (1 - std::exp(-1.0)));
    EXPECT_LT(warming.celsius(), 30 + 0.2 * most * (1 - std::exp(-1.0)));
    EXPECT_GT(warming.true_energy().count, 10 * least);
    EXPECT_LT(warming.true_energy().count, 10 * most);
    const double hot = warming.celsius();
    warming.advance(100s);
    EXPECT_LT(warming.celsius(), hot);
}

TEST_F(Streams, OfARandomProgramConserveEnergy) {
    // Alone in its stream: the energy is the sum over launches of power times time.
    Joules expected{};
    Seconds busy{};
    for (int i = 1; i <= 50; ++i) {
        const KernelModel kernel{.core_time = Seconds{1e-4 * (i % 7)},
                                 .memory_time = Seconds{1e-4 * (i % 5)},
                                 .fixed_time = Seconds{1e-6 * i},
                                 .core_energy = {0.01 * (i % 11)},
                                 .memory_energy = {0.02}};
        device.launch(stream, kernel);
        const OperatingPoint point = operate(device.board(), kernel, {});
        expected += point.power * point.time;
        busy += point.time;
    }
    device.synchronize();
    EXPECT_NEAR(since_start(device.now()).count(), busy.count(), 50e-9) << "rounding to ns";
    EXPECT_NEAR(device.true_energy().count, expected.count, 1e-4 * expected.count);
}

}  // namespace
