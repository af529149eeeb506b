// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/meter.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace kdvfs::inline v0_3::detail {

/// Takes timestamps out of their ring on launching threads, where no other may or keeps up.
template <StreamRuntime Runtime>
class TimestampCollector {
public:
    /// The ring of timestamps has room for 65,536. Where only a launching thread may ask for them
    /// (events), and where the library's own thread does not keep up, launches do before it is
    /// full: few at a time, and more of them than come meanwhile.
    void where_full(Runtime& runtime, const MeteringWindows& windows, Meter& meter) {
        constexpr std::uint64_t often = 1U << 6U;
        constexpr std::uint64_t many = 1U << 14U;
        const std::uint64_t expected = windows.expected();
        if (expected < look_again_at_.load(std::memory_order_relaxed)) [[likely]]
            return;
        look_again_at_.store(expected + often, std::memory_order_relaxed);
        if (expected >= meter.taken_in() + many) meter.try_harvest(runtime);
    }

    /// The gate holds scopes back until it knows how long they last: where only launching threads
    /// may ask for timestamps, they do so a hundred times a second meanwhile.
    void while_awaited(Runtime& runtime, const MeteringWindows& windows, Meter& meter) {
        if constexpr (CollectedBeside<Runtime>) return;
        constexpr Duration often = std::chrono::milliseconds{10};
        const Duration::rep now = runtime.now().time_since_epoch().count();
        Duration::rep due = due_.load(std::memory_order_relaxed);
        if (now < due || !due_.compare_exchange_strong(due, now + often.count())) return;
        if (windows.expected() > meter.taken_in()) meter.try_harvest(runtime);
    }

private:
    std::atomic<std::uint64_t> look_again_at_{0};  ///< expected timestamps
    std::atomic<Duration::rep> due_{0};            ///< while the gate awaits times
};

}  // namespace kdvfs::inline v0_3::detail
