// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>

#include <chrono>

namespace kdvfs {

struct ControllerOptions {
    Duration lower_after{0};                          ///< hold a lowering back for so long
    Duration verify_every = std::chrono::seconds{1};  ///< read what the device really holds
    unsigned retries = 3;                             ///< of a transient refusal
    Duration first_retry_after = std::chrono::milliseconds{1};  ///< then four times longer each
};

}  // namespace kdvfs
