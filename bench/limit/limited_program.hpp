// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/boards.hpp>
#include <kdvfs/device/power_limiter.hpp>
#include <kdvfs/kdvfs.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/limited_plan.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// The GPT-3-XL iteration on simulated boards at their power limit, which is one of the mean.
namespace limited {

using namespace kdvfs;

inline constexpr Duration marker_time = std::chrono::microseconds{2};

/// A board whose limit is one of the mean. H100s were measured to do so; of AMD's boards it is an
/// assumption.
inline simulated::Board averaging(simulated::Board board) {
    board.limiter_rate = device::PowerLimiter::measured_rate;
    return board;
}
inline device::PowerLimiter limiter_of(const simulated::Board& board) {
    return {board.power_cap, board.limiter_rate, static_cast<double>(board.core_min.count),
            static_cast<double>(board.core_max.count)};
}

inline simulated::Device device_of(const simulated::Board& board, Duration latency) {
    return simulated::Device{
        board,
        {.clock_switch = simulated::uniform_switch(latency),
         .energy_counter = simulated::EnergyCounterTraits{.period = std::chrono::milliseconds{1}},
         .marker_time = marker_time}};
}

/// What a kernel costs free of the limit: bursts of it at each clock, with a rest before each, in
/// which the limiter's ceiling comes up again.
inline tune::CostTable measure_bursts(const simulated::Board& board,
                                      std::span<const simulated::KernelModel> kernels,
                                      std::span<const ClockPoint> clocks) {
    constexpr Seconds burst{1e-3};
    constexpr Duration rest = std::chrono::milliseconds{200};
    simulated::Device device = device_of(board, Duration{0});
    simulated::Stream* stream = device.create_stream();
    tune::CostTable table{board.name, {}, {}};
    for (std::size_t k = 0; k < kernels.size(); ++k) {
        tune::KernelCosts costs;
        costs.key.name = "kernel" + std::to_string(k);
        for (const ClockPoint clock : clocks) {
            device.apply(clock);
            const auto run = [&](std::uint32_t launches) {
                device.advance(rest);
                const TimePoint began = device.now();
                const Joules before = device.true_energy();
                for (std::uint32_t i = 0; i < launches; ++i) device.launch(stream, kernels[k]);
                device.synchronize(stream);
                return tune::Cost{(device.now() - began) / launches,
                                  (device.true_energy() - before) * (1.0 / launches)};
            };
            const tune::Cost one = run(1);
            const auto launches =
                static_cast<std::uint32_t>(std::clamp(burst / one.time, 1.0, 1000.0));
            if (clock == table.baseline) costs.baseline = costs.points.size();
            costs.points.push_back({clock, launches == 1 ? one : run(launches)});
        }
        table.kernels.push_back(std::move(costs));
    }
    return table;
}

/// So many core clocks of a board, and those left to the board.
inline std::vector<ClockPoint> core_clocks(const simulated::Board& board, std::size_t count) {
    std::vector<ClockPoint> clocks = tune::clock_grid(board.clocks, count);
    std::erase_if(clocks, [](ClockPoint clock) { return clock.memory != auto_clock; });
    std::sort(clocks.begin(), clocks.end());
    return clocks;
}

struct SegmentScope : Kernel<"segment"> {};
using Registry = PolicyRegistry<Bind<"segment", FromPlan<AutoClock>>, Default<KeepClock>>;

/// The mean of the last iterations of a run that follows segments; none: as found. The limiter has
/// some of its times to settle before.
inline tune::Cost run_live(const simulated::Board& board,
                           std::span<const simulated::KernelModel> kernels,
                           const std::vector<std::size_t>& launches,
                           const std::vector<tune::Segment>& segments, Duration latency) {
    const double settled_s = 12 / board.limiter_rate;
    constexpr double counted_s = 2;
    simulated::Device device = device_of(board, latency);
    GpuOptions options;
    options.listen_every = Duration{0};
    options.meter_every = 16;
    auto table = std::make_shared<PlanTable>();
    for (std::size_t s = 0; s < segments.size(); ++s)
        table->set({"segment", variant(static_cast<std::uint32_t>(s))},
                   {.asks = true, .point = segments[s].clock, .ungated = true});
    const auto gpu = simulated::open(device, options).with<Registry>(table);
    simulated::Stream* stream = device.create_stream();
    const auto iterate = [&](double seconds) {
        const TimePoint began = device.now();
        const Joules before = device.true_energy();
        int iterations = 0;
        while (iterations % 16 != 0 || Seconds{device.now() - began}.count() < seconds) {
            gpu.next_iteration();
            const auto run = [&](std::size_t first, std::size_t last) {
                for (std::size_t i = first; i < last; ++i)
                    device.launch(stream, kernels[launches[i]]);
            };
            if (segments.empty()) run(0, launches.size());
            for (std::size_t s = 0; s < segments.size(); ++s) {
                FrequencyScope<SegmentScope> scope{gpu, stream,
                                                   variant(static_cast<std::uint32_t>(s))};
                run(segments[s].first, segments[s].last);
            }
            device.synchronize(stream);
            ++iterations;
        }
        return tune::Cost{Seconds{device.now() - began} / iterations,
                          (device.true_energy() - before) * (1.0 / iterations)};
    };
    iterate(settled_s);
    const tune::Cost mean = iterate(counted_s);
    gpu.close();
    return mean;
}

}  // namespace limited
