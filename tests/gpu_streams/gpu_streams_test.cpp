// SPDX-License-Identifier: MIT
//
// `GpuStreams` over a double of each vendor's API: what is proven at the start, what is said where
// a proof fails, and what fails without taking a scope with it.
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>

#include <tests/conformance/stream_order.hpp>
#include <tests/gpu_streams/api_double.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace kdvfs::device {
namespace {

using namespace std::chrono_literals;
using api_double::Faults;

template <class Api>
class Streams : public testing::Test {
protected:
    using Gpu = GpuStreams<Api>;
    using Stream = typename Api::Stream;
    static_assert(StreamRuntime<Gpu> && WaitingRuntime<Gpu>);

    void SetUp() override { Api::reset(); }

    static Stream create() {
        Stream stream{};
        EXPECT_EQ(Api::make_stream(&stream), Api::success);
        return stream;
    }
    static std::string mechanism_with(const Faults& faults) {
        Api::reset();
        Api::world().faults = faults;
        return std::string{Gpu{0}.marker_mechanism()};
    }
    static std::string mechanism_without_device_code(const Faults& faults) {
        Api::reset();
        Api::world().faults = faults;
        marker_kernel_of_program<Api>() = nullptr;
        return std::string{Gpu{0}.marker_mechanism()};
    }
    static std::vector<MarkerTimestamp> drained(Gpu& gpu) {
        std::array<MarkerTimestamp, 16> some;
        const std::size_t count = gpu.drain_timestamps(some);
        return {some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count)};
    }
};

using Vendors = testing::Types<api_double::Hip, api_double::Cuda>;
struct VendorNames {
    template <class Api>
    static std::string GetName(int) {
        return Api::name;
    }
};
TYPED_TEST_SUITE(Streams, Vendors, VendorNames);

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TYPED_TEST(Streams, TakeTheBestWayAndSayAtWhichRateItsClockRuns) {
    const std::string rate = TypeParam::records_writes ? "1000 MHz" : "100 MHz";
    EXPECT_EQ(this->mechanism_with({}), "one-thread kernels, times by a wall clock of " + rate);
}

TYPED_TEST(Streams, SayWhyNoMarkerKernelIsUsed) {
    const std::string writes = TypeParam::records_writes
                                   ? "stream memory writes, times by events "
                                   : "stream memory writes, memsets in captures, times by events ";
    const auto expected = [&](const std::string& flaw) {
        return writes + "(no marker kernel: " + flaw + ")";
    };
    EXPECT_EQ(this->mechanism_without_device_code({}), expected("this program has no device code"));
    EXPECT_EQ(this->mechanism_with({.kernels_refused = true}), expected("error 3"));
    EXPECT_EQ(this->mechanism_with({.kernels_vanish = true}),
              expected("nothing arrives in host memory"));
    EXPECT_EQ(this->mechanism_with({.timestamps_vanish = true}),
              expected("its timestamps do not arrive"));
    EXPECT_EQ(this->mechanism_with({.clock_goes_back = true}),
              expected("its wall clock runs backwards"));
}

TYPED_TEST(Streams, TakeAMarkerKernelThatALaterModuleBrings) {
    marker_kernel_of_program<TypeParam>() = nullptr;
    GpuStreams<TypeParam> gpu{0};
    const auto stream = TestFixture::create();
    RequestCell* const early = gpu.make_cell();
    gpu.put_marker(stream, {early, RequestWord{1}, {3, 5, false, 2}, true});
    EXPECT_TRUE(contains(std::string{gpu.marker_mechanism()}, "stream memory writes"));

    marker_kernel_of_program<TypeParam>() = TypeParam::launch_marker;  // as at load
    RequestCell* const late = gpu.make_cell();                         // of a new stream
    EXPECT_TRUE(contains(std::string{gpu.marker_mechanism()}, "one-thread kernels"));
    gpu.put_marker(stream, {early, RequestWord{2}, {3, 5, true, 2}, true});
    gpu.put_marker(stream, {late, RequestWord{3}, {4, 6, false, 2}, true});
    EXPECT_EQ(early->load(), RequestWord{2});
    EXPECT_EQ(late->load(), RequestWord{3});
    const auto timestamps = TestFixture::drained(gpu);
    ASSERT_EQ(timestamps.size(), 3U) << "the one by an event, too";
    EXPECT_EQ(timestamps[0].tag.scope_kind, 5U);
    EXPECT_TRUE(timestamps[1].tag.leaving);
    EXPECT_GE(timestamps[1].time, timestamps[0].time);
    EXPECT_EQ(timestamps[2].tag.scope_kind, 6U);
    EXPECT_EQ(gpu.lost_timestamps(), 0U);
}

