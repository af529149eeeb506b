// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/kdvfs.h>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/policy.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/session.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {
class BoardPowerLimit;
}  // namespace kdvfs::inline v0_3::train

/// What the files of the C interface share: the handle of a GPU, and how exceptions become
/// statuses.
namespace kdvfs::c_interface {

/// Scopes ask for what the plan says, and for nothing without one.
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::FromPlan<kdvfs::KeepClock>>>;
using BoundGpu = kdvfs::BoundGpu<Policies>;
/// A sweep varies the clocks of kernels that ask for one.
using Session =
    kdvfs::tune::Session<kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::FromPlan<kdvfs::AutoClock>>>>;

/// Counts the calls that use a handle, and what they have begun and not ended, in one atomic.
class Users {
public:
    static constexpr std::uint64_t call = 1;
    static constexpr std::uint64_t begun = std::uint64_t{1} << 24;

    /// Adds `call`, and `begun` where the call begins something.
    /// @returns false for a handle that is closed; nothing is added then
    bool enter(std::uint64_t what) noexcept {
        while (true) {
            const std::uint64_t before = state_.fetch_add(what, std::memory_order_acquire);
            if (before < alone) [[likely]]
                return true;
            leave(what);
            if (before >= closed) return false;
            wait();
        }
    }
    void leave(std::uint64_t what) noexcept { state_.fetch_sub(what, std::memory_order_release); }

    /// Lets no call begin, and waits for those that run.
    /// @param anyway also where something has begun
    /// @returns false where something has begun, and for a handle that is closed
    bool begin_alone(bool anyway) noexcept {
        std::uint64_t state = state_.load();
        while (true) {
            if (state >= closed || (state >= begun && state < alone && !anyway)) return false;
            if (state >= alone) {
                wait();
                state = state_.load();
            } else if (state_.compare_exchange_weak(state, state | alone)) {
                break;
            }
        }
        while (has_calls() && process_ == ::getpid()) wait();
        return true;
    }
    void end_alone(bool closes) noexcept {
        if (closes) state_.fetch_or(closed);
        state_.fetch_and(~alone);
    }

    [[nodiscard]] bool is_closed() const noexcept { return state_.load() >= closed; }
    /// What has begun and has not ended.
    [[nodiscard]] std::uint64_t count() const noexcept { return state_.load() % alone / begun; }
    /// After `begin_alone`: calls of threads that a forked child does not have. They never end.
    [[nodiscard]] bool has_calls() const noexcept { return state_.load() % begun != 0; }

private:
    static constexpr std::uint64_t alone = std::uint64_t{1} << 62;
    static constexpr std::uint64_t closed = std::uint64_t{1} << 63;

    static void wait() noexcept { std::this_thread::sleep_for(std::chrono::microseconds{50}); }

    std::atomic<std::uint64_t> state_{0};
    ::pid_t process_ = ::getpid();
};

}  // namespace kdvfs::c_interface

/// Its memory is kept once it is closed: a thread may be about to use it.
struct kdvfs_gpu {
    std::unique_ptr<kdvfs::simulated::Device> simulated;  // outlives `gpu`
    std::vector<void*> streams;                           // of the simulated device
    std::optional<kdvfs::Gpu> gpu;
    std::optional<kdvfs::c_interface::BoundGpu> bound;   // the same with its plan
    std::optional<kdvfs::c_interface::Session> session;  // takes the place of `bound`
    std::mutex adding_limits;
    std::vector<std::weak_ptr<kdvfs::train::BoardPowerLimit>> limits;  // that have not ended
    mutable kdvfs::c_interface::Users users;
    kdvfs_gpu* closed_before = nullptr;
};

