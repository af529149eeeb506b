// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/capped_clocks.hpp>

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace kdvfs {

/// A board whose clock files are plain ones in a folder that all its users may write to. Each write
/// is atomic: processes look on while another one drives.
class SharedFiles {
public:
    explicit SharedFiles(std::string folder) : folder_{std::move(folder)} {}

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return clocks_; }
    [[nodiscard]] ClockState read_clock_state() const {
        ClockState state;
        state.mode = line_of("power_dpm_force_performance_level");
        if (state.mode != "manual") return state;
        const std::string table = read("pp_od_clk_voltage");
        const auto at = table.find("1: ");
        if (at == std::string::npos) throw std::runtime_error{"no table: " + table};
        state.cap.core = {static_cast<std::uint32_t>(std::stoul(table.substr(at + 3)))};
        state.floor.core = lowest;
        return state;
    }
    /// A cap at the highest clock is none: the level goes back to auto.
    void apply(ClockPoint point) const {
        if (point.core == auto_clock) return restore({});
        write("pp_od_clk_voltage", "OD_SCLK:\n0: 500Mhz\n1: " + std::to_string(point.core.count) +
                                       "Mhz\nOD_RANGE:\nSCLK:     500Mhz       1700Mhz\n");
        write("power_dpm_force_performance_level", "manual\n");
    }
    void restore(const ClockState& state) const {
        write("power_dpm_force_performance_level", state.mode + "\n");
    }
    [[nodiscard]] RestoreScript restore_script() const {
        return device::amd::restore_script(folder_, {lowest, {1700}});
    }

    [[nodiscard]] std::string settings_file() const {
        return folder_ + "/power_dpm_force_performance_level";
    }

private:
    static constexpr Megahertz lowest{500};

    [[nodiscard]] std::string read(const std::string& name) const {
        std::ifstream file{folder_ + "/" + name};
        return {std::istreambuf_iterator<char>{file}, {}};
    }
    [[nodiscard]] std::string line_of(const std::string& name) const {
        const std::string text = read(name);
        return text.substr(0, text.find('\n'));
    }
    void write(const std::string& name, const std::string& text) const {
        const std::string path = folder_ + "/" + name;
        const std::string fresh = path + "." + std::to_string(::getpid());
        std::ofstream{fresh} << text;
        std::rename(fresh.c_str(), path.c_str());
    }

    std::string folder_;
    DeviceInfo info_{"Board of files", "0000:c1:00.0", "gfx90a", "files"};
    SupportedClocks clocks_{{{{501}, {1700}}, true}, {}};
};

}  // namespace kdvfs
