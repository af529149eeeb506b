// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>
#include <kdvfs/device/clock_control.hpp>
#include <kdvfs/scope/restore.hpp>

#include <exception>
#include <optional>

namespace kdvfs {

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
            if constexpr (requires { device.will_go_back_to(command.history.found); }) {
                device.will_go_back_to(command.history.found);
            }
            device.apply(command.point);
        }
        outcome.state = device.read_clock_state();
        if (command.kind != ClockCommand::Kind::restore) return outcome;
        outcome.restore = decide_restore(command.history, *outcome.state);
        if (outcome.restore == RestoreDecision::write_back) {
            device.restore(command.history.found);
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

}  // namespace kdvfs