namespace kdvfs::c_interface {

inline std::string& last_error() {
    thread_local std::string text;
    return text;
}

inline kdvfs_status status_of(kdvfs::Errc code) {
    switch (code) {
        case kdvfs::Errc::invalid_input: return KDVFS_INVALID_INPUT;
        case kdvfs::Errc::not_supported: return KDVFS_NOT_SUPPORTED;
        case kdvfs::Errc::refused: return KDVFS_REFUSED;
        case kdvfs::Errc::busy: return KDVFS_BUSY;
        case kdvfs::Errc::vanished: return KDVFS_VANISHED;
        case kdvfs::Errc::external_change: return KDVFS_EXTERNAL_CHANGE;
        case kdvfs::Errc::timed_out: return KDVFS_TIMED_OUT;
        case kdvfs::Errc::io: return KDVFS_IO;
    }
    return KDVFS_INTERNAL;
}

/// Calls `work` and turns what it throws into a status and a text.
template <class Work>
kdvfs_status guarded(Work&& work) noexcept {
    try {
        work();
        return KDVFS_OK;
    } catch (const kdvfs::Error& error) {
        last_error() = error.what();
        return status_of(error.code());
    } catch (const std::bad_alloc&) {
        last_error().clear();
        return KDVFS_NO_MEMORY;
    } catch (const std::exception& error) {
        last_error() = error.what();
        return KDVFS_INTERNAL;
    } catch (...) {
        last_error() = "an unknown exception";
        return KDVFS_INTERNAL;
    }
}

[[noreturn]] inline void reject(const char* action, const std::string& object, const char* why,
                                const char* remedy) {
    throw kdvfs::Error{kdvfs::Errc::invalid_input, {action, object, why, remedy}};
}

template <class T>
T& given(T* pointer, const char* what) {
    if (pointer == nullptr) reject("call kdvfs", what, "it is NULL", "pass a valid pointer");
    return *pointer;
}

[[noreturn]] inline void reject_closed() {
    reject("call kdvfs", "the GPU", "it has been closed",
           "make the call before kdvfs_close, or open it again");
}

/// A call that uses a GPU, for as long as it runs.
class Call {
public:
    /// @throws Error (invalid_input) once the GPU has been closed
    explicit Call(const kdvfs_gpu* gpu) : Call{gpu, Users::call} {}
    ~Call() { gpu_.users.leave(leaves_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

protected:
    Call(const kdvfs_gpu* gpu, std::uint64_t what) : gpu_{given(gpu, "the GPU")}, leaves_{what} {
        if (!gpu_.users.enter(what)) reject_closed();
    }
    void leave_only(std::uint64_t what) { leaves_ = what; }

private:
    const kdvfs_gpu& gpu_;
    std::uint64_t leaves_;
};

/// A call that begins what keeps the GPU open.
class BeginningCall : Call {
public:
    /// @param runs 0 for one that waits for other processes: closing does not wait for it
    explicit BeginningCall(const kdvfs_gpu* gpu, std::uint64_t runs = Users::call)
        : Call{gpu, runs + Users::begun}, runs_{runs} {}
    /// It has begun: without, nothing has.
    void has_begun() { leave_only(runs_); }

private:
    std::uint64_t runs_;
};

/// No other call uses the GPU while this lives, unless something has begun on it.
class AloneWith {
public:
    /// @param anyway also where something has begun
    /// @throws Error (invalid_input) once the GPU has been closed
    explicit AloneWith(kdvfs_gpu& gpu, bool anyway = false) : users_{gpu.users} {
        is_ = users_.begin_alone(anyway);
        if (!is_ && users_.is_closed()) reject_closed();
    }
    ~AloneWith() {
        if (is_) users_.end_alone(closes_);
    }
    AloneWith(const AloneWith&) = delete;
    AloneWith& operator=(const AloneWith&) = delete;

    /// Whether it is so: otherwise something has begun and has not ended.
    explicit operator bool() const { return is_; }
    /// No call can begin after this.
    void close() { closes_ = true; }

private:
    Users& users_;
    bool is_ = false;
    bool closes_ = false;
};

inline kdvfs::StreamRef stream_of(const kdvfs_gpu& gpu, void* stream) {
    if (gpu.simulated == nullptr) return kdvfs::StreamRef{stream};
    if (stream != nullptr &&
        std::find(gpu.streams.begin(), gpu.streams.end(), stream) == gpu.streams.end())
        reject("use a stream", "the handle given", "it is no stream of this simulated GPU",
               "make one with kdvfs_simulated_stream, or use the default stream, NULL");
    return kdvfs::StreamRef{static_cast<kdvfs::simulated::Stream*>(stream)};
}

/// A copy of the text that `kdvfs_free` frees.
inline char* copy_of(const std::string& text) {
    auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (copy == nullptr) throw std::bad_alloc{};
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

}  // namespace kdvfs::c_interface
