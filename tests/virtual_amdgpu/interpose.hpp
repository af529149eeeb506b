// SPDX-License-Identifier: MIT
#pragma once

#include "machine.hpp"

#include <string>

namespace virtual_amdgpu {

/// Puts a machine under this process: while it lives, every libc call that names a path below /sys
/// is answered by the machine, whichever library makes it, and `geteuid` gives the machine's user.
/// One at a time. The mutexes that ROCm SMI keeps in /dev/shm get names of this process's own.
class Mounted {
public:
    explicit Mounted(Machine& machine);
    ~Mounted();
    Mounted(const Mounted&) = delete;
    Mounted& operator=(const Mounted&) = delete;

    /// The name under which this process's ROCm SMI sees a mutex of /dev/shm.
    static std::string shared_memory_name(const std::string& name);

private:
    std::string skeleton_;
};

}  // namespace virtual_amdgpu
