// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/simulated/device.hpp>

#include <string>
#include <vector>

namespace kdvfs::simulated {

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

}  // namespace kdvfs::simulated
