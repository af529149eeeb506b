// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/device/amd/card.hpp>
#include <kdvfs/device/amd/system_files.hpp>

#include <string>
#include <string_view>

namespace kdvfs::device::amd {

/// Limits as the driver takes them: all of them are numbers.
struct ClockLimits {
    Megahertz core_min;
    Megahertz core_max;
    Megahertz memory_max = auto_clock;  ///< auto: there is none to write

    friend bool operator==(ClockLimits, ClockLimits) = default;
};

/// How settings get to the driver: by its files, or through a library that writes the same files.
/// Each call throws `Error` and may then have done its first half: no setter of the driver is
/// atomic. What is read back is read from the files, whoever has written.
class ClockWriter {
public:
    virtual ~ClockWriter() = default;

    /// "rocm_smi", for `info()`.
    [[nodiscard]] virtual std::string name() const = 0;
    virtual void write_level(const std::string& level) = 0;
    /// In level `manual`.
    virtual void write_limits(const ClockLimits& limits) = 0;
    /// In level `perf_determinism`.
    virtual void write_determinism(Megahertz cap) = 0;
    /// Allows the core levels from the lowest to this one, in level `manual`.
    virtual void write_levels_up_to(unsigned highest) = 0;
};

/// Writes the driver's own files, in the words of its documentation (amdgpu_pm.c): no library, and
/// no root where the files allow it.
class SysfsWriter final : public ClockWriter {
public:
    explicit SysfsWriter(const Card& card) : folder_{card.folder}, object_{to_string(card)} {}

    [[nodiscard]] std::string name() const override { return "amdgpu sysfs"; }

    void write_level(const std::string& level) override {
        write("power_dpm_force_performance_level", level, "set the performance level " + level);
    }

    void write_limits(const ClockLimits& limits) override {
        write_level("manual");
        edit("s 0 ", limits.core_min);
        edit("s 1 ", limits.core_max);
        if (limits.memory_max != auto_clock) edit("m 1 ", limits.memory_max);
        write("pp_od_clk_voltage", "c\n", "commit the clock limits");
    }

    void write_determinism(Megahertz cap) override {
        write_level("perf_determinism");
        edit("s 1 ", cap);
        write("pp_od_clk_voltage", "c\n", "commit the clock limit");
    }

    void write_levels_up_to(unsigned highest) override {
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

}  // namespace kdvfs::device::amd
