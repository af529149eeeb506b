// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <exception>
#include <optional>

namespace kdvfs::inline v0_3::detail {

/// What kdvfs knows of a device's clocks: enough to put them back, and all that a record needs.
struct ClockHistory {
    ClockState initial{};                 ///< the state at first touch
    std::optional<ClockState> written{};  ///< what the device held after kdvfs's last write
    bool uncertain = false;               ///< a write failed half-way: the device may hold anything
};

/// What to do with a device when kdvfs lets go of it.
enum class RestoreDecision {
    nothing,         ///< kdvfs changed nothing, or all is as it was found
    write_back,      ///< the device holds kdvfs's own value: put the found state back
    leave_external,  ///< somebody else has changed it since: theirs is newer, it stays
};

/// Only what kdvfs changed, and only if the device still holds what kdvfs last wrote.
/// After a write that failed half-way the device's state is kdvfs's own doing and is put back.
inline RestoreDecision decide_restore(const ClockHistory& history, const ClockState& present) {
    if (!history.written && !history.uncertain) return RestoreDecision::nothing;
    if (present == history.initial) return RestoreDecision::nothing;
    if (history.uncertain || present == *history.written) return RestoreDecision::write_back;
    return RestoreDecision::leave_external;
}

/// One thing that the controller wants done to the device.
struct ClockCommand {
    enum class Kind {
        apply,    ///< cap the clocks at `point`, then read back
        restore,  ///< put the found state back, if `history` allows it
        verify,   ///< only read what the device holds
    };
    Kind kind = Kind::verify;
    ClockPoint point{};
    ClockHistory history{};  ///< for all but `verify`: what to go back to, and what is owed
};

/// What came of a command.
struct CommandOutcome {
    std::optional<ClockState> state{};  ///< what the device held last, where it could be read
    RestoreDecision restore = RestoreDecision::nothing;
    std::optional<Error> error{};
};

/// Carries a command out on a device: the only place where kdvfs changes a clock.
template <ClockControl Device>
CommandOutcome execute(Device& device, const ClockCommand& command) noexcept {
    CommandOutcome outcome;
    try {
        if (command.kind == ClockCommand::Kind::apply) {
            // A device that is put back without kdvfs, too, must know to which state.
            if constexpr (WatchedControl<Device>) {
                device.will_go_back_to(command.history.initial);
            }
            device.apply(command.point);
        }
        outcome.state = device.read_clock_state();
        if (command.kind != ClockCommand::Kind::restore) return outcome;
        outcome.restore = decide_restore(command.history, *outcome.state);
        if (outcome.restore == RestoreDecision::write_back) {
            device.restore(command.history.initial);
            outcome.state = device.read_clock_state();
        }
    } catch (const Error& error) {
        outcome.error = error;
    } catch (const std::exception& error) {
        outcome.error = Error{Errc::io,
                              {.action = "drive the clocks",
                               .object = to_string(device.info()),
                               .vendor_words = error.what(),
                               .remedy = "this is unexpected: please report it"}};
    }
    return outcome;
}

}  // namespace kdvfs::inline v0_3::detail
