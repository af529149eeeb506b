// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/capped_clocks.hpp>

#include "temporary_folder.hpp"

#include <functional>
#include <string>

namespace kdvfs {

/// A board whose clock files are plain ones in a folder of the test's: what processes and shells
/// write there, all see.
class FileBoard {
public:
    static constexpr const char* level_file = "power_dpm_force_performance_level";
    static constexpr const char* table_file = "pp_od_clk_voltage";

    explicit FileBoard(const TemporaryFolder& folder) : folder_{&folder} {
        if (level().empty()) folder.write(level_file, "auto\n");
    }

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return clocks_; }
    [[nodiscard]] ClockState read_clock_state() const {
        ClockState state;
        state.mode = level();
        if (state.mode != "manual") return state;
        const std::string table = folder_->read(table_file);
        const auto at = table.find("1: ");
        state.cap.core = {static_cast<std::uint32_t>(std::stoul(table.substr(at + 3)))};
        state.floor.core = lowest;
        return state;
    }
    void apply(ClockPoint point) {
        if (before_a_write) before_a_write();
        folder_->write(table_file, "OD_SCLK:\n0: 500Mhz\n1: " + std::to_string(point.core.count) +
                                       "Mhz\nOD_RANGE:\nSCLK:     500Mhz       1700Mhz\n");
        folder_->write(level_file, "manual\n");
    }
    void restore(const ClockState& state) {
        if (before_a_write) before_a_write();
        folder_->write(level_file, state.mode + "\n");
    }
    [[nodiscard]] RestoreScript restore_script() const {
        return device::amd::restore_script(folder_->path(), {lowest, {1700}});
    }

    /// What the board's level is, whoever has written it.
    [[nodiscard]] std::string level() const {
        const std::string text = folder_->read(level_file);
        return text.substr(0, text.find('\n'));
    }

    std::function<void()> before_a_write;

private:
    static constexpr Megahertz lowest{500};

    const TemporaryFolder* folder_;
    DeviceInfo info_{"Board of files", "0000:c1:00.0", "gfx90a", "files"};
    SupportedClocks clocks_{{{{501}, {1700}}, true}, {}};
};

}  // namespace kdvfs
