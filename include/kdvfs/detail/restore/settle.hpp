// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/restore/record_text.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <string>

namespace kdvfs::detail {

/// Settles what an owner of a device left undone, by rule of `decide_restore`: whatever a record
/// says, nothing is written but a state that the device knows, and only where it holds what the
/// record says kdvfs wrote.
/// @returns what was done
/// @throws Error where the device refuses
template <ClockControl Device>
RestoreDecision settle(const RestoreEntry& entry, Device& device) {
    if (!entry.owes_restore()) return RestoreDecision::nothing;
    // A device that cannot read its settings back is told what they should be.
    if constexpr (requires { device.adopt(entry.history.written); }) {
        device.adopt(entry.history.written);
    }
    const auto decision = decide_restore(entry.history, device.read_clock_state());
    if (decision != RestoreDecision::write_back) return decision;
    device.restore(entry.history.initial);
    if (const ClockState seen = device.read_clock_state(); seen != entry.history.initial) {
        throw Error{
            Errc::refused,
            {.action = "put back the clocks that an earlier process left behind",
             .object = to_string(device.info()),
             .vendor_words = "it reads back " + to_string(seen.cap) + " in mode " + seen.mode,
             .remedy = "see which other tool governs this GPU's clocks"}};
    }
    return decision;
}

}  // namespace kdvfs::detail
