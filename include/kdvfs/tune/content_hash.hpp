// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kdvfs::tune {

/// "fnv1a64:0123456789abcdef": the 64-bit FNV-1a hash (Fowler, Noll, Vo; IETF draft-eastlake-fnv)
/// of a file's bytes. Tells versions of an input apart; it is no defence against forgery.
inline std::string content_hash(std::string_view bytes) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char byte : bytes) {
        hash ^= static_cast<unsigned char>(byte);
        hash *= 0x100000001b3;
    }
    std::string text = "fnv1a64:";
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(hash >> shift) & 15];
    return text;
}

}  // namespace kdvfs::tune
