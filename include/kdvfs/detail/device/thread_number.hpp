// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>

namespace kdvfs::inline v0_3::device {

/// @returns the number of the calling thread, for default streams that each thread has of its own;
///          never 0, and never given twice. Takes no lock: a forked child may ask, whatever its
///          parent's threads were at
inline std::uint64_t thread_number() {
    static constinit std::atomic<std::uint64_t> last{0};
    thread_local const std::uint64_t mine = ++last;
    return mine;
}

}  // namespace kdvfs::inline v0_3::device
