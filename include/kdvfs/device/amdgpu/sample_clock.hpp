// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace kdvfs::device::amdgpu {

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

}  // namespace kdvfs::device::amdgpu
