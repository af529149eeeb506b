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
    explicit SysfsWriter(const Card& card)
        : object_{to_string(card)},
          level_{card.folder + "/power_dpm_force_performance_level"},
          table_{card.folder + "/pp_od_clk_voltage"},
          mask_{card.folder + "/pp_dpm_sclk"} {}

    [[nodiscard]] std::string name() const override { return "amdgpu sysfs"; }

    void write_level(const std::string& level) override {
        write(level_, level, [&] { return "set the performance level " + level; });
    }

    void write_limits(const ClockLimits& limits) override {
        write_level("manual");
        edit("s 0 ", limits.core_min);
        edit("s 1 ", limits.core_max);
        if (limits.memory_max != auto_clock) edit("m 1 ", limits.memory_max);
        write(table_, "c\n", [] { return "commit the clock limits"; });
    }

    void write_determinism(Megahertz cap) override {
        write_level("perf_determinism");
        edit("s 1 ", cap);
        write(table_, "c\n", [] { return "commit the clock limit"; });
    }

    void write_levels_up_to(unsigned highest) override {
        write_level("manual");
        write(mask_, levels_up_to(highest),
              [&] { return "allow core levels up to " + std::to_string(highest); });
    }

private:
    void edit(std::string_view command, Megahertz clock) {
        write(table_, std::string{command} + std::to_string(clock.count) + "\n",
              [&] { return "set a clock limit of " + to_string(clock); });
    }

    /// @param action what is tried, in words, for the error alone
    template <class Action>
    void write(const std::string& path, std::string_view text, Action action) const {
        if (const int error = write_file(path, text)) {
            throw file_error(action(), object_, path, error);
        }
    }

    std::string object_;
    std::string level_;
    std::string table_;
    std::string mask_;
};

}  // namespace kdvfs::device::amd
