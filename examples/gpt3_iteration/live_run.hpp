// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_iteration/scoped_iteration.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/profile.hpp>

#include <cstddef>
#include <memory>
#include <ostream>
#include <span>
#include <utility>

/// The iteration run live on a simulated GPU.
namespace gpt3 {

using Models = std::span<const kdvfs::simulated::KernelModel, kernel_count>;

/// What a live iteration cost, and what its scopes did.
struct LiveRun {
    kdvfs::Duration switch_latency{};
    kdvfs::tune::Cost cost{};
    kdvfs::measure::Report report{};
};

/// A simulated GPU whose clocks follow a marker after `switch_latency`, all of it: the listener and
/// the call take no time of their own, and the GPU works on at the old clock meanwhile. Its counter
/// is sampled every millisecond, with half a watt of noise.
inline kdvfs::simulated::Device live_device(const kdvfs::simulated::Board& board,
                                            kdvfs::Duration switch_latency) {
    using namespace std::chrono_literals;
    return kdvfs::simulated::Device{
        board,
        {.clock_switch = kdvfs::simulated::uniform_switch(switch_latency),
         .energy_counter = kdvfs::simulated::EnergyCounterTraits{
             .period = 1ms, .quantum = {1.0 / 65536}, .noise = {5e-4}}}};
}

inline kdvfs::GpuOptions live_options(kdvfs::Duration switch_latency) {
    kdvfs::GpuOptions options;
    options.switch_latency = switch_latency;
    options.meter_every = 1;
    options.sampler.period = std::chrono::milliseconds{1};
    options.listen_every = kdvfs::Duration{0};
    return options;
}

/// One iteration at the board's own clocks, without scopes.
inline kdvfs::tune::Cost run_unscoped(const kdvfs::simulated::Board& board, Models models) {
    kdvfs::simulated::Device device = live_device(board, kdvfs::Duration{0});
    for (const std::size_t entry : launch_sequence()) device.launch(nullptr, models[entry]);
    device.synchronize();
    return {device.now().time_since_epoch(), device.true_energy()};
}

/// One iteration under a registry.
/// @param trace receives Chrome trace events, if not null
template <class Registry>
LiveRun run_live(const kdvfs::simulated::Board& board, Models models,
                 kdvfs::Duration switch_latency, std::shared_ptr<const kdvfs::PlanTable> plan,
                 std::ostream* trace) {
    kdvfs::simulated::Device device = live_device(board, switch_latency);
    const auto gpu = kdvfs::simulated::open(device, live_options(switch_latency))
                         .with<Registry>(std::move(plan));
    if (trace != nullptr) gpu.trace_to(*trace);
    kdvfs::simulated::Stream* stream = device.create_stream();
    device.synchronize();
    const auto began = device.now();
    const auto energy_before = device.true_energy();
    launch_iteration(gpu, stream, [&](std::size_t entry) { device.launch(stream, models[entry]); });
    device.synchronize(stream);
    LiveRun run{.switch_latency = switch_latency,
                .cost = {device.now() - began, device.true_energy() - energy_before}};
    device.advance(std::chrono::milliseconds{2});  // the counter's last sample
    run.report = gpu.report();
    if (trace != nullptr) gpu.end_trace();
    gpu.close();
    return run;
}

}  // namespace gpt3
