// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/core.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>

#include <gtest/gtest.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string_view>
#include <vector>

/// What every `StreamRuntime` must do, whatever its vendor: markers act in stream order. While work
/// runs, its stream's cell holds the level of the marker before it, and the stamps around it are
/// its own.
///
/// A runtime takes part by a fixture, default constructible, made anew for each test:
///     INSTANTIATE_TYPED_TEST_SUITE_P(Simulated, StreamOrder, SimulatedStreams);
/// - `runtime()`: the runtime under test;
/// - `create_stream()`: a stream, valid as long as the fixture;
/// - `work(stream)`: enqueues work that takes some time;
/// - `look(stream, cell, place)`: enqueues work that notes the cell's level when the stream gets
///   there; recorded by captures. `place` counts from 0 to 999;
/// - `seen(place)`: what the last look of that place has noted; the stream has been synchronized;
/// - `capture(stream, record)`: calls `record` while the stream captures; a handle to the graph;
/// - `replay(stream, graph)`: enqueues a captured graph;
/// - `stamps_in_graphs`: whether replays stamp; event-based markers cannot.
namespace conformance {

template <class F>
concept StreamOrderFixture = std::default_initializable<F> &&
    requires(F& fixture, kdvfs::StreamRef stream, kdvfs::LevelCell* cell, std::size_t place,
             const std::function<void()>& record) {
    requires kdvfs::StreamRuntime<std::remove_reference_t<decltype(fixture.runtime())>>;
    { fixture.create_stream() } -> std::convertible_to<kdvfs::StreamRef>;
    fixture.work(stream);
    fixture.look(stream, cell, place);
    { fixture.seen(place) } -> std::same_as<kdvfs::LevelWord>;
    fixture.replay(stream, fixture.capture(stream, record));
    { F::stamps_in_graphs } -> std::convertible_to<bool>;
};

/// Another's runtime, remembering the cell it made last.
template <kdvfs::StreamRuntime Runtime>
class WatchedRuntime {
public:
    WatchedRuntime(Runtime& runtime, kdvfs::LevelCell*& last_cell)
        : runtime_{runtime}, last_cell_{last_cell} {}

    kdvfs::LaneKey lane_key(kdvfs::StreamRef stream) { return runtime_.lane_key(stream); }
    kdvfs::LevelCell* make_cell() { return last_cell_ = runtime_.make_cell(); }
    void put_marker(kdvfs::StreamRef stream, const kdvfs::Marker& marker) {
        runtime_.put_marker(stream, marker);
    }
    std::size_t drain_stamps(std::span<kdvfs::MarkerStamp> out) noexcept {
        return runtime_.drain_stamps(out);
    }
    std::uint64_t lost_stamps() noexcept { return runtime_.lost_stamps(); }
    void synchronize(kdvfs::StreamRef stream) { runtime_.synchronize(stream); }
    kdvfs::TimePoint now() noexcept { return runtime_.now(); }
    std::string_view marker_mechanism() { return runtime_.marker_mechanism(); }

private:
    Runtime& runtime_;
    kdvfs::LevelCell*& last_cell_;
};

/// A GPU whose scopes put their markers, and whose clocks nobody drives: it has no actuator.
template <kdvfs::StreamRuntime Runtime>
kdvfs::Gpu undriven_gpu(Runtime& runtime, kdvfs::LevelCell*& last_cell) {
    using Watched = WatchedRuntime<Runtime>;
    return kdvfs::Gpu{std::make_shared<kdvfs::detail::GpuCore>(
        kdvfs::detail::GpuCore::Parts{
            .info = {.name = "no clocks"},
            .clocks = {.core = {.listed = {{500}, {1700}}, .continuous = true}},
            .found = kdvfs::ClockState{},
            .runtime = std::make_unique<kdvfs::detail::RuntimeOf<Watched>>(runtime, last_cell)},
        kdvfs::GpuOptions{})};
}

struct Outer : kdvfs::Kernel<"outer"> {};
struct Inner : kdvfs::Kernel<"inner"> {};
using Nested = kdvfs::PolicyRegistry<kdvfs::Bind<"outer", kdvfs::CapClock<kdvfs::Megahertz{1300}>>,
                                     kdvfs::Bind<"inner", kdvfs::CapClock<kdvfs::Megahertz{1100}>>,
                                     kdvfs::Unmetered>;

template <StreamOrderFixture Fixture>
class StreamOrder : public testing::Test {
protected:
    /// A stream with a cell of its own.
    struct kdvfs::detail::Lane {
        std::uint32_t number;
        kdvfs::StreamRef stream;
        kdvfs::LevelCell* cell;
    };

