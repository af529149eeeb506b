// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace kdvfs::device {

/// Between which bounds a device's time lies off the host's, from what every timestamp shows for
/// free: it was made after its marker was put into the stream, and before it was seen.
/// All in nanoseconds.
struct OffsetBounds {
    std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
    std::int64_t highest = std::numeric_limits<std::int64_t>::max();

    void narrow(std::int64_t device, Duration enqueued, Duration seen) {
        lowest = std::max(lowest, enqueued.count() - device);
        highest = std::min(highest, seen.count() - device);
    }
    [[nodiscard]] std::int64_t width() const { return highest - lowest; }
    [[nodiscard]] std::int64_t middle() const { return lowest + width() / 2; }
};

/// Whether bounds found at two times can be of one clock that runs at the rate that was assumed.
/// @param slack what the clock's own steps and drift may add
constexpr bool agree(const OffsetBounds& a, const OffsetBounds& b, Duration slack) {
    return a.lowest <= b.highest + slack.count() && b.lowest <= a.highest + slack.count();
}

/// Where a device's wall clock lies on the Timeline. The bounds of each timestamp hold at all
/// times, so an estimate that is moved into them and no further follows drift without asking the
/// device, and without noise while nothing contradicts it. Not thread-safe.
class DeviceClock {
public:
    /// @param nanoseconds_per_tick of the device's wall clock.
    explicit DeviceClock(double nanoseconds_per_tick = 1) : per_tick_{nanoseconds_per_tick} {}

    /// `enqueued` 0: unknown, as in a replayed graph.
    void observe(std::uint64_t ticks, Duration enqueued, Duration seen) {
        const std::int64_t device = nanoseconds(ticks);
        const std::int64_t highest = seen.count() - device;
        const bool bounded_below = enqueued.count() != 0;
        const std::int64_t lowest = bounded_below ? enqueued.count() - device : highest;
        if (!known_) {
            known_ = true;
            bounds_ = {lowest, highest};
            offset_ = bounds_.middle();
            return;
        }
        offset_ = std::min(offset_, highest);
        bounds_.highest = std::min(bounds_.highest, highest);
        if (!bounded_below) return;
        offset_ = std::max(offset_, lowest);
        bounds_.lowest = std::max(bounds_.lowest, lowest);
    }

    /// After some observations of an idle stream: puts the estimate into the middle of the bounds.
    void center() { offset_ = bounds_.middle(); }

    [[nodiscard]] TimePoint to_timeline(std::uint64_t ticks) const {
        return TimePoint{Duration{nanoseconds(ticks) + offset_}};
    }
    /// What to add to the device's own time.
    [[nodiscard]] Duration offset() const { return Duration{offset_}; }
    /// Half the width of the bounds at the last `center`: how sure the offset was then.
    [[nodiscard]] Duration uncertainty() const { return Duration{bounds_.width() / 2}; }

    /// The device's own time.
    [[nodiscard]] std::int64_t nanoseconds(std::uint64_t ticks) const {
        if (per_tick_ == 1) return static_cast<std::int64_t>(ticks);  // beyond a double's 53 bits
        return static_cast<std::int64_t>(static_cast<double>(ticks) * per_tick_);
    }

private:
    double per_tick_;
    bool known_ = false;
    std::int64_t offset_ = 0;
    OffsetBounds bounds_{};
};

}  // namespace kdvfs::device
