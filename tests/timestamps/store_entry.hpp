// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/marker_launch.hpp>

#include <array>
#include <bit>
#include <cstdint>

namespace timestamps_test {

/// Puts a timestamp into its place of the ring, as a double's marker kernel: in whole words, as
/// they are read meanwhile.
inline void store_entry(kdvfs::device::TimestampEntry& place,
                        const kdvfs::device::TimestampEntry& entry) {
    using Word [[gnu::may_alias]] = std::uint64_t;
    auto* to = reinterpret_cast<Word*>(&place);
    for (const std::uint64_t word :
         std::bit_cast<std::array<std::uint64_t, sizeof entry / sizeof(Word)>>(entry)) {
        __atomic_store_n(to++, word, __ATOMIC_RELEASE);
    }
}

}  // namespace timestamps_test
