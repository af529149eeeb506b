// SPDX-License-Identifier: MIT
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace kdvfs {

namespace detail {

inline std::atomic<std::uint32_t> forks{0};
// At load rather than at first use: no guard stands between a scope and the answer.
// Fails only where there is no memory for 24 bytes.
inline const int fork_hook = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });

}  // namespace detail

/// How many forks lie between this process and the one that was started. A GPU object remembers
/// the generation that opened it: in a later one it is a copy that must not touch what the parent
/// still drives. Free of system calls.
inline std::uint32_t fork_generation() { return detail::forks.load(std::memory_order_relaxed); }

}  // namespace kdvfs
