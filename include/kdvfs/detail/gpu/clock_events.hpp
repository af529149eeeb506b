// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::detail {

/// Something that the threads that drive the clocks tell the meter.
struct ClockEvent {
    enum class Kind {
        asked,      ///< `to` is wanted from `at` on
        applied,    ///< the device went from `from` to `to`; the call began at `called`
        fault,      ///< `words` say what went wrong
        abandoned,  ///< what comes from `track` makes no sense any more
    };
    Kind kind = Kind::fault;
    TimePoint called{};
    TimePoint at{};
    ClockPoint from{};
    ClockPoint to{};
    TrackId track{};
    std::array<char, 160> words{};  ///< ends with a zero; cut where longer

    void say(std::string_view text) {
        const std::size_t length = std::min(text.size(), words.size() - 1);
        std::copy_n(text.begin(), length, words.begin());
        words[length] = 0;
    }
};

/// A bounded queue of clock events. Pushing copies one event under a lock that is never held for
/// more than that, so no clock waits for whoever writes a trace or solves for energies.
/// Thread-safe.
class ClockEvents {
public:
    ClockEvents() { queue_.reserve(capacity); }

    void push(const ClockEvent& event) noexcept {
        const std::lock_guard lock{mutex_};
        if (queue_.size() == capacity_) {
            ++lost_;
            return;
        }
        queue_.push_back(event);  // within its reserve
        any_.store(true, std::memory_order_release);
    }

    [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_acquire); }

    /// Moves all events to `out`, oldest first; what `out` held is gone.
    /// @returns false where somebody was at it who is not waited for
    bool take(std::vector<ClockEvent>& out, bool waits) {
        out.clear();
        out.reserve(capacity);
        std::unique_lock lock{mutex_, std::defer_lock};
        if (waits) {
            lock.lock();
        } else if (!lock.try_lock()) {
            return false;
        }
        std::swap(queue_, out);
        any_.store(false, std::memory_order_relaxed);
        return true;
    }

    /// Nobody will take them any more: what is pushed from here on is lost.
    void end() noexcept {
        const std::lock_guard lock{mutex_};
        queue_ = {};
        capacity_ = 0;
    }

    /// Events that found the queue full.
    [[nodiscard]] std::uint64_t lost() const {
        const std::lock_guard lock{mutex_};
        return lost_;
    }

private:
    static constexpr std::size_t capacity = 2048;

    mutable std::mutex mutex_;
    std::vector<ClockEvent> queue_;
    std::size_t capacity_ = capacity;
    std::uint64_t lost_ = 0;
    std::atomic<bool> any_{false};
};

}  // namespace kdvfs::detail
