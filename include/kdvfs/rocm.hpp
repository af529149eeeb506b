// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/core.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/detail/gpu/thread_loop.hpp>
#include <kdvfs/detail/restore/guarded_clocks.hpp>
#include <kdvfs/device/amd/rocm_smi.hpp>
#include <kdvfs/device/amd/sysfs.hpp>
#include <kdvfs/device/hip.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace kdvfs::rocm {
namespace detail {

/// Sets clocks by ROCm SMI where the process is root and the library's probe is clean, else by the
/// driver's files; `info` says which, and why.
class Clocks {
public:
    explicit Clocks(const device::amd::Card& card) : files_{card}, info_{files_.info()} {}

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const {
        return library_ ? library_->supported_clocks() : files_.supported_clocks();
    }
    [[nodiscard]] ClockState read_clock_state() const {
        return library_ ? library_->read_clock_state() : files_.read_clock_state();
    }
    void apply(ClockPoint point) { library_ ? library_->apply(point) : files_.apply(point); }
    void restore(const ClockState& state) {
        library_ ? library_->restore(state) : files_.restore(state);
    }
    void adopt(const std::optional<ClockState>& written) {
        library_ ? library_->adopt(written) : files_.adopt(written);
    }
    [[nodiscard]] GuardOrder guard_order(const ClockState& found) const {
        return library_ ? library_->guard_order(found) : files_.guard_order(found);
    }
    [[nodiscard]] std::string guard_words(const ClockState& state) const {
        return library_ ? library_->guard_words(state) : files_.guard_words(state);
    }

    /// Chooses the way, by trying.
    /// @throws Error where none works
    void probe() {
        const std::string refusal = ::geteuid() == 0 ? try_library() : "not root";
        if (!library_) files_.probe();
        info_ = library_ ? library_->info() : files_.info();
        if (!library_) info_.mechanism += " (rocm_smi: " + refusal + ")";
    }

private:
    /// @returns why the library cannot be used; empty where it can
    std::string try_library() {
        try {
            library_ = std::make_unique<device::RocmSmi>(files_.card());
            library_->probe();
            return {};
        } catch (const Error& error) {
            library_.reset();
            return error.text().vendor_words;
        }
    }

    device::AmdgpuSysfs files_;
    std::unique_ptr<device::RocmSmi> library_;
    DeviceInfo info_;
};

/// Clocks with a lock, a guard and a journal: first the lock, then the first write.
struct OwnedClocks {
    explicit OwnedClocks(const device::amd::Card& card) : clocks{card}, guarded{clocks} {
        guarded.probe();
    }

    Clocks clocks;
    kdvfs::detail::GuardedClocks<Clocks> guarded;
};

inline std::shared_ptr<kdvfs::detail::GpuCore> make_core(int hip_device,
                                                         const device::amd::Card& card,
                                                         GpuOptions options) {
    const auto energy = std::make_shared<device::amd::MetricsFile>(card);
    kdvfs::detail::GpuCore::Parts parts;
    parts.runtime = std::make_unique<kdvfs::detail::RuntimeOf<device::Hip>>(hip_device);
    kdvfs::detail::DeviceCalls calls = kdvfs::detail::measuring_calls(energy);
    try {
        const auto owned = std::make_shared<OwnedClocks>(card);
        parts.initial = kdvfs::detail::prove_clock_control(owned->guarded);
        parts.info = owned->guarded.info();
        parts.clocks = owned->guarded.supported_clocks();
        calls = kdvfs::detail::device_calls(
            std::shared_ptr<kdvfs::detail::GuardedClocks<Clocks>>{owned, &owned->guarded}, energy);
    } catch (const Error& refused) {
        if (options.on_refused == OnRefused::fail) throw;
        const device::AmdgpuSysfs files{card};
        parts.info = files.info();
        parts.clocks = files.supported_clocks();
        parts.info.mechanism = std::string{"measure only: "} + refused.what();
    }
    options.sampler.limits.period = energy->counter_period();
    options.accumulator.counter_period = energy->counter_period();
    auto core = std::make_shared<kdvfs::detail::GpuCore>(std::move(parts), options);
    core->drive_with(std::make_unique<kdvfs::detail::ThreadLoop>(*core, std::move(calls)));
    return core;
}

}  // namespace detail

/// Opens an AMD GPU: sets its clocks (see `info().mechanism` for how), counts its energy, and puts
/// the clocks back when the last handle is gone or the process ends. A second call for the same GPU
/// gives the same GPU, with the options of the first.
/// @param hip_device HIP's number of the device; the driver's is found by its PCI address.
/// @throws Error if there is no such device, if another process drives its clocks, or if they
///         cannot be set, unless `options.on_refused` says to go on
inline Gpu open(int hip_device, const GpuOptions& options = {}) {
    const std::string at = device::hip::pci_address(hip_device);
    const auto address = device::amd::parse_pci_address(at);
    if (!address) {
        throw Error{Errc::invalid_input,
                    {"read the PCI address", "HIP device " + std::to_string(hip_device),
                     "HIP says '" + at + "'", ""}};
    }
    return Gpu{kdvfs::detail::find_or_open(to_string(*address), [&] {
        return detail::make_core(hip_device, device::amd::find_card(*address), options);
    })};
}

}  // namespace kdvfs::rocm
