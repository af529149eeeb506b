// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kdvfs {

/// What a `ClockController` has done.
struct ControllerCounts {
    std::uint64_t switched_scopes = 0;   ///< scopes for whose request the device was changed
    std::uint64_t refused_scopes = 0;    ///< scopes whose change the device refused
    std::uint64_t overtaken_scopes = 0;  ///< scopes that were over before their turn came
    std::uint64_t writes = 0;            ///< clock points written
    std::uint64_t restores = 0;          ///< times the found state was put back
    std::uint64_t retries = 0;
    /// Times the device had fallen back: to its defaults, as by a GPU reset, or to what was found,
    /// as where the watchdog put it back while the process was stopped.
    std::uint64_t resets = 0;
    std::uint64_t foreign_changes = 0;  ///< times somebody else had changed the clocks
};

}  // namespace kdvfs
