// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/units.hpp>

#include <cstdint>
#include <vector>

namespace kdvfs::simulated {

/// The clocks from `first` to `last` in equal steps; `last` is in even if a step misses it.
inline std::vector<Megahertz> clock_range(Megahertz first, Megahertz last, std::uint32_t step) {
    std::vector<Megahertz> clocks;
    for (std::uint32_t mhz = first.count; mhz < last.count; mhz += step) clocks.push_back({mhz});
    clocks.push_back(last);
    return clocks;
}

}  // namespace kdvfs::simulated
