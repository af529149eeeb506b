// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/core.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/detail/gpu/thread_loop.hpp>
#include <kdvfs/detail/restore/guarded_clocks.hpp>
#include <kdvfs/device/cuda.hpp>
#include <kdvfs/device/nvidia/nvml.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>

#include <memory>
#include <string>
#include <utility>

namespace kdvfs::nvidia {
namespace detail {

/// Clocks with a lock, a guard and a journal: first the lock, then the first write.
struct OwnedClocks {
    explicit OwnedClocks(const std::string& address)
        : clocks{address, {.access = device::ClockAccess::set}}, guarded{clocks} {}

    device::Nvml clocks;
    kdvfs::detail::GuardedClocks<device::Nvml> guarded;
};

inline std::shared_ptr<kdvfs::detail::GpuCore> drive(kdvfs::detail::GpuCore::Parts parts,
                                                     GpuOptions options,
                                                     kdvfs::detail::DeviceCalls calls,
                                                     Duration counter_period) {
    options.sampler.limits.period = counter_period;
    options.accumulator.counter_period = counter_period;
    auto core = std::make_shared<kdvfs::detail::GpuCore>(std::move(parts), options);
    core->drive_with(std::make_unique<kdvfs::detail::ThreadLoop>(*core, std::move(calls)));
    return core;
}

inline std::shared_ptr<kdvfs::detail::GpuCore> make_measuring_core(int cuda_device,
                                                                   const std::string& address,
                                                                   const GpuOptions& options,
                                                                   const std::string& why = {}) {
    const auto board = std::make_shared<device::NvmlReadings>(address);
    kdvfs::detail::GpuCore::Parts parts{
        .info = board->info(),
        .clocks = board->supported_clocks(),
        .runtime = std::make_unique<kdvfs::detail::RuntimeOf<device::Cuda>>(cuda_device)};
    if (!why.empty()) parts.info.mechanism = "measure only: " + why;
    const Duration period = board->counter_period();
    return drive(std::move(parts), options, kdvfs::detail::measuring_calls(board), period);
}

inline std::shared_ptr<kdvfs::detail::GpuCore> make_core(int cuda_device,
                                                         const std::string& address,
                                                         const GpuOptions& options) {
    try {
        const auto owned = std::make_shared<OwnedClocks>(address);
        kdvfs::detail::GpuCore::Parts parts;
        parts.initial = kdvfs::detail::prove_clock_control(owned->guarded);
        parts.info = owned->guarded.info();
        parts.clocks = owned->guarded.supported_clocks();
        parts.runtime = std::make_unique<kdvfs::detail::RuntimeOf<device::Cuda>>(cuda_device);
        auto calls = kdvfs::detail::device_calls(
            std::shared_ptr<kdvfs::detail::GuardedClocks<device::Nvml>>{owned, &owned->guarded},
            std::shared_ptr<device::Nvml>{owned, &owned->clocks});
        return drive(std::move(parts), options, std::move(calls), owned->clocks.counter_period());
    } catch (const Error& refused) {
        if (options.on_refused == OnRefused::fail) throw;
        return make_measuring_core(cuda_device, address, options, refused.what());
    }
}

}  // namespace detail

/// Opens a CUDA device: locks its clocks as scopes ask, counts its energy, and frees the clocks
/// when the last handle is gone or the process ends. A second call for the same GPU gives the same
/// GPU, with the options of the first.
/// @param cuda_device CUDA's number of the device; NVML's is found by its PCI address.
/// @throws Error if there is no such device, if another process drives its clocks, or if they
///         cannot be set, unless `options.on_refused` says to go on. It does try: where clocks
///         must not be touched, `measure` is the call.
inline Gpu open(int cuda_device, GpuOptions options = {}) {
    const std::string address = device::cuda::pci_address(cuda_device);
    return Gpu{kdvfs::detail::find_or_open(
        address, [&] { return detail::make_core(cuda_device, address, options); })};
}

/// Opens a CUDA device to measure it. Its clocks, power limit and modes are never touched: NVML's
/// setting functions are not even looked up, whatever the process may do. For GPUs that others
/// share, and for processes without the right to set clocks.
/// @throws Error if there is no such device, driver or library.
inline Gpu measure(int cuda_device, GpuOptions options = {}) {
    const std::string address = device::cuda::pci_address(cuda_device);
    return Gpu{kdvfs::detail::find_or_open(address + " measured", [&] {
        return detail::make_measuring_core(cuda_device, address, options);
    })};
}

}  // namespace kdvfs::nvidia
