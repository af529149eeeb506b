// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace kdvfs {

/// Who a device is and how its clocks are set; read once, when it is opened.
struct DeviceInfo {
    std::string name{};          ///< "AMD Instinct MI210"
    std::string address{};       ///< PCI "0000:03:00.0", or "simulated"
    std::string architecture{};  ///< what `ByArch` matches: "gfx90a", "sm_90"
    std::string mechanism{};     ///< how clocks are set, and why so: "rocm_smi determinism"
    bool simulated = false;      ///< no real hardware, no real joule
    /// Where what must be put back is recorded, for whom the device is locked, and what the end of
    /// the process cannot do; empty where clocks are not set.
    std::string restoring{};
};

/// "AMD Instinct MI210 (0000:03:00.0)", the way errors name a device.
inline std::string to_string(const DeviceInfo& info) {
    return info.name + " (" + info.address + ")";
}

/// The clocks a domain can be capped at.
struct ClockDomain {
    std::vector<Megahertz> listed{};  ///< ascending; empty where the domain cannot be set
    bool continuous = false;          ///< any clock between the first and the last is accepted
};

/// What a device can be asked for. `auto_clock` is always accepted and never listed.
struct SupportedClocks {
    ClockDomain core{};
    ClockDomain memory{};
};

/// Whether a domain can be capped at a clock.
inline bool supports(const ClockDomain& domain, Megahertz clock) {
    if (clock == auto_clock) return true;
    if (domain.listed.empty()) return false;
    if (domain.continuous) return domain.listed.front() <= clock && clock <= domain.listed.back();
    return std::binary_search(domain.listed.begin(), domain.listed.end(), clock);
}

/// Whether a device can be capped at a clock point.
inline bool supports(const SupportedClocks& clocks, ClockPoint point) {
    return supports(clocks.core, point.core) && supports(clocks.memory, point.memory);
}

}  // namespace kdvfs
