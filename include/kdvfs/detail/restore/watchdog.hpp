// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/descriptor.hpp>
#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/detail/restore/watchdog_script.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <dirent.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::detail {

/// This process as /proc knows it: its id there, which in a PID namespace may be another than
/// `getpid()`, and its start time in ticks since the boot, which makes it unmistakable.
inline std::array<std::string, 2> self_in_proc() {
    std::ifstream file{"/proc/self/stat"};
    std::string stat;
    std::getline(file, stat);
    const auto name_end = stat.rfind(')');
    if (name_end == std::string::npos) return {"0", "0"};
    std::istringstream rest{stat.substr(name_end + 1)};
    std::string field;
    for (int number = 3; number <= 22; ++number) rest >> field;
    return {stat.substr(0, stat.find(' ')), field};
}

/// Whether orphans come back to this process: then its watchdog is its child, and a `wait` for any
/// child does not return while the watchdog lives.
inline bool adopts_orphans() {
    int subreaper = 0;
    ::prctl(PR_GET_CHILD_SUBREAPER, &subreaper, 0, 0, 0);
    return subreaper != 0 || ::getpid() == 1;
}

/// Lets a spawned process close every descriptor from `first` on. One that another thread opens
/// meanwhile without O_CLOEXEC escapes where the C library cannot do it (glibc before 2.34).
inline void add_closes(posix_spawn_file_actions_t& actions, int first, bool by_library) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    if (by_library) {
        ::posix_spawn_file_actions_addclosefrom_np(&actions, first);
        return;
    }
#endif
    static_cast<void>(by_library);
    const std::unique_ptr<DIR, int (*)(DIR*)> open{::opendir("/proc/self/fd"), &::closedir};
    if (!open) return;
    while (const dirent* entry = ::readdir(open.get())) {
        const int fd = std::atoi(entry->d_name);
        if (fd >= first) ::posix_spawn_file_actions_addclose(&actions, fd);
    }
}

/// A tiny process that puts a device's clocks back when this one ends, however it ends, and while
/// it is stopped. It is a shell of its own session, nobody's child, with nothing open but the pipe
/// whose end it waits for, the device's lock and the restore record; no signal of a terminal or a
/// scheduler but SIGKILL ends it. It is told nothing: it reads the record.
class Watchdog {
public:
    /// @param lock and @param record descriptors above 5 that the watchdog keeps open until it is
    /// done
    /// @throws Error (io) where no process can be started
    Watchdog(const RestoreScript& script, int lock, int record) {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail(errno);
        const Descriptor reading = raised(Descriptor{ends[0]});
        Descriptor writing = raised(Descriptor{ends[1]});
        if (!reading.is_open() || !writing.is_open()) fail(errno);
        end_ = ProcessDescriptor{std::move(writing)};
        spawn(script, reading.get(), lock, record);
    }

    /// Without a wait: where something is owed, the watchdog now does it.
    ~Watchdog() = default;
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// Whether it sees a stopped owner: it looks once a second, which only bash can without a new
    /// process each time.
    static bool sees_stops() { return ::access("/bin/bash", X_OK) == 0; }

    /// Whether it is there to see the end; one that was killed is not. One system call, never
    /// blocks.
    [[nodiscard]] bool lives() const noexcept {
        pollfd end{.fd = end_.get(), .events = 0, .revents = 0};
        return ::poll(&end, 1, 0) == 0;
    }

private:
    [[noreturn]] static void fail(int error) {
        throw Error{Errc::io,
                    {.action = "start the watchdog that puts clocks back",
                     .object = shell(),
                     .vendor_words = std::generic_category().message(error),
                     .remedy = "see the limits on processes and open files"}};
    }

    static const char* shell() { return sees_stops() ? "/bin/bash" : "/bin/sh"; }

    static std::vector<std::string> words_for(const RestoreScript& script) {
        std::string text{watchdog_head};
        text += script.functions;
        text += watchdog_body;
        const auto [owner, started] = self_in_proc();
        std::vector<std::string> words{"kdvfs-watchdog", "-c",  std::move(text),
                                       "kdvfs-watchdog", owner, started};
        words.insert(words.end(), script.arguments.begin(), script.arguments.end());
        return words;
    }

    static void spawn(const RestoreScript& script, int reading, int lock, int record) {
        std::vector<std::string> words = words_for(script);
        std::vector<char*> arguments;
        for (std::string& word : words) arguments.push_back(word.data());
        arguments.push_back(nullptr);
        char path[] = "PATH=/usr/bin:/bin:/usr/sbin:/sbin";
        char locale[] = "LC_ALL=C";
        char* environment[] = {path, locale, nullptr};

        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attributes;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawnattr_init(&attributes);
        ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
        ::posix_spawn_file_actions_adddup2(&actions, 0, 1);
        ::posix_spawn_file_actions_adddup2(&actions, 0, 2);
        ::posix_spawn_file_actions_adddup2(&actions, reading, 3);
        ::posix_spawn_file_actions_adddup2(&actions, lock, 4);
        ::posix_spawn_file_actions_adddup2(&actions, record, 5);
        add_closes(actions, 6, true);
        // A shell keeps the mask that it is started with: not even before its trap is set can a
        // scheduler's SIGTERM end it.
        sigset_t blocked;
        sigemptyset(&blocked);
        for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGTSTP, SIGTTIN,
                                 SIGTTOU, SIGUSR1, SIGUSR2}) {
            sigaddset(&blocked, signal);
        }
        ::posix_spawnattr_setflags(
            &attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
        ::posix_spawnattr_setsigmask(&attributes, &blocked);
        sigset_t defaults;
        sigemptyset(&defaults);
        for (const int signal : {SIGCHLD, SIGALRM}) sigaddset(&defaults, signal);
        ::posix_spawnattr_setsigdefault(&attributes, &defaults);
        pid_t first = -1;
        const int error =
            ::posix_spawn(&first, shell(), &actions, &attributes, arguments.data(), environment);
        ::posix_spawn_file_actions_destroy(&actions);
        ::posix_spawnattr_destroy(&attributes);
        if (error != 0) fail(error);
        // It forks and ends. Where the program waits for all its children, it may be gone already.
        while (::waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
        }
    }

    ProcessDescriptor end_;
};

}  // namespace kdvfs::detail
