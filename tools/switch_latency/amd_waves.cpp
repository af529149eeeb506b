// SPDX-License-Identifier: MIT
#include "clock_loop.hpp"
#include "gpu_waves.hpp"

#include <kdvfs/rocm.hpp>

#include <memory>
#include <string>

namespace {

/// As `rocm::measure`, with the streams of a device that HIP has numbered.
kdvfs::Gpu measure(int hip_device) {
    using Owned = kdvfs::extend::OwnedDevice<kdvfs::device::amd::Clocks>;
    const std::string at = kdvfs::device::pci_address<kdvfs::device::HipApi>(hip_device);
    const auto address = kdvfs::device::amd::parse_pci_address(at);
    if (!address)
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"read the PCI address", "HIP device " + std::to_string(hip_device),
                            "HIP says '" + at + "'", ""}};
    const kdvfs::device::amd::Card card = kdvfs::device::amd::find_card(*address);
    return kdvfs::Gpu{kdvfs::extend::open_device(
        to_string(*address) + " measured",
        [=] { return std::make_shared<kdvfs::device::Hip>(hip_device); },
        [] { return std::shared_ptr<Owned>{}; },
        [&] { return std::make_shared<kdvfs::device::AmdgpuSysfs>(card); }, wave_options())};
}

}  // namespace

std::unique_ptr<WaveBench> open_amd_waves(int hip_device) {
    if (!clock_loop::has_kernel()) {
        throw kdvfs::Error{kdvfs::Errc::not_supported,
                           {"measure sensors", "HIP device " + std::to_string(hip_device),
                            "this program was built without device code",
                            "install hipcc and build it again; --board needs no GPU"}};
    }
    const auto launch = [](hipStream_t stream, unsigned steps) {
        clock_loop::launch(stream, steps);
    };
    return std::make_unique<GpuWaves<kdvfs::device::HipApi>>(hip_device, launch,
                                                             [=] { return measure(hip_device); });
}
