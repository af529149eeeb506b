// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/device/amd/clocks.hpp>
#include <kdvfs/device/amd/hip_api.hpp>
#include <kdvfs/device/gpu_streams.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>

#include <memory>
#include <string>

namespace kdvfs::rocm {

/// Opens an AMD GPU: sets its clocks (see `info().mechanism` for how), counts its energy, and puts
/// the clocks back when the last handle is gone or the process ends. A second call for the same GPU
/// gives the same GPU, with the options of the first.
/// @param hip_device HIP's number of the device; the driver's is found by its PCI address.
/// @throws Error if there is no such device, if another process drives its clocks, or if they
///         cannot be set, unless `options.on_refused` says to go on
inline Gpu open(int hip_device, const GpuOptions& options = {}) {
    const std::string at = device::pci_address<device::HipApi>(hip_device);
    const auto address = device::amd::parse_pci_address(at);
    if (!address) {
        throw Error{Errc::invalid_input,
                    {"read the PCI address", "HIP device " + std::to_string(hip_device),
                     "HIP says '" + at + "'", ""}};
    }
    const device::amd::Card card = device::amd::find_card(*address);
    using Owned = kdvfs::detail::OwnedDevice<device::amd::Clocks>;
    return Gpu{kdvfs::detail::open_device(
        to_string(*address), [&] { return std::make_shared<device::Hip>(hip_device); },
        [&] { return std::make_shared<Owned>(card, options.clock_path); },
        [&] { return std::make_shared<device::AmdgpuSysfs>(card); }, options)};
}

}  // namespace kdvfs::rocm
