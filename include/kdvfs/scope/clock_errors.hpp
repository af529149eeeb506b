// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/error.hpp>
#include <kdvfs/device/clock_control.hpp>

#include <string>

/// What a device that answers without an error may still have done wrong.
namespace kdvfs::clock_errors {

inline std::string held(const ClockState& state) {
    return to_string(state.cap) + " in mode " + state.mode;
}

inline Error not_taken(const std::string& device, ClockPoint point, const ClockState& state) {
    return Error{Errc::refused,
                 {.action = "set " + to_string(point),
                  .object = device,
                  .vendor_words = "it reads back " + to_string(state.cap),
                  .remedy = "the driver accepted the call but not the clock: check that no other "
                            "tool governs this GPU, then call rearm()"}};
}

inline Error not_restored(const std::string& device, const ClockState& state) {
    return Error{Errc::refused,
                 {.action = "restore the clock settings",
                  .object = device,
                  .vendor_words = "it reads back " + held(state),
                  .remedy = "the driver accepted the call and changed nothing: see which other "
                            "tool governs this GPU's clocks"}};
}

inline Error taken_over(const std::string& device, const ClockState& state) {
    return Error{Errc::foreign_change,
                 {.action = "keep the clocks of",
                  .object = device,
                  .vendor_words = "it now holds " + held(state),
                  .remedy = "somebody else has set them: theirs stay; call rearm() to take them "
                            "over again"}};
}

}  // namespace kdvfs::clock_errors
