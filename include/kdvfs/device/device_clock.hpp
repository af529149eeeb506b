// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstdint>

namespace kdvfs::device {

/// Where a device's wall clock lies on the Timeline, from what every timestamp shows for free: it
/// was made after its marker was put into the stream, and before it was seen. The two bounds hold
/// at all times, so an estimate that is moved into them and no further follows drift without asking
/// the device, and without noise while nothing contradicts it. Not thread-safe.
class DeviceClock {
public:
    /// @param nanoseconds_per_tick of the device's wall clock.
    explicit DeviceClock(double nanoseconds_per_tick = 1) : per_tick_{nanoseconds_per_tick} {}

    /// `enqueued` 0: unknown, as in a replayed graph.
    void observe(std::uint64_t ticks, Duration enqueued, Duration seen) {
        const std::int64_t device = nanoseconds(ticks);
        const std::int64_t highest = seen.count() - device;
        if (!known_) {
            known_ = true;
            lowest_seen_ = enqueued.count() == 0 ? highest : enqueued.count() - device;
            highest_seen_ = highest;
            offset_ = lowest_seen_ + (highest - lowest_seen_) / 2;
            return;
        }
        offset_ = std::min(offset_, highest);
        highest_seen_ = std::min(highest_seen_, highest);
        if (enqueued.count() == 0) return;
        offset_ = std::max(offset_, enqueued.count() - device);
        lowest_seen_ = std::max(lowest_seen_, enqueued.count() - device);
    }

    /// After some observations of an idle stream: puts the estimate into the middle of the bounds.
    void center() { offset_ = lowest_seen_ + (highest_seen_ - lowest_seen_) / 2; }

    [[nodiscard]] TimePoint to_timeline(std::uint64_t ticks) const {
        return TimePoint{Duration{nanoseconds(ticks) + offset_}};
    }
    /// Half the width of the bounds at the last `center`: how sure the offset was then.
    [[nodiscard]] Duration uncertainty() const {
        return Duration{(highest_seen_ - lowest_seen_) / 2};
    }

private:
    [[nodiscard]] std::int64_t nanoseconds(std::uint64_t ticks) const {
        if (per_tick_ == 1) return static_cast<std::int64_t>(ticks);  // beyond a double's 53 bits
        return static_cast<std::int64_t>(static_cast<double>(ticks) * per_tick_);
    }

    double per_tick_;
    bool known_ = false;
    std::int64_t offset_ = 0;
    std::int64_t lowest_seen_ = 0;
    std::int64_t highest_seen_ = 0;
};

}  // namespace kdvfs::device
