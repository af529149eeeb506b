// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/gpu/gpu_core.hpp>
#include <kdvfs/scope/fork_generation.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace kdvfs {

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

}  // namespace kdvfs
