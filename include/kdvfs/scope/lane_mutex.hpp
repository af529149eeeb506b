// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <thread>

namespace kdvfs {

/// A mutex for what one thread mostly has to itself: entering a lane costs one atomic exchange and
/// leaving it a plain store, less than half of a std::mutex. A thread that meets another waits by
/// giving way: streams shared by threads wait for each other in the runtime just the same.
class LaneMutex {
public:
    void lock() noexcept {
        while (held_.exchange(true, std::memory_order_acquire)) {
            while (held_.load(std::memory_order_relaxed)) std::this_thread::yield();
        }
    }
    void unlock() noexcept { held_.store(false, std::memory_order_release); }

private:
    std::atomic<bool> held_{false};
};

}  // namespace kdvfs