    kdvfs::detail::Lane make_lane() { return {lanes_++, fixture.create_stream(), fixture.runtime().make_cell()}; }
    void mark(const kdvfs::detail::Lane& lane, std::uint32_t level, bool leaving) {
        fixture.runtime().put_marker(
            lane.stream,
            {lane.cell, kdvfs::LevelWord{level}, {.lane = lane.number, .leaving = leaving}, true});
        ++marks;
    }
    /// Expects, once the streams have been waited for, that work here sees this level.
    void expect_level(const kdvfs::detail::Lane& lane, std::uint32_t level) {
        fixture.look(lane.stream, lane.cell, places_);
        expected_.emplace(places_++, level);
    }
    void check_levels() {
        for (const auto& [place, level] : expected_) {
            EXPECT_EQ(fixture.seen(place).raw(), level) << "at place " << place;
        }
    }
    /// Scopes in scopes, and a look at the lane's cell after each step: none, the outer one's
    /// request, the inner one's, the outer one's again, none.
    template <class Gpu>
    void look_at_scopes(const Gpu& gpu, kdvfs::StreamRef stream, kdvfs::LevelCell*& cell) {
        std::size_t place = 0;
        kdvfs::FrequencyScope<Outer> outer{gpu, stream};  // the cell is made
        fixture.look(stream, cell, place++);
        {
            kdvfs::FrequencyScope<Inner> inner{gpu, stream};
            fixture.look(stream, cell, place++);
            const kdvfs::FrequencyScope<Inner> same{gpu, stream};
            fixture.look(stream, cell, place++);
        }
        fixture.look(stream, cell, place++);
        outer.close();
        fixture.look(stream, cell, place++);
    }
    void check_scopes() {
        const auto request = [&](std::size_t place) { return fixture.seen(place).request(); };
        EXPECT_NE(request(0), kdvfs::no_request);
        EXPECT_NE(request(1), kdvfs::no_request);
        EXPECT_NE(request(1), request(0));
        EXPECT_EQ(request(2), request(1));
        EXPECT_EQ(request(3), request(0));
        EXPECT_EQ(request(4), kdvfs::no_request);
    }
    void wait(const kdvfs::detail::Lane& lane) { fixture.runtime().synchronize(lane.stream); }

    /// All stamps so far; checks that those of each lane go forward in time.
    std::map<std::uint32_t, std::vector<kdvfs::MarkerStamp>> stamps() {
        std::map<std::uint32_t, std::vector<kdvfs::MarkerStamp>> of_lane;
        std::array<kdvfs::MarkerStamp, 64> some;
        while (const std::size_t count = fixture.runtime().drain_stamps(some)) {
            for (std::size_t i = 0; i < count; ++i) {
                auto& lane = of_lane[some[i].tag.lane];
                if (!lane.empty()) {
                    EXPECT_LE(lane.back().time, some[i].time);
                }
                lane.push_back(some[i]);
            }
        }
        return of_lane;
    }

