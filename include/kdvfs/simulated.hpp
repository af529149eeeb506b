// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/device/simulated/device.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>
#include <kdvfs/options.hpp>

#include <memory>

// What a file that opens a GPU compiles is large: more than ten seconds of g++ -O1. A program that
// opens simulated ones in many files, as its tests may, can compile that once: those files with
// KDVFS_SIMULATED_ELSEWHERE defined, and one that includes <kdvfs/device/simulated/open.hpp>, too,
// and holds
//     template auto kdvfs::simulated::detail::find_or_make(Device&, const GpuOptions&)
//         -> std::shared_ptr<kdvfs::detail::GpuService>;
#ifndef KDVFS_SIMULATED_ELSEWHERE
#include <kdvfs/device/simulated/open.hpp>
#endif

namespace kdvfs::inline v0_3::simulated {
namespace detail {

/// A template, so that it may be compiled elsewhere: for `Device` alone.
template <class SimulatedDevice>
std::shared_ptr<kdvfs::detail::GpuService> find_or_make(SimulatedDevice& device,
                                                        const GpuOptions& options);
#ifdef KDVFS_SIMULATED_ELSEWHERE
extern template std::shared_ptr<kdvfs::detail::GpuService> find_or_make(Device&, const GpuOptions&);
#endif

}  // namespace detail

/// Opens a simulated GPU: everything a `Gpu` does, in virtual time, with no real joule in it.
/// Opened a second time it is the same `Gpu`, with the options of the first.
/// @param device must outlive the last handle
/// @throws Error if its clocks cannot be set, unless `options.on_refused` says to go on
inline Gpu open(Device& device, const GpuOptions& options = {}) {
    return Gpu{detail::find_or_make(device, options)};
}

}  // namespace kdvfs::inline v0_3::simulated
