// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/amd/capped_clocks.hpp>
#include <kdvfs/device/amd/card.hpp>
#include <kdvfs/device/amd/gpu_metrics.hpp>
#include <kdvfs/device/amd/system_files.hpp>
#include <kdvfs/device/contracts.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::device {
namespace amd {

/// Writes the driver's own files, in the words of its documentation (amdgpu_pm.c).
class SysfsWriter {
public:
    static constexpr std::string_view name = "amdgpu sysfs";

    explicit SysfsWriter(const Card& card) : folder_{card.folder}, object_{to_string(card)} {}

    void write_level(const std::string& level) {
        write("power_dpm_force_performance_level", level, "set the performance level " + level);
    }

    void write_limits(const ClockLimits& limits) {
        write_level("manual");
        edit("s 0 ", limits.core_min);
        edit("s 1 ", limits.core_max);
        if (limits.memory_max != auto_clock) edit("m 1 ", limits.memory_max);
        write("pp_od_clk_voltage", "c\n", "commit the clock limits");
    }

    void write_determinism(Megahertz cap) {
        write_level("perf_determinism");
        edit("s 1 ", cap);
        write("pp_od_clk_voltage", "c\n", "commit the clock limit");
    }

    /// Allows the core levels from the lowest to this one.
    void write_levels_up_to(unsigned highest) {
        write_level("manual");
        write("pp_dpm_sclk", levels_up_to(highest),
              "allow core levels up to " + std::to_string(highest));
    }

private:
    void edit(std::string_view command, Megahertz clock) {
        write("pp_od_clk_voltage", std::string{command} + std::to_string(clock.count) + "\n",
              "set a clock limit of " + to_string(clock));
    }

    void write(std::string_view file, const std::string& text, const std::string& action) {
        const std::string path = folder_ + "/" + std::string{file};
        if (const int error = write_file(path, text)) {
            throw file_error(action, object_, path, error);
        }
    }

    std::string folder_;
    std::string object_;
};

}  // namespace amd

/// An AMD GPU straight on the files of its driver: no library, and no root where the files allow
/// it. Opening it reads only; `probe` tries the clocks.
class AmdgpuSysfs : public amd::CappedClocks<amd::SysfsWriter>, public amd::MetricsFile {
public:
    explicit AmdgpuSysfs(const amd::Card& card)
        : CappedClocks{card, amd::SysfsWriter{card}}, MetricsFile{card} {}

    /// @throws Error (not_supported) where there is no such GPU.
    explicit AmdgpuSysfs(amd::PciAddress address) : AmdgpuSysfs{amd::find_card(address)} {}

    /// Tries the clocks (see `CappedClocks::probe`) and the counter.
    /// @throws Error with the driver's answer where no way to set clocks works
    amd::Capabilities probe() {
        amd::Capabilities found = CappedClocks::probe();
        found.energy = energy_capability();
        return found;
    }
};

static_assert(ClockControl<AmdgpuSysfs> && Restorable<AmdgpuSysfs>);
static_assert(EnergySource<AmdgpuSysfs>);

}  // namespace kdvfs::device
