// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/descriptor.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace kdvfs::detail {

/// A tiny process that puts a device's clocks back when this one ends, however it ends. It is a
/// shell of its own session, with nothing open but the notes and the device's lock, and costs 0.2
/// ms to start where a fork of a large process would cost tens of milliseconds.
class Guard {
public:
    /// @param lock a descriptor that the guard keeps open until it is done; -1 for none
    /// @throws Error where no process can be started
    Guard(const GuardOrder& order, int lock) {
        std::array<int, 2> ends{};
        // A socket, because writing to one whose reader is gone can be kept from raising SIGPIPE.
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) fail(errno);
        Descriptor reading{ends[0]};
        notes_ = ProcessDescriptor{Descriptor{ends[1]}};
        spawn(order, reading.get(), lock);
    }

    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

    /// Lets the guard end, and waits for it: it acts by the last note.
    ~Guard() {
        if (fork_generation() != generation_) return;
        notes_.close();
        while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }

    /// @throws Error (vanished) where the guard has been killed
    void note(std::string_view line) {
        const std::string text = std::string{line} + "\n";
        if (::send(notes_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(text.size())) {
            return;
        }
        throw Error{Errc::io,
                    {.action = "tell the guard what to put back",
                     .object = "process " + std::to_string(process_),
                     .vendor_words = std::generic_category().message(errno),
                     .remedy = "do not kill the guards of a running program"}};
    }

    [[nodiscard]] pid_t process() const noexcept { return process_; }

private:
    [[noreturn]] static void fail(int error) {
        throw Error{Errc::io,
                    {.action = "start the guard that puts clocks back",
                     .object = "/bin/sh",
                     .vendor_words = std::generic_category().message(error),
                     .remedy = "see the limits on processes and open files"}};
    }

    void spawn(const GuardOrder& order, int reading, int lock) {
        std::vector<std::string> words{"kdvfs-guard", "-c", order.script, "kdvfs-guard"};
        words.insert(words.end(), order.arguments.begin(), order.arguments.end());
        std::vector<char*> arguments;
        for (std::string& word : words) arguments.push_back(word.data());
        arguments.push_back(nullptr);
        char path[] = "PATH=/usr/bin:/bin";
        char* environment[] = {path, nullptr};

        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attributes;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawnattr_init(&attributes);
        ::posix_spawn_file_actions_adddup2(&actions, reading, 0);
        ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
        ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
        if (lock >= 0) ::posix_spawn_file_actions_adddup2(&actions, lock, 3);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
        ::posix_spawn_file_actions_addclosefrom_np(&actions, lock >= 0 ? 4 : 3);
#endif
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
        sigset_t none;
        sigemptyset(&none);
        ::posix_spawnattr_setsigmask(&attributes, &none);
        const int error = ::posix_spawn(&process_, "/bin/sh", &actions, &attributes,
                                        arguments.data(), environment);
        ::posix_spawn_file_actions_destroy(&actions);
        ::posix_spawnattr_destroy(&attributes);
        if (error != 0) fail(error);
    }

    ProcessDescriptor notes_;
    pid_t process_ = -1;
    std::uint32_t generation_ = fork_generation();
};

}  // namespace kdvfs::detail
