// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>
#include <tests/thread_loop/open_on_doubles.hpp>

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
/// runs, its stream's cell holds the level of the marker before it, and the timestamps around it
/// are its own.
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
/// - `timestamps_in_graphs`: whether replays timestamp; event-based markers cannot.
namespace conformance {

template <class F>
concept StreamOrderFixture = std::default_initializable<F> &&
    requires(F& fixture, kdvfs::StreamRef stream, kdvfs::RequestCell* cell, std::size_t place,
             const std::function<void()>& record) {
    requires kdvfs::StreamRuntime<std::remove_reference_t<decltype(fixture.runtime())>>;
    { fixture.create_stream() } -> std::convertible_to<kdvfs::StreamRef>;
    fixture.work(stream);
    fixture.look(stream, cell, place);
    { fixture.seen(place) } -> std::same_as<kdvfs::RequestWord>;
    fixture.replay(stream, fixture.capture(stream, record));
    { F::timestamps_in_graphs } -> std::convertible_to<bool>;
};

/// Another's runtime, remembering the cell it made last.
template <kdvfs::StreamRuntime Runtime>
class WatchedRuntime {
public:
    WatchedRuntime(Runtime& runtime, kdvfs::RequestCell*& last_cell)
        : runtime_{runtime}, last_cell_{last_cell} {}

