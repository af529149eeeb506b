// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/rocm.hpp>

#include <kdvfs/detail/device/amd/hip_api.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/open/amd.hpp>

#include <memory>
#include <string>

namespace kdvfs::inline v0_3::rocm {
namespace detail {

/// The streams of a HIP device, with a marker kernel unless the program has brought one.
inline std::shared_ptr<device::Hip> hip_streams(int hip_device) {
    static_cast<void>(device::offer_marker_kernel<device::HipApi>(&device::HipApi::launch_marker));
    return std::make_shared<device::Hip>(hip_device);
}

}  // namespace detail

KDVFS_INLINE Gpu open(int hip_device, const GpuOptions& options) {
    return detail::open_board(
        device::pci_address<device::HipApi>(hip_device), "HIP device " + std::to_string(hip_device),
        [=] { return detail::hip_streams(hip_device); }, options);
}

KDVFS_INLINE Gpu measure(int hip_device, const GpuOptions& options) {
    return detail::measure_board(
        device::pci_address<device::HipApi>(hip_device), "HIP device " + std::to_string(hip_device),
        [=] { return detail::hip_streams(hip_device); }, options);
}

}  // namespace kdvfs::inline v0_3::rocm

namespace kdvfs::inline v0_3::extend {

/// The board of a HIP device. @throws Error if there is none such
inline device::amd::Card amd_card(int hip_device) {
    return rocm::detail::card_at(device::pci_address<device::HipApi>(hip_device),
                                 "HIP device " + std::to_string(hip_device));
}

}  // namespace kdvfs::inline v0_3::extend
