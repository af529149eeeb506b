// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/clock_control.hpp>

#include <optional>

namespace kdvfs {

/// What kdvfs knows of a device's clocks: enough to put them back, and all that a journal needs.
struct ClockHistory {
    ClockState found{};                   ///< the state at first touch
    std::optional<ClockState> written{};  ///< what the device held after kdvfs's last write
    bool uncertain = false;               ///< a write failed half-way: the device may hold anything
};

/// What to do with a device when kdvfs lets go of it.
enum class RestoreDecision {
    nothing,        ///< kdvfs changed nothing, or all is as it was found
    write_back,     ///< the device holds kdvfs's own value: put the found state back
    leave_foreign,  ///< somebody else has changed it since: theirs is newer, it stays
};

/// Only what kdvfs changed, and only if the device still holds what kdvfs last wrote.
/// After a write that failed half-way the device's state is kdvfs's own doing and is put back.
inline RestoreDecision decide_restore(const ClockHistory& history, const ClockState& present) {
    if (!history.written && !history.uncertain) return RestoreDecision::nothing;
    if (present == history.found) return RestoreDecision::nothing;
    if (history.uncertain || present == *history.written) return RestoreDecision::write_back;
    return RestoreDecision::leave_foreign;
}

}  // namespace kdvfs
