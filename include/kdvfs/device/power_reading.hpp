// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>
#include <kdvfs/core/units.hpp>
#include <kdvfs/device/energy_source.hpp>

namespace kdvfs {

/// One look at a board's power meter.
struct PowerReading {
    Watts watts;
    TimePoint sampled_at;  ///< when the device took the sample, where it says so
    ReadingStatus status = ReadingStatus::absent;
};

}  // namespace kdvfs
