// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace kdvfs {

/// A mutex for what one thread mostly has to itself. Locking is one atomic exchange, unlocking a
/// plain store: half of what a futex costs, which must ask at each unlock whether someone sleeps.
/// A thread that meets another looks again every 20 us instead of being woken: a runtime's launch
/// may block for long while the lane is held, and spinning would burn a core.
class LaneMutex {
public:
    void lock() noexcept {
        while (held_.exchange(true, std::memory_order_acquire)) {
            while (held_.load(std::memory_order_relaxed)) {
                std::this_thread::sleep_for(std::chrono::microseconds{20});
            }
        }
    }
    void unlock() noexcept { held_.store(false, std::memory_order_release); }

private:
    std::atomic<bool> held_{false};
};

}  // namespace kdvfs
