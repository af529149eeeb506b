// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

namespace kdvfs {

using Duration = std::chrono::nanoseconds;

/// The one time axis of a process: CLOCK_MONOTONIC where GPUs are real, virtual time on the
/// simulated GPU. It has no `now()`: whoever needs the time is handed it, so that controller and
/// sampler stay pure and testable.
struct Timeline {
    using rep = Duration::rep;
    using period = Duration::period;
    using duration = Duration;
    using time_point = std::chrono::time_point<Timeline>;
    static constexpr bool is_steady = true;
};

using TimePoint = Timeline::time_point;

}  // namespace kdvfs
