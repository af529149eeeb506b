// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/nvidia/nvml.hpp>
#include <kdvfs/detail/restore/site_limits.hpp>

#include <string>
#include <utility>

namespace kdvfs::inline v0_3::detail {

/// Adds the locks that the administrator names for a board in /run/kdvfs/limits. Whoever frees the
/// board's clocks goes back to them.
/// @param address PCI, in any spelling
/// @throws Error as `read_site_limits`
inline device::NvmlOptions with_site_locks(device::NvmlOptions options,
                                           const std::string& address) {
    const SiteLimits site = read_site_limits(address);
    options.site_floor = site.floor;
    options.site_ceiling = site.ceiling;
    return options;
}

}  // namespace kdvfs::inline v0_3::detail

namespace kdvfs::inline v0_3::extend {
using detail::with_site_locks;
}  // namespace kdvfs::inline v0_3::extend
