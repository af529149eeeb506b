// SPDX-License-Identifier: MIT
// What measuring costs: per kernel interval (at most a microsecond is promised, at a counter of 1
// ms and 20,000 intervals a second, too), per counter reading, and for a report that finds the
// sensor.
#include <kdvfs/detail/measure/energy_accumulator.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace {

using namespace kdvfs;
using namespace std::chrono_literals;

/// 20 kernels in random order on `tracks` streams, from 20 us up to `longest`; args: counter period
/// in ms, tracks, and `longest` in units of 20 us.
void attribute(benchmark::State& state) {
    constexpr std::uint32_t kernels = 20;
    const Duration period = std::chrono::milliseconds{state.range(0)};
    const auto tracks = static_cast<std::uint32_t>(state.range(1));
    const auto longest = static_cast<std::uint32_t>(state.range(2));
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
            const auto length = 20us * (1 + random() % longest);
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
    ->ArgNames({"period_ms", "tracks", "longest"})
    ->Args({1, 1, 4})
    ->Args({1, 1, 250})
    ->Args({10, 1, 250})
    ->Args({100, 1, 250})
    ->Args({10, 4, 250})
    ->Unit(benchmark::kMicrosecond);

/// A minute of a counter of 1 ms whose sensor nobody knows, and 20 kernels of 20 us to 5 ms in a
/// fixed step.
measure::EnergyAccumulator minute(const measure::KernelTable& table) {
    measure::EnergyAccumulator accumulator{table, {.counter_period = 1ms, .sensor_may_lag = true}};
    std::mt19937 random{1};
    std::vector<Duration> lengths;
    for (std::uint32_t i = 0; i < 20; ++i) lengths.push_back(20us * (1 + random() % 250));
    TimePoint end;
    TimePoint next_sample;
    double joules = 0;
    for (std::uint32_t i = 0; end < TimePoint{60s}; ++i) {
        accumulator.add(
            KernelInterval{.kernel = {i % 20}, .start = end, .end = end + lengths[i % 20]});
        const double watts = 300 + 20.0 * (i % 20);
        for (; next_sample <= end; next_sample += 1ms) {
            accumulator.add(measure::EnergySample{next_sample, {joules}, 0});
            joules += (watts + static_cast<double>(random() % 10)) * 1e-3;
        }
        end += lengths[i % 20];
        accumulator.advance(next_sample);
    }
    return accumulator;
}

void report(benchmark::State& state) {
    measure::KernelTable table;
    for (std::uint32_t i = 0; i < 20; ++i) table.id("kernel", variant(i));
    const measure::EnergyAccumulator accumulator = minute(table);
    for (auto _ : state) {
        measure::Report report;
        accumulator.fill(report);
        benchmark::DoNotOptimize(report);
    }
}
BENCHMARK(report)->Unit(benchmark::kMillisecond);

/// Readings of a counter of 1 ms while nothing runs.
void take_reading(benchmark::State& state) {
    const measure::KernelTable table;
    measure::EnergyAccumulator accumulator{table, {.counter_period = 1ms, .sensor_may_lag = true}};
    TimePoint at;
    double joules = 0;
    for (auto _ : state) {
        at += 1ms;
        joules += 0.1;
        accumulator.add(measure::EnergySample{at, {joules}, 0});
        accumulator.advance(at);
    }
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(take_reading)->Unit(benchmark::kNanosecond);

}  // namespace
