// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/device/nvidia/nvml_readings.hpp>
#include <kdvfs/error.hpp>
#include <tools/cli/nvidia_boards.hpp>

#include <string>
#include <vector>

namespace cli {

/// A GPU of this machine, as its driver describes it.
struct BoardHere {
    std::string name;
    double limit_watts = 0;  ///< the power limit that holds now; 0: not known
};

/// The GPUs that this process can read, NVIDIA's first; those that cannot be read are left out.
inline std::vector<BoardHere> boards_here() {
    std::vector<BoardHere> boards;
    const auto add = [&](auto open) {
        try {
            const auto board = open();
            boards.push_back({board.info().name, board.read_power_limit().count});
        } catch (const kdvfs::Error&) {
        }
    };
    for (const std::string& address : nvidia_addresses())
        add([&] { return kdvfs::device::NvmlReadings{address, nvml_library()}; });
    for (const auto& card : kdvfs::device::amd::find_cards())
        add([&] { return kdvfs::device::AmdgpuSysfs{card}; });
    return boards;
}

}  // namespace cli
