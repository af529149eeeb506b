// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/train/operation.hpp>

#include <cstdint>

namespace kdvfs::train {

/// The clocks of one operation of a plan: at `first` for `share` of its work, then at `second`.
/// With one clock the share is 1.
struct PlannedClocks {
    Operation operation{};
    ClockPoint first{};
    double share = 1;
    ClockPoint second{};
};

}  // namespace kdvfs::train
