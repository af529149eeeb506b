// SPDX-License-Identifier: MIT
// What a scope costs the host while a plan is followed, between two boundaries: entering and
// leaving together, on a runtime whose own calls take next to nothing.
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

namespace {

using namespace kdvfs;

template <std::size_t Number>
struct Numbered {
    static constexpr char text[] = {'k', char('a' + Number), '\0'};
    static constexpr std::string_view name{text, 2};
};

constexpr std::size_t kernels = 16;
constexpr std::size_t repeats = 64;

std::shared_ptr<const PlanTable> one_segment() {
    PlannedSequence sequence;
    for (std::size_t k = 0; k < kernels; ++k)
        sequence.kernels.push_back({{std::string{'k', char('a' + k)}, {}}, Duration{10'000}});
    for (std::size_t i = 0; i < kernels * repeats; ++i)
        sequence.launches.push_back(static_cast<std::uint32_t>(i % kernels));
    sequence.boundaries.push_back({0, {.core = {1100}}});
    auto plan = std::make_shared<PlanTable>();
    plan->follow(std::move(sequence));
    return plan;
}

template <class BoundGpu, std::size_t... Number>
void scopes(const BoundGpu& gpu, StreamRef stream, std::index_sequence<Number...>) {
    (static_cast<void>(FrequencyScope<Numbered<Number>>{gpu, stream}), ...);
}

/// The median of many iterations, in nanoseconds a scope.
template <class BoundGpu>
double cost(const BoundGpu& gpu, StreamRef stream) {
    std::vector<double> costs;
    for (int iteration = 0; iteration < 500; ++iteration) {
        gpu.next_iteration();
        const auto began = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i < repeats; ++i)
            scopes(gpu, stream, std::make_index_sequence<kernels>{});
        const std::chrono::duration<double, std::nano> took =
            std::chrono::steady_clock::now() - began;
        costs.push_back(took.count() / (kernels * repeats));
    }
    std::nth_element(costs.begin(), costs.begin() + 250, costs.end());
    return costs[250];
}

}  // namespace

int main() {
    simulated::Device device{simulated::mi210(), {}};
    GpuOptions options;
    options.meter_every = 1'000'000;
    const Gpu gpu = simulated::open(device, options);
    simulated::Stream* stream = device.create_stream();
    const double kept =
        cost(gpu.with<PolicyRegistry<Default<KeepClock>>>(), device.create_stream());
    const double followed =
        cost(gpu.with<PolicyRegistry<Default<KeepClock>>>(one_segment()), stream);
    std::printf(
        "enter and leave, unmetered: %.1f ns while a plan is followed, %.1f ns with KeepClock\n",
        followed, kept);
    std::printf("followed %.2f %%, markers %ju\n", 100 * gpu.report().followed->share(),
                std::uintmax_t{device.markers()});
}
