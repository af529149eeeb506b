// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/train/power_limit.hpp>
#include <kdvfs/units.hpp>

#include <cstddef>

namespace kdvfs::train {

/// A board's power limit that does as it is told, or misbehaves as drivers do.
struct PowerLimitDouble {
    Watts held{300};
    PowerRange range{{100}, {300}};
    bool lies = false;          ///< reports success and keeps the old limit, as ROCm SMI does
    bool throws_after = false;  ///< sets the limit, then throws
    bool throws = false;        ///< instead of setting it
    std::size_t sets = 0;

    [[nodiscard]] Watts read_power_limit() const { return held; }
    [[nodiscard]] PowerRange power_limit_range() const { return range; }
    void set_power_limit(Watts limit) {
        ++sets;
        if (lies) return;
        if (!throws) held = limit;
        if (throws || throws_after)
            throw Error{Errc::refused, {"set the power limit", "the double", "TOLD_TO", ""}};
    }
};
static_assert(PowerLimitControl<PowerLimitDouble>);

}  // namespace kdvfs::train
