// SPDX-License-Identifier: MIT
// What attribution costs per kernel interval: at most a microsecond is promised.
#include <kdvfs/detail/measure/energy_accumulator.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace {

using namespace kdvfs;
using namespace std::chrono_literals;

/// 20 kernels of 20 us to 5 ms in random order on `tracks` streams; args: counter period in ms.
void attribute(benchmark::State& state) {
    constexpr std::uint32_t kernels = 20;
    const Duration period = std::chrono::milliseconds{state.range(0)};
    const auto tracks = static_cast<std::uint32_t>(state.range(1));
    measure::KernelTable table;
    for (std::uint32_t i = 0; i < kernels; ++i) table.id("kernel", variant(i));
    measure::EnergyAccumulator accumulator{table, {.counter_period = period}};
    std::mt19937 random{1};
    std::vector<TimePoint> track_end(tracks);
    TimePoint next_sample;
    double joules = 0;
    std::int64_t intervals = 0;
    for (auto _ : state) {
        // One harvest of a ring: 1000 intervals, then the samples that belong to them.
        for (std::uint32_t i = 0; i < 1000; ++i) {
            const std::uint32_t track = i % tracks;
            const auto length = 20us * (1 + random() % 250);
            const KernelInterval interval{{static_cast<std::uint32_t>(random() % kernels)},
                                          {track},
                                          {},
                                          track_end[track],
                                          track_end[track] + length,
                                          0};
            track_end[track] += length;
            accumulator.add(interval);
        }
        const TimePoint complete = *std::min_element(track_end.begin(), track_end.end());
        for (; next_sample <= complete; next_sample += period) {
            accumulator.add(measure::EnergySample{next_sample, {joules}, 0});
            const double watts = 440 + 0.2 * static_cast<double>(random() % 100);
            joules += watts * Seconds{period}.count();
        }
        accumulator.advance(complete);
        intervals += 1000;
    }
    state.SetItemsProcessed(intervals);
}
BENCHMARK(attribute)
    ->ArgNames({"period_ms", "tracks"})
    ->Args({1, 1})
    ->Args({10, 1})
    ->Args({100, 1})
    ->Args({10, 4})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
