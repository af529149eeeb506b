// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kdvfs {

/// What enqueueing can tell of a scope's fate. `asked` is settled by the controller: switched,
/// refused, or elided because the device already held the request.
enum class ScopeCount : std::uint8_t {
    kept,
    stream_elided,
    not_worth_it,
    refused,
    captured,
    followed,
    asked,
};

/// The scopes of one lane, each counted once: plain numbers under the lane's mutex, so that
/// counting costs no atomic operation.
struct LaneCounts {
    std::array<std::uint64_t, 7> fates{};
    std::uint64_t unmetered = 0;
    std::vector<std::uint64_t> unmetered_calls{};  ///< by scope kind, live lanes only

    void count(ScopeCount fate) { ++fates[static_cast<std::size_t>(fate)]; }

    /// A scope that leaves no interval.
    void count_unmetered(std::uint32_t kind, bool live) {
        ++unmetered;
        if (!live) return;
        if (unmetered_calls.size() <= kind) unmetered_calls.resize(kind + std::size_t{1});
        ++unmetered_calls[kind];
    }
};

}  // namespace kdvfs
