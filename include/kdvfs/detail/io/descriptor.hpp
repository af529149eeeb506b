// SPDX-License-Identifier: MIT
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace kdvfs::detail {

/// An open file descriptor, closed when it goes.
class Descriptor {
public:
    Descriptor() = default;
    explicit Descriptor(int fd) noexcept : fd_{fd} {}
    Descriptor(Descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor() { close(); }

    void close() noexcept {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    /// Gives the descriptor away unclosed.
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }

private:
    int fd_ = -1;
};

inline std::atomic<std::uint32_t> forks{0};
// At load rather than at first use: no guard stands between a scope and the answer.
// Fails only where there is no memory for 24 bytes.
inline const int fork_hook = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });

/// How many forks lie between this process and the one that was started. A GPU object remembers
/// the generation that opened it: in a later one it is a copy that must not touch what the parent
/// still drives. Free of system calls.
inline std::uint32_t fork_generation() { return forks.load(std::memory_order_relaxed); }

/// A descriptor of this process alone: a forked child closes it at once, and the child's copy of
/// the object closes nothing. While a child held on to it, a lock would not be free, and a reader
/// would not see its end, when this process is gone.
class ProcessDescriptor {
public:
    ProcessDescriptor() = default;
    explicit ProcessDescriptor(Descriptor file) : file_{std::move(file)} {
        static const int registered = ::pthread_atfork(nullptr, nullptr, &close_in_child);
        static_cast<void>(registered);  // fails only where there is no memory for 24 bytes
        if (file_.is_open()) replace(none, file_.get());
    }
    ProcessDescriptor(ProcessDescriptor&&) noexcept = default;
    ProcessDescriptor& operator=(ProcessDescriptor&&) noexcept = default;
    ~ProcessDescriptor() { close(); }

    void close() noexcept {
        if (!file_.is_open()) return;
        if (fork_generation() != generation_) {
            static_cast<void>(file_.release());
            return;
        }
        replace(file_.get(), none);
        file_.close();
    }
    [[nodiscard]] int get() const noexcept { return file_.get(); }

private:
    static constexpr int none = -1;
    static constexpr std::size_t most = 128;  // beyond them a child keeps what it was given
    using Slots = std::array<std::atomic<int>, most>;

    static Slots& slots() {
        static Slots& all = []() -> Slots& {
            static Slots made;
            for (auto& slot : made) slot = none;
            return made;
        }();
        return all;
    }

    static void replace(int before, int after) noexcept {
        for (std::atomic<int>& slot : slots()) {
            int expected = before;
            if (slot.compare_exchange_strong(expected, after)) return;
        }
    }

    static void close_in_child() {
        for (std::atomic<int>& slot : slots()) {
            if (const int fd = slot.exchange(none); fd != none) ::close(fd);
        }
    }

    Descriptor file_;
    std::uint32_t generation_ = fork_generation();
};

}  // namespace kdvfs::detail
