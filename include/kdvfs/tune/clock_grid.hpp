// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/device/device_info.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kdvfs::tune {

/// Clock points to measure a device at: core clocks over its whole range and auto, at each memory
/// clock and at auto.
/// @param most_core core clocks at most; fewer where the device lists fewer. About 16 are enough:
///                  24 points of both clocks were found to reach 80 to 98 % of the optimum
inline std::vector<ClockPoint> clock_grid(const SupportedClocks& clocks,
                                          std::size_t most_core = 16) {
    std::vector<Megahertz> core{auto_clock};
    const std::vector<Megahertz>& listed = clocks.core.listed;
    if (clocks.core.continuous && most_core > 1) {
        const auto steps = static_cast<std::uint32_t>(most_core - 1);
        const std::uint32_t first = listed.front().count;
        const std::uint32_t range = listed.back().count - first;
        for (std::uint32_t i = 0; i <= steps; ++i) core.push_back({first + i * range / steps});
    } else {
        const std::size_t stride = (listed.size() + most_core - 1) / most_core;
        for (std::size_t i = 0; i < listed.size(); i += stride) core.push_back(listed[i]);
    }
    std::vector<Megahertz> memory = clocks.memory.listed;
    memory.push_back(auto_clock);
    std::vector<ClockPoint> points;
    for (const Megahertz m : memory)
        for (const Megahertz c : core) points.push_back({c, m});
    return points;
}

}  // namespace kdvfs::tune
