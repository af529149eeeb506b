// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/device/nvidia/nvml_readings.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace cli {

/// What the dynamic loader is asked for: the driver's library, or the one that KDVFS_NVML names.
inline std::string nvml_library() {
    const std::string named{kdvfs::io::environment("KDVFS_NVML")};
    return named.empty() ? "libnvidia-ml.so.1" : named;
}

/// The NVIDIA GPUs of the driver's own folder, which is there without NVML, too; a container may
/// have none of it.
inline std::vector<std::string> nvidia_addresses_by_driver() {
    std::vector<std::string> addresses;
    std::error_code none;
    for (const auto& gpu : std::filesystem::directory_iterator{"/proc/driver/nvidia/gpus", none})
        addresses.push_back(kdvfs::device::nvml_address(gpu.path().filename().string()));
    return addresses;
}

/// The NVIDIA GPUs that this process can reach; where NVML is not there, those of the driver.
inline std::vector<std::string> nvidia_addresses() {
    try {
        return kdvfs::device::nvml_addresses(nvml_library());
    } catch (const kdvfs::Error&) {
        return nvidia_addresses_by_driver();
    }
}

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