TYPED_TEST(Streams, KeepTheirWayWhereALateMarkerKernelDoesNotWork) {
    marker_kernel_of_program<TypeParam>() = nullptr;
    GpuStreams<TypeParam> gpu{0};
    TypeParam::world().faults.kernels_refused = true;
    marker_kernel_of_program<TypeParam>() = TypeParam::launch_marker;
    gpu.look_for_marker_kernel();
    EXPECT_TRUE(contains(std::string{gpu.marker_mechanism()}, "stream memory writes"));
    RequestCell* const cell = gpu.make_cell();
    gpu.put_marker(TestFixture::create(), {cell, RequestWord{1}, {}, false});
    EXPECT_EQ(cell->load(), RequestWord{1});
}

TYPED_TEST(Streams, DistrustTimestampsThatComeOutOfOrder) {
    const std::string words = this->mechanism_with({.timestamps_swap = true});
    EXPECT_TRUE(contains(words, "its timestamps come out of order") ||
                contains(words, "its timestamps do not arrive"))
        << words;
}

TYPED_TEST(Streams, RefuseAWallClockOfAnotherRateThanClaimed) {
    for (const double factor : {0.25, 0.9, 1.1, 4.0}) {
        const std::string words = this->mechanism_with({.clock_factor = factor});
        EXPECT_TRUE(contains(words, "no marker kernel: its wall clock runs at ")) << words;
        const std::string claimed = TypeParam::records_writes ? "1000 MHz" : "100 MHz";
        EXPECT_TRUE(contains(words, "not at " + claimed + " as ")) << words;
    }
}

TYPED_TEST(Streams, ProveEachWayAndNameEachFlaw) {
    EXPECT_TRUE(contains(this->mechanism_without_device_code({.writes_refused = true}),
                         "memsets, times by events (no marker kernel: this program has no device "
                         "code, no stream memory write: error 2)"));
    EXPECT_TRUE(contains(this->mechanism_without_device_code({.writes_vanish = true}),
                         "no stream memory write: nothing arrives in host memory)"));
    EXPECT_TRUE(contains(this->mechanism_without_device_code({.writes_overtake = true}),
                         "no stream memory write: it runs out of order)"));
    EXPECT_TRUE(contains(
        this->mechanism_without_device_code({.writes_refused = true, .sets_refused = true}),
        "host functions, times by events ("));
    try {
        this->mechanism_without_device_code(
            {.writes_refused = true, .sets_refused = true, .callbacks_refused = true});
        ADD_FAILURE() << "no way works, and yet one was taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::not_supported);
        EXPECT_TRUE(contains(error.what(), "no memset: error 2, no host function: error 2"))
            << error.what();
    }
}

TYPED_TEST(Streams, SayWhereEventsGiveNoTimes) {
    EXPECT_TRUE(contains(this->mechanism_without_device_code({.events_refused = true}),
                         ", no times: error 6 ("));
    for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
        EXPECT_TRUE(contains(this->mechanism_without_device_code({.event_factor = factor}),
                             ", no times: events go by another clock ("))
            << factor;
    }
}

