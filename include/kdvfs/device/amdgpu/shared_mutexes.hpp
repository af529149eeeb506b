// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/descriptor.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <string>

namespace kdvfs::device::amdgpu {

/// The mutexes that ROCm SMI keeps for all processes, one per card in /dev/shm, which are lost for
/// good: their owner died, and the next one did not mend them. Only removing the file helps, which
/// is for an administrator to do: living processes may still have it open.
/// @returns the files, "/dev/shm/rocm_smi_card0 /dev/shm/rocm_smi_card3"; empty where there is none
inline std::string lost_mutexes(std::size_t cards) {
    std::string lost;
    for (std::size_t card = 0; card < cards; ++card) {
        const std::string name = "/rocm_smi_card" + std::to_string(card);
        const Descriptor file{::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0)};
        struct stat status {};
        if (!file.is_open() || ::fstat(file.get(), &status) != 0) continue;
        if (static_cast<std::size_t>(status.st_size) < sizeof(pthread_mutex_t)) continue;
        void* const memory = ::mmap(nullptr, sizeof(pthread_mutex_t), PROT_READ | PROT_WRITE,
                                    MAP_SHARED, file.get(), 0);
        if (memory == MAP_FAILED) continue;
        auto* const mutex = static_cast<pthread_mutex_t*>(memory);
        const int answer = ::pthread_mutex_trylock(mutex);
        if (answer == EOWNERDEAD) ::pthread_mutex_consistent(mutex);
        if (answer == 0 || answer == EOWNERDEAD) ::pthread_mutex_unlock(mutex);
        if (answer == ENOTRECOVERABLE) lost += (lost.empty() ? "/dev/shm" : " /dev/shm") + name;
        ::munmap(memory, sizeof(pthread_mutex_t));
    }
    return lost;
}

}  // namespace kdvfs::device::amdgpu
