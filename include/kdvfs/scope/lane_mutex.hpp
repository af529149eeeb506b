// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>

namespace kdvfs {

/// A mutex for what one thread mostly has to itself: locking and unlocking cost one atomic exchange
/// each, inlined, half of a std::mutex. A thread that meets another sleeps: a runtime's launch may
/// block for long while the lane is held.
class LaneMutex {
public:
    void lock() noexcept {
        std::uint32_t expected = free;
        if (state_.compare_exchange_strong(expected, held, std::memory_order_acquire)) return;
        while (state_.exchange(waited_for, std::memory_order_acquire) != free) {
            state_.wait(waited_for, std::memory_order_relaxed);
        }
    }
    void unlock() noexcept {
        if (state_.exchange(free, std::memory_order_release) == waited_for) state_.notify_one();
    }

private:
    static constexpr std::uint32_t free = 0;
    static constexpr std::uint32_t held = 1;
    static constexpr std::uint32_t waited_for = 2;
    std::atomic<std::uint32_t> state_{free};
};

}  // namespace kdvfs
