// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/gpu/gpu_core.hpp>
#include <kdvfs/scope/fork_generation.hpp>

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
    struct Open {
        std::mutex mutex;
        std::map<std::pair<std::string, std::uint32_t>, std::weak_ptr<GpuCore>> gpus;
    };
    static Open& open = *new Open;  // never destroyed: a static Gpu may outlive any static of ours
    const std::lock_guard lock{open.mutex};
    // A forked child's copies of its parent's objects are not its own.
    std::weak_ptr<GpuCore>& known = open.gpus[{device, fork_generation()}];
    if (auto core = known.lock(); core && !core->ended()) return core;
    std::shared_ptr<GpuCore> core = make();
    known = core;
    return core;
}

}  // namespace kdvfs
