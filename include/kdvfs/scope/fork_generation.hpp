// SPDX-License-Identifier: MIT
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace kdvfs {

/// How many forks lie between this process and the one that first asked. A GPU object remembers
/// the generation that opened it: in a later one it is a copy that must not touch what the parent
/// still drives. Free of system calls after the first use.
inline std::uint32_t fork_generation() {
    static std::atomic<std::uint32_t> generation{0};
    static const int registered = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
    static_cast<void>(registered);  // fails only where there is no memory for 24 bytes
    return generation.load(std::memory_order_relaxed);
}

}  // namespace kdvfs
