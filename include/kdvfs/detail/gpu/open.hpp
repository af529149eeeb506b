// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/core.hpp>
#include <kdvfs/detail/io/descriptor.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace kdvfs::detail {

/// Shows, before anything is promised, that clocks of this device can be set: applies its highest
/// core clock (the smallest disturbance there is), reads it back, and restores what was found.
/// @returns the state that the device was found in
/// @throws Error naming what failed; the device is back in its found state, unless that failed too
template <ClockControl Device>
ClockState prove_clock_control(Device& device) {
    const ClockState found = device.read_clock_state();
    const auto& core = device.supported_clocks().core.listed;
    if (core.empty()) {
        throw Error{Errc::not_supported,
                    {.action = "set the core clock",
                     .object = to_string(device.info()),
                     .vendor_words = "the device lists no core clocks",
                     .remedy = "open it with OnRefused::measure_only to measure without setting "
                               "clocks"}};
    }
    const auto refuse = [&](std::string action, const ClockState& seen) {
        throw Error{
            Errc::refused,
            {.action = std::move(action),
             .object = to_string(device.info()),
             .vendor_words = "it reads back " + to_string(seen.cap) + " in mode " + seen.mode,
             .remedy = "see which other tool governs this GPU's clocks, or open it with "
                       "OnRefused::measure_only"}};
    };
    const ClockPoint probe{.core = core.back()};
    try {
        device.apply(probe);
        const ClockState seen = device.read_clock_state();
        if (seen.cap != probe) refuse("set " + to_string(probe), seen);
    } catch (const std::exception&) {
        try {
            device.restore(found);
        } catch (const std::exception&) {  // the first error says more
        }
        throw;
    }
    device.restore(found);
    const ClockState restored = device.read_clock_state();
    if (restored != found) refuse("restore the clock settings", restored);
    return found;
}

/// The GPU objects of this process, by device: opening a device again gives the same object, as
/// long as it has not been closed. Thread-safe; a second opening waits for the first.
/// @param device what tells devices apart: a PCI address, or an address in memory for simulated
/// ones
/// @param make   makes the object where there is none
template <class Make>
std::shared_ptr<GpuCore> find_or_open(const std::string& device, Make make) {
    // A forked child's copies of its parent's objects are not its own, and the parent's lock may be
    // held by nobody there: each generation has a list. Never destroyed: a static Gpu may outlive
    // any static of ours.
    struct Open {
        std::uint32_t generation = fork_generation();
        std::mutex mutex{};
        std::map<std::string, std::weak_ptr<GpuCore>> gpus{};
    };
    static constinit std::atomic<Open*> current{nullptr};
    Open* open = current.load();
    if (open == nullptr || open->generation != fork_generation()) {
        auto fresh = std::make_unique<Open>();
        if (current.compare_exchange_strong(open, fresh.get())) open = fresh.release();
    }
    const std::lock_guard lock{open->mutex};
    std::weak_ptr<GpuCore>& known = open->gpus[device];
    if (auto core = known.lock(); core && !core->ended()) return core;
    std::shared_ptr<GpuCore> core = make();
    known = core;
    return core;
}

}  // namespace kdvfs::detail
