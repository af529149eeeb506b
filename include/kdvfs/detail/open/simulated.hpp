// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/simulated.hpp>

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/device/simulated/event_loop.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/gpu/core.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/simulated/device.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/options.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::simulated {

/// The prepared operating points of a simulated GPU (`DeviceOptions::prepared_points`). They end
/// with the process, as the device does.
class PreparedPoints {
public:
    /// @param device must outlive this
    explicit PreparedPoints(Device& device) : device_{device}, info_{device.info()} {
        info_.address += "-point";
    }

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return none_; }
    [[nodiscard]] std::vector<PreparedPoint> prepared_points() const {
        return info_.prepared_points;
    }
    [[nodiscard]] std::string read_operating_point() const {
        return device_.read_operating_point();
    }

    [[nodiscard]] static ClockState state_of(PreparedPoint point) {
        return operating_point_state(point.number);
    }
    [[nodiscard]] ClockState read_clock_state() const {
        return state_of(device_.read_prepared_point());
    }
    void apply(ClockPoint wanted) { device_.switch_to(PreparedPoint{wanted.core.count}); }
    void restore(const ClockState& state) { apply(state.cap); }

private:
    Device& device_;
    DeviceInfo info_;
    SupportedClocks none_{};
};

static_assert(PreparedPointControl<PreparedPoints>);

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
    options.accumulator.sensor_may_lag = device.has_sensors();
    const std::optional<Error> unreadable =
        kdvfs::detail::take_kept_sensors(parts.info, options.accumulator);
    using Core = kdvfs::detail::GpuCore<Device>;
    auto core = kdvfs::detail::share(std::make_unique<Core>(std::move(parts), options));
    if (unreadable) core->keep(*unreadable);
    core->drive_with(std::make_unique<EventLoop>(device, *core));
    return core;
}

}  // namespace detail

KDVFS_INLINE Gpu open(Device& device, const GpuOptions& options) {
    const auto address = std::to_string(reinterpret_cast<std::uintptr_t>(&device));
    return Gpu{kdvfs::detail::find_or_open(
        "simulated@" + address, [&] { return detail::make_core(device, options); },
        [&](kdvfs::detail::GpuService& gpu) { gpu.open_again(options, {}); })};
}

}  // namespace kdvfs::inline v0_3::simulated