TYPED_TEST(Streams, CountWhatACompilerCannotPlaceAsNoCycles) {
    TypeParam::world().faults.unit = unknown_unit;
    GpuStreams<TypeParam> gpu{0};
    EXPECT_TRUE(contains(std::string{gpu.marker_mechanism()}, "no core cycles"));
    gpu.put_marker(this->create(), {gpu.make_cell(), RequestWord{1}, {}, true});
    const auto seen = this->drained(gpu);
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0].core_cycles, 0u);
}

TYPED_TEST(Streams, CountNothingWhereUnitsDoNotCountACoreClock) {
    EXPECT_TRUE(contains(this->mechanism_with({.cycles_stand = true}),
                         "no core cycles: what units count stands still"));
    // At 1000 MHz, as CUDA's wall clock runs, core clocks run, too.
    const bool is_resolved = contains(this->mechanism_with({.cycles_are_ticks = true}),
                                      "no core cycles: what units count is the wall clock");
    EXPECT_EQ(is_resolved, !TypeParam::records_writes);
}

TYPED_TEST(Streams, TellWhichUnitHasCounted) {
    GpuStreams<TypeParam> gpu{0};
    const auto stream = this->create();
    RequestCell* const cell = gpu.make_cell();
    for (const std::uint32_t unit : {7U, 9U}) {
        TypeParam::world().faults.unit = unit;
        gpu.put_marker(stream, {cell, RequestWord{1}, {}, true});
    }
    const auto seen = this->drained(gpu);
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_EQ(seen[0].unit, 7u);
    EXPECT_EQ(seen[1].unit, 9u);
    EXPECT_NE(seen[1].core_cycles, 0u);
}

TYPED_TEST(Streams, KeepARequestWhoseTimestampFails) {
    for (const MarkerWay way : {MarkerWay::stream_write, MarkerWay::memset, MarkerWay::callback}) {
        TypeParam::reset();
        GpuStreams<TypeParam> gpu{0, way};
        RequestCell* const cell = gpu.make_cell();
        const auto stream = this->create();
        TypeParam::world().faults.events_refused = true;
        EXPECT_NO_THROW(gpu.put_marker(stream, {cell, RequestWord{7}, {}, true}));
        EXPECT_EQ(cell->load(), RequestWord{7});
        EXPECT_EQ(gpu.lost_timestamps(), 1u);
        EXPECT_TRUE(this->drained(gpu).empty());
        TypeParam::world().faults.events_refused = false;
        gpu.put_marker(stream, {cell, RequestWord{8}, {}, true});
        EXPECT_EQ(this->drained(gpu).size(), 1u);
        EXPECT_EQ(gpu.lost_timestamps(), 1u);
    }
}

TYPED_TEST(Streams, LoseTheTimestampsThatEventsCannotGive) {
    TypeParam::world().faults.events_refused = true;
    GpuStreams<TypeParam> gpu{0, MarkerWay::memset};
    gpu.put_marker(this->create(), {gpu.make_cell(), RequestWord{7}, {}, true});
    EXPECT_EQ(gpu.lost_timestamps(), 1u);
}

TYPED_TEST(Streams, LookForTheirTimeBaseUntilTheHostWasQuick) {
    TypeParam::world().faults.late_looks = 1;
    GpuStreams<TypeParam> gpu{0, MarkerWay::memset};
    const auto stream = this->create();
    stream->hold();
    gpu.put_marker(stream, {gpu.make_cell(), RequestWord{7}, {}, true});
    const TimePoint before = gpu.now();
    stream->release();
    const TimePoint after = gpu.now();
    std::this_thread::sleep_for(8ms);  // or the look at the event would bound the error
    const auto seen = this->drained(gpu);
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_GE(seen[0].time, before - 1ms);
    EXPECT_LE(seen[0].time, after + 1ms);
}

TYPED_TEST(Streams, WaitForAnAnswer) {
    GpuStreams<TypeParam> gpu{0};
    std::uint32_t* const word = gpu.make_answer_word();
    ASSERT_EQ(*word, 0u);
    const auto stream = this->create();
    RequestCell* const cell = gpu.make_cell();
    gpu.put_wait(stream, word, 1);
    gpu.put_marker(stream, {cell, RequestWord{7}, {}, false});
    EXPECT_EQ(cell->load(), RequestWord{}) << "the stream has not waited";
    *word = 1;
    gpu.synchronize(stream);
    EXPECT_EQ(cell->load(), RequestWord{7});
}