    kdvfs::TrackKey track_key(kdvfs::StreamRef stream) { return runtime_.track_key(stream); }
    kdvfs::TrackKey key_now(const kdvfs::TrackKey& before) { return runtime_.key_now(before); }
    kdvfs::RequestCell* make_cell() { return last_cell_ = runtime_.make_cell(); }
    void put_marker(kdvfs::StreamRef stream, const kdvfs::Marker& marker) {
        runtime_.put_marker(stream, marker);
    }
    std::size_t drain_timestamps(std::span<kdvfs::MarkerTimestamp> out) noexcept {
        return runtime_.drain_timestamps(out);
    }
    std::uint64_t lost_timestamps() noexcept { return runtime_.lost_timestamps(); }
    void synchronize(kdvfs::StreamRef stream) { runtime_.synchronize(stream); }
    kdvfs::TimePoint now() noexcept { return runtime_.now(); }
    std::string_view marker_mechanism() { return runtime_.marker_mechanism(); }

private:
    Runtime& runtime_;
    kdvfs::RequestCell*& last_cell_;
};

/// A GPU whose scopes put their markers, and whose clocks nobody drives: it has no actuator.
template <kdvfs::StreamRuntime Runtime>
kdvfs::Gpu undriven_gpu(Runtime& runtime, kdvfs::RequestCell*& last_cell) {
    using Watched = WatchedRuntime<Runtime>;
    return doubles::open_undriven(std::make_shared<Watched>(runtime, last_cell));
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
    struct Track {
        std::uint32_t number;
        kdvfs::StreamRef stream;
        kdvfs::RequestCell* cell;
    };

    Track make_track() {
        return {tracks_++, fixture.create_stream(), fixture.runtime().make_cell()};
    }
    void mark(const Track& track, std::uint32_t level, bool leaving) {
        const bool captured = fixture.runtime().track_key(track.stream).capture != 0;
        fixture.runtime().put_marker(track.stream, {track.cell,
                                                    kdvfs::RequestWord{level},
                                                    {.track = track.number, .leaving = leaving},
                                                    true,
                                                    captured});
        ++marks;
    }
    /// Expects, once the streams have been waited for, that work here sees this level.
    void expect_request(const Track& track, std::uint32_t level) {
        fixture.look(track.stream, track.cell, places_);
        expected_.emplace(places_++, level);
    }
    void check_levels() {
        for (const auto& [place, level] : expected_) {
            EXPECT_EQ(fixture.seen(place).raw(), level) << "at place " << place;
        }
    }
    /// Scopes in scopes, and a look at the track's cell after each step: none, the outer one's
    /// request, the inner one's, the outer one's again, none.
    template <class Gpu>
    void look_at_scopes(const Gpu& gpu, kdvfs::StreamRef stream, kdvfs::RequestCell*& cell) {
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
    void wait(const Track& track) { fixture.runtime().synchronize(track.stream); }

    /// All timestamps so far; checks that those of each track go forward in time.
    std::map<std::uint32_t, std::vector<kdvfs::MarkerTimestamp>> timestamps() {
        std::map<std::uint32_t, std::vector<kdvfs::MarkerTimestamp>> of_track;
        std::array<kdvfs::MarkerTimestamp, 64> some;
        while (const std::size_t count = fixture.runtime().drain_timestamps(some)) {
            for (std::size_t i = 0; i < count; ++i) {
                auto& track = of_track[some[i].tag.track];
                if (!track.empty()) {
                    EXPECT_LE(track.back().time, some[i].time);
                }
                track.push_back(some[i]);
            }
        }
        return of_track;
    }

    Fixture fixture;
    int marks = 0;

private:
    std::uint32_t tracks_ = 0;
    std::size_t places_ = 0;
    std::map<std::size_t, std::uint32_t> expected_;
};

TYPED_TEST_SUITE_P(StreamOrder);

TYPED_TEST_P(StreamOrder, MarkersActBetweenTheWorkAroundThem) {
    const auto track = this->make_track();
    this->expect_request(track, 0);
    for (std::uint32_t level = 1; level <= 20; ++level) {
        this->mark(track, level, false);
        this->expect_request(track, level);
        this->mark(track, 0, true);
        this->expect_request(track, 0);
    }
    this->wait(track);
    this->check_levels();
    EXPECT_EQ(track.cell->load().raw(), 0u);
}

TYPED_TEST_P(StreamOrder, NestedLevelsComeAndGoInOrder) {
    const auto track = this->make_track();
    for (const std::uint32_t level : {5U, 6U, 7U, 6U, 8U, 5U, 0U}) {
        this->mark(track, level, level < 6);
        this->fixture.work(track.stream);
        this->expect_request(track, level);
    }
    this->wait(track);
    this->check_levels();
}

TYPED_TEST_P(StreamOrder, ScopesLeftOutOfOrderLeaveTheLevelThatWasPutLast) {
    const auto track = this->make_track();
    this->mark(track, 3, false);
    this->mark(track, 4, false);
    this->mark(track, 4, true);  // the outer one first: the inner one's level stays
    this->expect_request(track, 4);
    this->mark(track, 0, true);
    this->expect_request(track, 0);
    this->wait(track);
    this->check_levels();
}

TYPED_TEST_P(StreamOrder, StreamsDoNotDisturbEachOther) {
    std::vector<typename StreamOrder<TypeParam>::Track> tracks;
    for (int i = 0; i < 4; ++i) tracks.push_back(this->make_track());
    std::mt19937 random{1};
    for (int i = 0; i < 100; ++i) {
        const auto& track = tracks[random() % tracks.size()];
        const auto level = static_cast<std::uint32_t>(random() | 1U);
        this->mark(track, level, false);
        this->expect_request(track, level);
        this->mark(track, 0, true);
    }
    for (const auto& track : tracks) this->wait(track);
    this->check_levels();
    std::size_t seen = 0;
    for (const auto& [track, timestamps] : this->timestamps()) {
        for (std::size_t i = 0; i < timestamps.size(); ++i)
            EXPECT_EQ(timestamps[i].tag.leaving, i % 2 == 1);
        seen += timestamps.size();
    }
    EXPECT_EQ(seen, static_cast<std::size_t>(this->marks));
}

TYPED_TEST_P(StreamOrder, TimestampsAreAroundTheWork) {
    const auto track = this->make_track();
    const auto before = this->fixture.runtime().now();
    this->mark(track, 1, false);
    this->fixture.work(track.stream);
    this->mark(track, 0, true);
    this->wait(track);
    const auto after = this->fixture.runtime().now();
    const auto all = this->timestamps();
    ASSERT_EQ(all.size(), 1u);
    const auto& timestamps = all.begin()->second;
    ASSERT_EQ(timestamps.size(), 2u);
    constexpr std::chrono::milliseconds fit{1};  // between the device's clock and the host's
    EXPECT_GE(timestamps[0].time, before - fit);
    EXPECT_GT(timestamps[1].time, timestamps[0].time);
    EXPECT_LE(timestamps[1].time, after + fit);
    EXPECT_EQ(this->fixture.runtime().lost_timestamps(), 0u);
}

TYPED_TEST_P(StreamOrder, GraphsWriteTheSameLevelsAtEachReplay) {
    const auto track = this->make_track();
    EXPECT_EQ(this->fixture.runtime().track_key(track.stream).capture, 0u);
    auto graph = this->fixture.capture(track.stream, [&] {
        EXPECT_NE(this->fixture.runtime().track_key(track.stream).capture, 0u);
        this->mark(track, 7, false);
        this->expect_request(track, 7);
        this->mark(track, 9, false);
        this->expect_request(track, 9);
        this->mark(track, 7, true);
        this->expect_request(track, 7);
        this->mark(track, 0, true);
    });
    EXPECT_EQ(track.cell->load().raw(), 0u) << "the capture ran";
    for (int replay = 0; replay < 5; ++replay) {
        this->fixture.replay(track.stream, graph);
        this->wait(track);
        this->check_levels();
        EXPECT_EQ(track.cell->load().raw(), 0u);
        const auto all = this->timestamps();
        const std::size_t seen = all.empty() ? 0 : all.begin()->second.size();
        EXPECT_EQ(seen, TypeParam::timestamps_in_graphs ? 4u : 0u);
    }
}

TYPED_TEST_P(StreamOrder, ScopesNestInAStream) {
    kdvfs::RequestCell* cell = nullptr;
    const auto gpu = undriven_gpu(this->fixture.runtime(), cell).template with<Nested>();
    const kdvfs::StreamRef stream = this->fixture.create_stream();
    this->look_at_scopes(gpu, stream, cell);
    this->fixture.runtime().synchronize(stream);
    this->check_scopes();
    EXPECT_EQ(cell->load().request(), kdvfs::no_request);
}

TYPED_TEST_P(StreamOrder, ScopesInACaptureNestAtEachReplay) {
    kdvfs::RequestCell* cell = nullptr;
    const auto gpu = undriven_gpu(this->fixture.runtime(), cell).template with<Nested>();
    const kdvfs::StreamRef stream = this->fixture.create_stream();
    // A live scope around the capture is another track's: the captured stack starts empty.
    kdvfs::FrequencyScope<Outer> live{gpu, stream};
    kdvfs::RequestCell* const live_cell = cell;
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
                            StreamsDoNotDisturbEachOther, TimestampsAreAroundTheWork,
                            GraphsWriteTheSameLevelsAtEachReplay, ScopesNestInAStream,
                            ScopesInACaptureNestAtEachReplay);

}  // namespace conformance
