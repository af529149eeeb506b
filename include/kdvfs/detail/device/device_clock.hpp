// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace kdvfs::inline v0_3::device {

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

/// Puts times of a GPU's own clock on the process's time axis. Nobody tells how far apart the two
/// are, but a sample is never newer than the moment it was read: the smallest distance seen between
/// the two is the best estimate of it, and is too large by the freshest sample's age (well under
/// one counter period, once a few have been read). Two windows slide over the minimum, so that the
/// clocks may drift: crystals are good to 50 ppm, which makes 0.1 ms in a window of two seconds.
class SampleClock {
public:
    static constexpr Duration window = std::chrono::seconds{2};

    /// The time of a sample that says `device_ns` and was read at `read_at`.
    TimePoint on_timeline(std::uint64_t device_ns, TimePoint read_at) {
        const Duration sample{static_cast<Duration::rep>(device_ns)};
        const Duration distance = read_at.time_since_epoch() - sample;
        const bool was_reset = sample < latest_;
        if (!opened_ || was_reset || read_at - *opened_ >= window) {
            before_ = was_reset ? Duration::max() : current_;
            current_ = Duration::max();
            opened_ = read_at;
        }
        latest_ = sample;
        current_ = std::min(current_, distance);
        return TimePoint{sample + std::min(current_, before_)};
    }

private:
    std::optional<TimePoint> opened_;
    Duration latest_ = Duration::min();  // a clock that runs back has been reset with its GPU
    Duration current_ = Duration::max();
    Duration before_ = Duration::max();
};

}  // namespace kdvfs::inline v0_3::device
