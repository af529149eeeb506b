// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/device/simulated/device.hpp>
#include <kdvfs/device/simulated/event_loop.hpp>
#include <kdvfs/device/simulated/prepared_points.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace kdvfs::simulated {
namespace detail {

inline std::shared_ptr<kdvfs::detail::GpuService> make_core(Device& device, GpuOptions options) {
    kdvfs::detail::GpuParts<Device> parts{.info = device.info(),
                                          .clocks = device.supported_clocks(),
                                          .runtime = {std::shared_ptr<void>{}, &device}};
    if (!device.info().prepared_points.empty()) {
        using Switch = kdvfs::detail::DevicePointSwitch<PreparedPoints, PreparedPoints&>;
        parts.points = std::make_unique<kdvfs::detail::PreparedPointRequests>([&device] {
            return std::make_unique<Switch>(std::make_unique<PreparedPoints>(device));
        });
    }
    try {
        parts.initial = kdvfs::detail::prove_clock_control(device);
    } catch (const Error& refused) {
        if (options.on_refused == OnRefused::fail) throw;
        parts.info.mechanism = std::string{"measure only: "} + refused.what();
    }
    options.sampler.limits.period = device.counter_period();
    options.accumulator.counter_period = device.counter_period();
    using Core = kdvfs::detail::GpuCore<Device>;
    auto core = kdvfs::detail::share(std::make_unique<Core>(std::move(parts), options));
    core->drive_with(std::make_unique<EventLoop>(device, *core));
    return core;
}

}  // namespace detail

/// Opens a simulated GPU: everything a `Gpu` does, in virtual time, with no real joule in it.
/// Opened a second time it is the same `Gpu`, with the options of the first.
/// @param device must outlive the last handle
/// @throws Error if its clocks cannot be set, unless `options.on_refused` says to go on
inline Gpu open(Device& device, const GpuOptions& options = {}) {
    const auto address = std::to_string(reinterpret_cast<std::uintptr_t>(&device));
    return Gpu{kdvfs::detail::find_or_open("simulated@" + address,
                                           [&] { return detail::make_core(device, options); })};
}

}  // namespace kdvfs::simulated
