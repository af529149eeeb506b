// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

/// A simulated MI210 whose clocks follow at once unless a test says otherwise, and kernels for it.
namespace rig {

using namespace kdvfs;
using namespace kdvfs::literals;
using namespace std::chrono_literals;

struct Slow : Kernel<"slow"> {};      // 800 MHz
struct Middle : Kernel<"middle"> {};  // 1100 MHz
struct Free : Kernel<"free"> {};      // auto
struct Kept : Kernel<"kept"> {};      // no opinion

using Policies = PolicyRegistry<Bind<"slow", CapClock<800_MHz>>, Bind<"middle", CapClock<1100_MHz>>,
                                Bind<"free", AutoClock>, Bind<"kept", KeepClock>>;
using UnmeteredPolicies =
    PolicyRegistry<Bind<"slow", CapClock<800_MHz>>, Bind<"middle", CapClock<1100_MHz>>,
                   Bind<"free", AutoClock>, Bind<"kept", KeepClock>, Unmetered>;

inline constexpr ClockPoint slow{.core = {800}};
inline constexpr ClockPoint middle{.core = {1100}};
inline constexpr ClockPoint as_found{};

inline simulated::DeviceOptions device_options(Duration counter_period = 1ms,
                                               Joules counter_noise = {1e-4}) {
    return {.clock_switch = simulated::uniform_switch(0ns),
            .energy_counter = simulated::EnergyCounterTraits{
                .period = counter_period, .quantum = {1.0 / 65536}, .noise = counter_noise}};
}

inline GpuOptions gpu_options() {
    GpuOptions options;
    options.meter_every = 1;
    options.switch_latency = 0ns;
    options.sampler.period = 1ms;
    options.listen_every = 0ns;
    return options;
}

/// A kernel that the core clock governs, `milliseconds` long at the highest.
inline simulated::KernelModel work(double milliseconds) {
    return {.core_time = Seconds{milliseconds * 1e-3},
            .core_energy = {0.12 * milliseconds},
            .memory_energy = {0.01 * milliseconds}};
}

class OnSimulatedGpu : public testing::Test {
protected:
    explicit OnSimulatedGpu(simulated::DeviceOptions options = device_options())
        : device{simulated::mi210(), std::move(options)} {}

    /// Lets a stream note the clocks that hold when it gets here.
    void probe(simulated::Stream* on) {
        device.call_back(on, [this] { probed.push_back(device.effective_clocks()); });
    }
    void run(simulated::Stream* on, double milliseconds) {
        device.launch(on, work(milliseconds));
        probe(on);
    }

    using Clocks = std::vector<ClockPoint>;

    simulated::Device device;
    simulated::Stream* stream = device.create_stream();
    Clocks probed;
};

/// The sum of all counts that a scope can end in.
inline std::uint64_t sum(const measure::ScopeCounts& counts) {
    return counts.switches + counts.stream_redundant + counts.device_redundant +
           counts.not_worth_it + counts.missed + counts.overtaken + counts.pending +
           counts.refused + counts.kept + counts.captured + counts.measured + counts.followed;
}

inline bool has_note(const measure::Report& report, const std::string& part) {
    for (const std::string& note : report.notes) {
        if (note.find(part) != std::string::npos) return true;
    }
    return false;
}

inline const measure::ReportRow& row(const measure::Report& report, const std::string& kernel) {
    for (const auto& candidate : report.rows) {
        if (candidate.kernel.name == kernel) return candidate;
    }
    throw std::runtime_error("no row of kernel " + kernel);
}

}  // namespace rig
