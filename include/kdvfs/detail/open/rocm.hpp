// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/rocm.hpp>

#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/device/amd/families.hpp>
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>
#include <kdvfs/detail/device/amd/hip_api.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>

#include <memory>
#include <string>

namespace kdvfs::inline v0_3::rocm {

namespace detail {

using OwnedBoard = kdvfs::detail::OwnedDevice<device::amd::Clocks>;

/// The card at a PCI address. @param who whose address it is, for errors
inline device::amd::Card card_at(const std::string& spelled, const std::string& who) {
    if (const auto address = io::parse_pci_address(spelled)) {
        return device::amd::find_card(*address);
    }
    throw Error{Errc::invalid_input,
                {"read the PCI address", who, "'" + spelled + "' is none",
                 "give one such as 0000:c1:00.0"}};
}

/// Opens a board to set its clocks; `open_streams` as `kdvfs::detail::open_device` takes it.
template <class OpenStreams>
Gpu open_board(const std::string& at, const std::string& who, OpenStreams open_streams,
               const GpuOptions& options) {
    const device::amd::Card card = card_at(at, who);
    return Gpu{kdvfs::detail::open_device(
        to_string(card.address), open_streams,
        [&] {
            device::amd::require_proven(card, options.allow_unproven);
            return std::make_shared<OwnedBoard>(card, options.clock_path);
        },
        [&] { return std::make_shared<device::AmdgpuSysfs>(card); }, options)};
}

/// The same to measure it.
template <class OpenStreams>
Gpu measure_board(const std::string& at, const std::string& who, OpenStreams open_streams,
                  GpuOptions options) {
    options.on_refused = OnRefused::measure_only;
    const device::amd::Card card = card_at(at, who);
    return Gpu{kdvfs::detail::open_device(
        to_string(card.address) + " measured", open_streams,
        [] { return std::shared_ptr<OwnedBoard>{}; },
        [&] { return std::make_shared<device::AmdgpuSysfs>(card); }, options)};
}

}  // namespace detail

KDVFS_INLINE Gpu open(const std::string& pci_address, const GpuOptions& options) {
    return detail::open_board(
        pci_address, "an AMD GPU",
        [&] { return std::make_shared<kdvfs::detail::LateStreams>(pci_address); }, options);
}

KDVFS_INLINE Gpu measure(const std::string& pci_address, const GpuOptions& options) {
    return detail::measure_board(
        pci_address, "an AMD GPU",
        [&] { return std::make_shared<kdvfs::detail::LateStreams>(pci_address); }, options);
}

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
