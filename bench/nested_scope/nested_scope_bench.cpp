// SPDX-License-Identifier: MIT
// What entering and leaving a scope costs the host, on a runtime that does nothing. Promised: under
// 50 ns for a nested scope with the enclosing scope's request, plus the runtime's own "is this
// stream capturing" question, which `track_key` asks twice and which is measured beside it.
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>
#include <tests/thread_loop/open_on_doubles.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace {

using namespace kdvfs;
using namespace kdvfs::literals;

struct Gelu : Kernel<"gelu"> {};
struct Gemm : Kernel<"gemm"> {};
using Metered = PolicyRegistry<Bind<"gelu", CapClock<1100_MHz>>, Bind<"gemm", CapClock<1300_MHz>>>;
using Switching =
    PolicyRegistry<Bind<"gelu", CapClock<1100_MHz>>, Bind<"gemm", CapClock<1300_MHz>>, Unmetered>;

class NullRuntime {
public:
    TrackKey track_key(StreamRef stream) {
        benchmark::DoNotOptimize(stream);
        return {.stream = stream};
    }
    TrackKey key_now(const TrackKey& before) {
        benchmark::DoNotOptimize(before);
        return before;
    }
    RequestCell* make_cell() { return &cells_.emplace_back(); }
    void put_marker(StreamRef, const Marker& marker) { marker.cell->store(marker.word); }
    std::size_t drain_timestamps(std::span<MarkerTimestamp>) noexcept { return 0; }
    std::uint64_t lost_timestamps() noexcept { return 0; }
    void synchronize(StreamRef) {}
    TimePoint now() noexcept { return {}; }
    std::string_view marker_mechanism() { return "none"; }

private:
    std::deque<RequestCell> cells_;
};

/// The least of all repetitions, beside their median: what others on the machine take is not ours.
double least(const std::vector<double>& times) {
    return *std::min_element(times.begin(), times.end());
}

void repeated(benchmark::internal::Benchmark* measured) {
    measured->Repetitions(15)->MinTime(0.02)->ReportAggregatesOnly()->ComputeStatistics("least",
                                                                                        least);
}

template <class Registry>
BoundGpu<Registry> open() {
    GpuOptions options;
    options.switch_latency = std::chrono::milliseconds{1};  // the gate is asked, and has no figure
    return doubles::open_undriven(std::make_shared<NullRuntime>(), options).with<Registry>();
}

/// The second iteration of 16: scopes of a metered registry are not metered.
void nested_same_request(benchmark::State& state) {
    const auto gpu = open<Metered>();
    gpu.next_iteration();
    FrequencyScope<Gelu> outer{gpu, nullptr};
    for (auto _ : state) {
        FrequencyScope<Gelu> scope{gpu, nullptr};
        benchmark::ClobberMemory();
    }
}
BENCHMARK(nested_same_request)->Apply(repeated);

/// The same for a kernel of thousands of shapes.
void nested_variant_1000(benchmark::State& state) {
    const auto gpu = open<Metered>();
    gpu.next_iteration();
    FrequencyScope<Gelu> outer{gpu, nullptr};
    for (std::uint32_t i = 0; i < 2000; ++i) FrequencyScope<Gelu> known{gpu, nullptr, variant(i)};
    for (auto _ : state) {
        FrequencyScope<Gelu> scope{gpu, nullptr, variant(1000)};
        benchmark::ClobberMemory();
    }
}
BENCHMARK(nested_variant_1000)->Apply(repeated);

/// The same from streams in turn.
void nested_same_request_on_streams_in_turn(benchmark::State& state) {
    const auto gpu = open<Metered>();
    gpu.next_iteration();
    struct alignas(256) Handle {};
    Handle streams[2];
    FrequencyScope<Gelu> one{gpu, &streams[0]};
    FrequencyScope<Gelu> two{gpu, &streams[1]};
    std::size_t turn = 0;
    for (auto _ : state) {
        FrequencyScope<Gelu> scope{gpu, &streams[turn ^= 1]};
        benchmark::ClobberMemory();
    }
}
BENCHMARK(nested_same_request_on_streams_in_turn)->Apply(repeated);

/// Another request each time: two markers, without what the runtime takes for them.
void switching(benchmark::State& state) {
    const auto gpu = open<Switching>();
    FrequencyScope<Gemm> outer{gpu, nullptr};
    for (auto _ : state) {
        FrequencyScope<Gelu> scope{gpu, nullptr};
        benchmark::ClobberMemory();
    }
}
BENCHMARK(switching)->Apply(repeated);

/// The runtime's own question, twice, as a scope asks it; here it is answered by nothing.
void track_key_twice(benchmark::State& state) {
    const auto runtime = std::make_unique<NullRuntime>();
    for (auto _ : state) {
        benchmark::DoNotOptimize(runtime->track_key(nullptr));
        benchmark::DoNotOptimize(runtime->track_key(nullptr));
    }
}
BENCHMARK(track_key_twice)->Apply(repeated);

}  // namespace