TYPED_TEST(Streams, ThatCannotWaitSaySo) {
    GpuStreams<TypeParam> gpu{0};
    TypeParam::world().faults.waits_refused = true;
    try {
        static_cast<void>(gpu.make_answer_word());
        ADD_FAILURE() << "a wait was promised";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::not_supported);
    }
}

TYPED_TEST(Streams, WhoseCaptureWasInvalidatedAreAnError) {
    GpuStreams<TypeParam> gpu{0};
    const auto stream = this->create();
    TypeParam::begin_capture(stream);
    const TrackKey key = gpu.track_key(stream);
    EXPECT_NE(key.capture, 0u);
    stream->capture_is_broken = true;
    EXPECT_THROW(static_cast<void>(gpu.track_key(stream)), Error);
    EXPECT_THROW(static_cast<void>(gpu.key_now(key)), Error);
}

TYPED_TEST(Streams, OfAnotherDeviceAreAnError) {
    GpuStreams<TypeParam> gpu{0};
    ASSERT_EQ(TypeParam::set_device(1), TypeParam::success);
    const auto other = this->create();
    EXPECT_THROW(static_cast<void>(gpu.track_key(other)), Error);
    EXPECT_THROW(static_cast<void>(gpu.track_key(nullptr)), Error);
    EXPECT_THROW(GpuStreams<TypeParam>{7}, Error);
}

TYPED_TEST(Streams, DefaultOnesAreLeftOnTheirOwnDeviceAlone) {
    GpuStreams<TypeParam> gpu{0};
    for (const auto stream : {typename TypeParam::Stream{}, TypeParam::per_thread()}) {
        const TrackKey key = gpu.track_key(stream);
        ASSERT_EQ(TypeParam::set_device(1), TypeParam::success);
        EXPECT_THROW(static_cast<void>(gpu.key_now(key)), Error);
        EXPECT_THROW(gpu.synchronize(stream), Error);
        ASSERT_EQ(TypeParam::set_device(0), TypeParam::success);
        EXPECT_EQ(gpu.key_now(key), key);
    }
}

TYPED_TEST(Streams, DefaultOnesThatCannotBeLeftWithAMarkerAreLeftByTheHostsWord) {
    GpuStreams<TypeParam> runtime{0};
    RequestCell* cell = nullptr;
    using Policies = PolicyRegistry<Bind<"outer", CapClock<Megahertz{1300}>>>;
    const auto gpu = conformance::undriven_gpu(runtime, cell).template with<Policies>();
    FrequencyScope<conformance::Outer> scope{gpu, nullptr};
    const RequestWord entered = cell->load();
    ASSERT_EQ(TypeParam::set_device(1), TypeParam::success);
    EXPECT_THROW(scope.close(), Error);
    EXPECT_EQ(cell->load(), entered) << "a marker went into the other device's stream";
    ASSERT_EQ(TypeParam::set_device(0), TypeParam::success);
    const FrequencyScope<conformance::Outer> next{gpu, nullptr};
    EXPECT_NE(cell->load(), entered);
}

TYPED_TEST(Streams, PerThreadAreTracksOfTheirOwn) {
    GpuStreams<TypeParam> gpu{0};
    const TrackKey mine = gpu.track_key(TypeParam::per_thread());
    TrackKey theirs;
    std::thread{[&] { theirs = gpu.track_key(TypeParam::per_thread()); }}.join();
    EXPECT_NE(mine, theirs);
    EXPECT_EQ(mine, gpu.key_now(mine));
}