    Fixture fixture;
    int marks = 0;

private:
    std::uint32_t lanes_ = 0;
    std::size_t places_ = 0;
    std::map<std::size_t, std::uint32_t> expected_;
};

TYPED_TEST_SUITE_P(StreamOrder);

TYPED_TEST_P(StreamOrder, MarkersActBetweenTheWorkAroundThem) {
    const auto lane = this->make_lane();
    this->expect_level(lane, 0);
    for (std::uint32_t level = 1; level <= 20; ++level) {
        this->mark(lane, level, false);
        this->expect_level(lane, level);
        this->mark(lane, 0, true);
        this->expect_level(lane, 0);
    }
    this->wait(lane);
    this->check_levels();
    EXPECT_EQ(lane.cell->load().raw(), 0u);
}

TYPED_TEST_P(StreamOrder, NestedLevelsComeAndGoInOrder) {
    const auto lane = this->make_lane();
    for (const std::uint32_t level : {5U, 6U, 7U, 6U, 8U, 5U, 0U}) {
        this->mark(lane, level, level < 6);
        this->fixture.work(lane.stream);
        this->expect_level(lane, level);
    }
    this->wait(lane);
    this->check_levels();
}

TYPED_TEST_P(StreamOrder, ScopesLeftOutOfOrderLeaveTheLevelThatWasPutLast) {
    const auto lane = this->make_lane();
    this->mark(lane, 3, false);
    this->mark(lane, 4, false);
    this->mark(lane, 4, true);  // the outer one first: the inner one's level stays
    this->expect_level(lane, 4);
    this->mark(lane, 0, true);
    this->expect_level(lane, 0);
    this->wait(lane);
    this->check_levels();
}

TYPED_TEST_P(StreamOrder, StreamsDoNotDisturbEachOther) {
    std::vector<typename StreamOrder<TypeParam>::Lane> lanes;
    for (int i = 0; i < 4; ++i) lanes.push_back(this->make_lane());
    std::mt19937 random{1};
    for (int i = 0; i < 100; ++i) {
        const auto& lane = lanes[random() % lanes.size()];
        const auto level = static_cast<std::uint32_t>(random() | 1U);
        this->mark(lane, level, false);
        this->expect_level(lane, level);
        this->mark(lane, 0, true);
    }
    for (const auto& lane : lanes) this->wait(lane);
    this->check_levels();
    std::size_t seen = 0;
    for (const auto& [lane, stamps] : this->stamps()) {
        for (std::size_t i = 0; i < stamps.size(); ++i)
            EXPECT_EQ(stamps[i].tag.leaving, i % 2 == 1);
        seen += stamps.size();
    }
    EXPECT_EQ(seen, static_cast<std::size_t>(this->marks));
}

TYPED_TEST_P(StreamOrder, StampsAreAroundTheWork) {
    const auto lane = this->make_lane();
    const auto before = this->fixture.runtime().now();
    this->mark(lane, 1, false);
    this->fixture.work(lane.stream);
    this->mark(lane, 0, true);
    this->wait(lane);
    const auto after = this->fixture.runtime().now();
    const auto all = this->stamps();
    ASSERT_EQ(all.size(), 1u);
    const auto& stamps = all.begin()->second;
    ASSERT_EQ(stamps.size(), 2u);
    constexpr std::chrono::milliseconds fit{1};  // between the device's clock and the host's
    EXPECT_GE(stamps[0].time, before - fit);
    EXPECT_GT(stamps[1].time, stamps[0].time);
    EXPECT_LE(stamps[1].time, after + fit);
    EXPECT_EQ(this->fixture.runtime().lost_stamps(), 0u);
}

TYPED_TEST_P(StreamOrder, GraphsWriteTheSameLevelsAtEachReplay) {
    const auto lane = this->make_lane();
    EXPECT_EQ(this->fixture.runtime().lane_key(lane.stream).capture, 0u);
    auto graph = this->fixture.capture(lane.stream, [&] {
        EXPECT_NE(this->fixture.runtime().lane_key(lane.stream).capture, 0u);
        this->mark(lane, 7, false);
        this->expect_level(lane, 7);
        this->mark(lane, 9, false);
        this->expect_level(lane, 9);
        this->mark(lane, 7, true);
        this->expect_level(lane, 7);
        this->mark(lane, 0, true);
    });
    EXPECT_EQ(lane.cell->load().raw(), 0u) << "the capture ran";
    for (int replay = 0; replay < 5; ++replay) {
        this->fixture.replay(lane.stream, graph);
        this->wait(lane);
        this->check_levels();
        EXPECT_EQ(lane.cell->load().raw(), 0u);
        const auto all = this->stamps();
        const std::size_t seen = all.empty() ? 0 : all.begin()->second.size();
        EXPECT_EQ(seen, TypeParam::stamps_in_graphs ? 4u : 0u);
    }
}

TYPED_TEST_P(StreamOrder, ScopesNestInAStream) {
    kdvfs::LevelCell* cell = nullptr;
    const auto gpu = undriven_gpu(this->fixture.runtime(), cell).template with<Nested>();
    const kdvfs::StreamRef stream = this->fixture.create_stream();
    this->look_at_scopes(gpu, stream, cell);
    this->fixture.runtime().synchronize(stream);
    this->check_scopes();
    EXPECT_EQ(cell->load().request(), kdvfs::no_request);
}

TYPED_TEST_P(StreamOrder, ScopesInACaptureNestAtEachReplay) {
    kdvfs::LevelCell* cell = nullptr;
    const auto gpu = undriven_gpu(this->fixture.runtime(), cell).template with<Nested>();
    const kdvfs::StreamRef stream = this->fixture.create_stream();
    // A live scope around the capture is another lane's: the captured stack starts empty.
    kdvfs::FrequencyScope<Outer> live{gpu, stream};
    kdvfs::LevelCell* const live_cell = cell;
    auto graph = this->fixture.capture(stream, [&] { this->look_at_scopes(gpu, stream, cell); });
    EXPECT_NE(cell, live_cell);
    for (int replay = 0; replay < 3; ++replay) {
        this->fixture.replay(stream, graph);
        this->fixture.runtime().synchronize(stream);
        this->check_scopes();
        EXPECT_EQ(cell->load().request(), kdvfs::no_request);
        EXPECT_NE(live_cell->load().request(), kdvfs::no_request);
    }
    live.close();
    this->fixture.runtime().synchronize(stream);
    EXPECT_EQ(live_cell->load().request(), kdvfs::no_request);
}

REGISTER_TYPED_TEST_SUITE_P(StreamOrder, MarkersActBetweenTheWorkAroundThem,
                            NestedLevelsComeAndGoInOrder,
                            ScopesLeftOutOfOrderLeaveTheLevelThatWasPutLast,
                            StreamsDoNotDisturbEachOther, StampsAreAroundTheWork,
                            GraphsWriteTheSameLevelsAtEachReplay, ScopesNestInAStream,
                            ScopesInACaptureNestAtEachReplay);

}  // namespace conformance
