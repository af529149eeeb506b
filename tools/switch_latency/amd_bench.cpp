// SPDX-License-Identifier: MIT
#include "clock_loop.hpp"
#include "gpu_bench.hpp"

#include <kdvfs/rocm.hpp>

#include <memory>

namespace {

kdvfs::device::amd::Card card_of(int hip_device) {
    const std::string at = kdvfs::device::pci_address<kdvfs::device::HipApi>(hip_device);
    if (const auto address = kdvfs::device::amd::parse_pci_address(at))
        return kdvfs::device::amd::find_card(*address);
    throw kdvfs::Error{kdvfs::Errc::invalid_input,
                       {"read the PCI address", "HIP device " + std::to_string(hip_device),
                        "HIP says '" + at + "'", ""}};
}

}  // namespace

std::unique_ptr<SwitchBench> open_amd_gpu(int hip_device, IterationSettings settings) {
    if (!clock_loop::has_kernel()) {
        throw kdvfs::Error{kdvfs::Errc::not_supported,
                           {"time iterations", "HIP device " + std::to_string(hip_device),
                            "this program was built without device code",
                            "install hipcc and build it again; --simulated needs no GPU"}};
    }
    using Bench = GpuBench<kdvfs::device::HipApi, kdvfs::device::amd::Clocks>;
    const auto launch = [](hipStream_t stream, unsigned steps) {
        clock_loop::launch(stream, steps);
    };
    return std::make_unique<Bench>(hip_device, launch, settings, card_of(hip_device));
}