TYPED_TEST(Streams, HaveAnAddressOnTheDeviceForEveryCell) {
    GpuStreams<TypeParam> gpu{0};
    const auto stream = this->create();
    std::vector<RequestCell*> cells;
    for (int i = 0; i < 10'000; ++i) cells.push_back(gpu.make_cell());
    for (std::size_t i = 0; i < cells.size(); ++i) {
        gpu.put_marker(stream,
                       {cells[i], RequestWord{static_cast<std::uint32_t>(i + 1)}, {}, false});
    }
    for (std::size_t i = 0; i < cells.size(); ++i) EXPECT_EQ(cells[i]->load().raw(), i + 1);
}

TYPED_TEST(Streams, AreAskedOnceForTheirDeviceAndTwiceForTheirCaptureByAScope) {
    GpuStreams<TypeParam> runtime{0};
    RequestCell* cell = nullptr;
    using Policies = PolicyRegistry<Bind<"outer", CapClock<Megahertz{1300}>>>;
    const auto gpu = conformance::undriven_gpu(runtime, cell).template with<Policies>();
    const auto stream = this->create();
    auto& world = TypeParam::world();
    for (const bool captured : {false, true}) {
        if (captured) TypeParam::begin_capture(stream);
        world.device_lookups = world.capture_queries = 0;
        for (int i = 0; i < 100; ++i) {
            const FrequencyScope<conformance::Outer> scope{gpu, stream};
        }
        EXPECT_EQ(world.device_lookups, 100u);
        EXPECT_EQ(world.capture_queries, 200u);
    }
}

}  // namespace
}  // namespace kdvfs::device

namespace conformance {
namespace {

using kdvfs::device::MarkerWay;

/// The streams of a double's API, their markers going one way.
template <class Api, MarkerWay Way>
class DoubleStreams {
public:
    static constexpr bool timestamps_in_graphs = Way == MarkerWay::kernel;

    DoubleStreams() {
        Api::reset();
        runtime_ = std::make_unique<kdvfs::device::GpuStreams<Api>>(0, Way);
    }
    auto& runtime() { return *runtime_; }
    kdvfs::StreamRef create_stream() {
        typename Api::Stream stream{};
        EXPECT_EQ(Api::make_stream(&stream), Api::success);
        stream->hold();  // until it is waited for
        return stream;
    }
    void work(kdvfs::StreamRef stream) {
        Api::put(of(stream), [] { std::this_thread::sleep_for(std::chrono::microseconds{20}); });
    }
    void look(kdvfs::StreamRef stream, kdvfs::RequestCell* cell, std::size_t place) {
        Api::put(of(stream), [this, cell, place] { seen_.at(place) = cell->load(); });
    }
    kdvfs::RequestWord seen(std::size_t place) { return seen_.at(place); }
    auto capture(kdvfs::StreamRef stream, const std::function<void()>& record) {
        Api::begin_capture(of(stream));
        record();
        return Api::end_capture(of(stream));
    }
    void replay(kdvfs::StreamRef stream, const std::vector<api_double::Operation>& graph) {
        for (const auto& operation : graph) Api::put(of(stream), operation);
    }

private:
    static typename Api::Stream of(kdvfs::StreamRef stream) {
        return stream.as<api_double::StreamObject>();
    }

    std::unique_ptr<kdvfs::device::GpuStreams<Api>> runtime_;
    std::array<kdvfs::RequestWord, 1000> seen_{};
};

using Cuda = api_double::Cuda;
using Hip = api_double::Hip;
// HIP's host functions are not recorded by captures.
using Ways = testing::Types<
    DoubleStreams<Hip, MarkerWay::kernel>, DoubleStreams<Hip, MarkerWay::stream_write>,
    DoubleStreams<Hip, MarkerWay::memset>, DoubleStreams<Cuda, MarkerWay::kernel>,
    DoubleStreams<Cuda, MarkerWay::stream_write>, DoubleStreams<Cuda, MarkerWay::memset>,
    DoubleStreams<Cuda, MarkerWay::callback>>;
INSTANTIATE_TYPED_TEST_SUITE_P(ApiDouble, StreamOrder, Ways);

}  // namespace
}  // namespace conformance
