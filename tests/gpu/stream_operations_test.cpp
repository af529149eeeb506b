// SPDX-License-Identifier: MIT
#include <tests/gpu/rig.hpp>
#include <tests/thread_loop/open_on_doubles.hpp>

#include <deque>
#include <memory>
#include <string_view>
#include <vector>

namespace {

using namespace rig;

/// A runtime that only writes down what is put into its streams.
class Recorder {
public:
    TrackKey track_key(StreamRef stream) { return {.stream = stream}; }
    TrackKey key_now(const TrackKey& before) { return before; }
    RequestCell* make_cell() { return &cells_.emplace_back(); }
    void put_marker(StreamRef, const Marker& marker) { markers.push_back(marker); }
    std::size_t drain_timestamps(std::span<MarkerTimestamp>) noexcept { return 0; }
    std::uint64_t lost_timestamps() noexcept { return 0; }
    void synchronize(StreamRef) {}
    TimePoint now() noexcept { return {}; }
    std::string_view marker_mechanism() { return "recorder"; }

    std::vector<Marker> markers;

private:
    std::deque<RequestCell> cells_;
};

class StreamOperations : public testing::Test {
protected:
    template <class Registry>
    BoundGpu<Registry> bound() {
        return doubles::open_undriven(doubles::borrowed(recorder), gpu_options()).with<Registry>();
    }

    Recorder recorder;
};

TEST_F(StreamOperations, AScopeTakesTwo) {
    const auto gpu = bound<UnmeteredPolicies>();
    { FrequencyScope<Slow> scope{gpu, nullptr}; }
    ASSERT_EQ(recorder.markers.size(), 2u);
    EXPECT_NE(recorder.markers[0].word.request(), no_request);
    EXPECT_EQ(recorder.markers[1].word.request(), no_request);
    EXPECT_FALSE(recorder.markers[0].timestamped);
}

TEST_F(StreamOperations, ANestedScopeWithTheSameRequestTakesNone) {
    const auto gpu = bound<UnmeteredPolicies>();
    FrequencyScope<Slow> outer{gpu, nullptr};
    for (int i = 0; i < 100; ++i) FrequencyScope<Slow> scope{gpu, nullptr};
    EXPECT_EQ(recorder.markers.size(), 1u);
    const auto counts = gpu.report().scopes;
    EXPECT_EQ(counts.stream_redundant, 100u);
    EXPECT_EQ(counts.scopes, 101u);
}

TEST_F(StreamOperations, ANestedScopeWithoutAnOpinionTakesNone) {
    const auto gpu = bound<Policies>();
    gpu.next_iteration();  // not metered... unless every iteration is
    recorder.markers.clear();
    const auto unmetered = gpu.with<UnmeteredPolicies>();
    FrequencyScope<Slow> outer{unmetered, nullptr};
    { FrequencyScope<Kept> kept{unmetered, nullptr}; }
    EXPECT_EQ(recorder.markers.size(), 1u);
}

TEST_F(StreamOperations, AMeteredNestedScopeTakesTimestampsWithTheSameLevel) {
    const auto gpu = bound<Policies>();
    FrequencyScope<Slow> outer{gpu, nullptr};
    { FrequencyScope<Slow> inner{gpu, nullptr}; }
    ASSERT_EQ(recorder.markers.size(), 3u);
    EXPECT_TRUE(recorder.markers[1].timestamped);
    EXPECT_EQ(recorder.markers[1].word, recorder.markers[0].word);
    EXPECT_EQ(recorder.markers[2].word, recorder.markers[0].word);
}

TEST_F(StreamOperations, TracksHaveCellsOfTheirOwnAndKeepThem) {
    const auto gpu = bound<UnmeteredPolicies>();
    int one = 0;
    int two = 0;
    for (int i = 0; i < 3; ++i) {
        FrequencyScope<Slow> a{gpu, &one};
        FrequencyScope<Slow> b{gpu, &two};
    }
    ASSERT_EQ(recorder.markers.size(), 12u);
    EXPECT_NE(recorder.markers[0].cell, recorder.markers[1].cell);
    EXPECT_EQ(recorder.markers[0].cell, recorder.markers[4].cell);
}

}  // namespace
