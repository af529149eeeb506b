// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/device/amd/families.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>

#include <memory>
#include <string>

namespace kdvfs::inline v0_3::rocm {
namespace detail {

/// @param open_streams returns the runtime of the GPU's streams
template <class OpenStreams>
Gpu open_device(const std::string& at, const std::string& who, OpenStreams open_streams,
                const GpuOptions& options) {
    const auto address = device::amd::parse_pci_address(at);
    if (!address) {
        throw Error{
            Errc::invalid_input,
            {"read the PCI address", who, "'" + at + "' is none", "give one such as 0000:c1:00.0"}};
    }
    const device::amd::Card card = device::amd::find_card(*address);
    using Owned = kdvfs::detail::OwnedDevice<device::amd::Clocks>;
    return Gpu{kdvfs::detail::open_device(
        to_string(*address), open_streams,
        [&] {
            device::amd::require_proven(card, options.allow_unproven);
            return std::make_shared<Owned>(card, options.clock_path);
        },
        [&] { return std::make_shared<device::AmdgpuSysfs>(card); }, options)};
}

}  // namespace detail

KDVFS_INLINE Gpu open(const std::string& pci_address, const GpuOptions& options) {
    const auto no_streams = [&] {
        return std::make_shared<kdvfs::detail::LateStreams>(pci_address);
    };
    return detail::open_device(pci_address, "an AMD GPU", no_streams, options);
}

KDVFS_INLINE Gpu measure(const std::string& pci_address, const GpuOptions& options) {
    GpuOptions measuring = options;
    measuring.on_refused = OnRefused::measure_only;
    const auto address = device::amd::parse_pci_address(pci_address);
    if (!address) {
        throw Error{Errc::invalid_input,
                    {"read the PCI address", "an AMD GPU", "'" + pci_address + "' is none",
                     "give one such as 0000:c1:00.0"}};
    }
    const device::amd::Card card = device::amd::find_card(*address);
    using Owned = kdvfs::detail::OwnedDevice<device::amd::Clocks>;
    return Gpu{kdvfs::detail::open_device(
        to_string(*address) + " measured",
        [&] { return std::make_shared<kdvfs::detail::LateStreams>(pci_address); },
        [] { return std::shared_ptr<Owned>{}; },
        [&] { return std::make_shared<device::AmdgpuSysfs>(card); }, measuring)};
}

}  // namespace kdvfs::inline v0_3::rocm
