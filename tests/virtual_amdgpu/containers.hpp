// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <csignal>
#include <fstream>
#include <string>

namespace virtual_amdgpu {

/// Kills the first process of a namespace and, before it, its watchdog: a process that dies closes
/// its pipes before the kernel kills the rest of its namespace, which else gives the watchdog time
/// to act.
inline void kill_container(pid_t first) {
    const std::string number = std::to_string(first);
    std::ifstream children{"/proc/" + number + "/task/" + number + "/children"};
    for (pid_t child = 0; children >> child;) ::kill(child, SIGKILL);
    ::kill(first, SIGKILL);
}

}  // namespace virtual_amdgpu
