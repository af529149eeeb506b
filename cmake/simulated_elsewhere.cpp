// SPDX-License-Identifier: MIT
// What files leave out that are compiled with KDVFS_SIMULATED_ELSEWHERE: once for all programs.
#include <kdvfs/device/simulated/open.hpp>
#include <kdvfs/simulated.hpp>

template auto kdvfs::simulated::detail::find_or_make(Device&, const GpuOptions&)
    -> std::shared_ptr<kdvfs::detail::GpuService>;
