// SPDX-License-Identifier: MIT
#pragma once

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

}  // namespace cli
