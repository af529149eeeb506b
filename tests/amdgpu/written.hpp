// SPDX-License-Identifier: MIT
#pragma once

#include <tests/virtual_amdgpu/machine.hpp>

#include <string>

namespace kdvfs::device {

/// The texts of the writes, "file=text", one line each.
inline std::string written(const virtual_amdgpu::Machine& machine) {
    std::string all;
    for (const auto& write : machine.writes()) {
        all += write.file == "pp_od_clk_voltage" ? "od="
               : write.file == "pp_dpm_sclk"     ? "levels="
                                                 : "level=";
        all += write.text;
        if (!all.ends_with('\n')) all += '\n';
    }
    return all;
}

}  // namespace kdvfs::device
