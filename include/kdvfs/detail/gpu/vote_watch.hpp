// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/restore/vote_slots.hpp>
#include <kdvfs/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace kdvfs::inline v0_3::detail {

/// A thread that watches what other processes want of a device's clocks: where this process drives,
/// the folder of votes; else the lock of the one that does. The kernel's file notifications wake
/// it: a vote, the end of a voter and the end of the driver are seen within a millisecond, and it
/// costs nothing while nothing happens. It calls no device.
class VoteWatch {
public:
    /// Called by the thread.
    struct Listener {
        std::function<bool()> drives{};             ///< whether this process does
        std::function<bool(ClockPoint)> accepts{};  ///< whether a vote can be set
        std::function<void(std::optional<ClockPoint>)>
            highest{};                                      ///< of the others, when it changes
        std::function<void()> shared{};                     ///< others are there
        std::function<void()> driver_ended{};               ///< or so it seems
        std::function<void(const std::string&)> refused{};  ///< a slot, once each time it changes
    };

    VoteWatch(std::string folder, std::string lock, Listener listener)
        : folder_{std::move(folder)},
          lock_path_{std::move(lock)},
          listener_{std::move(listener)},
          wakes_{Descriptor{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}},
          thread_{[this] { run(); }} {}
    VoteWatch(const VoteWatch&) = delete;
    VoteWatch& operator=(const VoteWatch&) = delete;
    ~VoteWatch() {
        if (fork_generation() != generation_) {
            new std::thread(std::move(thread_));  // the parent's: there is none to join
            return;
        }
        stopping_ = true;
        const std::uint64_t one = 1;
        const ssize_t written = ::write(wakes_.get(), &one, sizeof one);
        static_cast<void>(written);
        thread_.join();
    }

private:
    void run() {
        pthread_setname_np(pthread_self(), "kdvfs-votes");
        // The kernel tells of a file's closing just before it lets go of the file's lock.
        constexpr int looks_after_event = 10;
        constexpr int soon = 1;        // ms
        constexpr int seldom = 1000;   // ms
        constexpr int unnotified = 2;  // ms
        int looks = looks_after_event;
        watch();
        while (!stopping_) {
            look();
            const int rest = notified_ ? seldom : unnotified;
            const bool woken = wait(looks > 0 ? soon : rest);
            looks = woken ? looks_after_event : looks - (looks > 0 ? 1 : 0);
        }
    }

    void watch() {
        notes_ = Descriptor{::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
        lock_ = Descriptor{::open(lock_path_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)};
        notified_ = notes_.is_open() &&
                    ::inotify_add_watch(notes_.get(), folder_.c_str(),
                                        IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE) >= 0;
        notified_ = ::inotify_add_watch(notes_.get(), lock_path_.c_str(), IN_CLOSE_NOWRITE) >= 0 &&
                    notified_;
    }

    /// @returns whether anything has happened
    bool wait(int milliseconds) {
        std::array<pollfd, 2> files{{{wakes_.get(), POLLIN, 0}, {notes_.get(), POLLIN, 0}}};
        if (::poll(files.data(), files.size(), milliseconds) <= 0) return false;
        alignas(inotify_event) std::array<char, 4096> text{};
        while (::read(notes_.get(), text.data(), text.size()) > 0) {
        }
        return true;
    }

    void look() {
        if (!listener_.drives()) {
            // Its driver makes a lock again that was removed.
            if (!lock_.is_open() || restore::is_removed(lock_.get())) watch();
            if (!lock_.is_open() || ::flock(lock_.get(), LOCK_SH | LOCK_NB) != 0) return;
            ::flock(lock_.get(), LOCK_UN);
            listener_.driver_ended();
            return;
        }
        const auto folder = restore::VoteFolder::find(folder_);
        const auto votes = folder ? folder->look(listener_.accepts) : restore::VoteFolder::Votes{};
        if (votes.processes > 0) listener_.shared();
        if (votes.refused != refused_) {
            refused_ = votes.refused;
            if (!refused_.empty()) listener_.refused(refused_);
        }
        if (votes.highest == highest_) return;
        highest_ = votes.highest;
        listener_.highest(highest_);
    }

    const std::string folder_;
    const std::string lock_path_;
    const Listener listener_;
    const std::uint32_t generation_ = fork_generation();
    ProcessDescriptor wakes_;
    Descriptor notes_;
    Descriptor lock_;
    bool notified_ = false;
    std::optional<ClockPoint> highest_;
    std::string refused_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;  ///< last: it uses the others
};

}  // namespace kdvfs::inline v0_3::detail
