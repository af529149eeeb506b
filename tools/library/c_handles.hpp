// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/kdvfs.h>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/policy.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/session.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

/// What the files of the C interface share: the handle of a GPU, and how exceptions become
/// statuses.
namespace kdvfs::c_interface {

/// Scopes ask for what the plan says, and for nothing without one.
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::FromPlan<kdvfs::KeepClock>>>;
using BoundGpu = kdvfs::BoundGpu<Policies>;
/// A sweep varies the clocks of kernels that ask for one.
using Session =
    kdvfs::tune::Session<kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::FromPlan<kdvfs::AutoClock>>>>;

}  // namespace kdvfs::c_interface

struct kdvfs_gpu {
    std::unique_ptr<kdvfs::simulated::Device> simulated;  // outlives `gpu`
    std::vector<void*> streams;                           // of the simulated device
    std::optional<kdvfs::Gpu> gpu;
    std::optional<kdvfs::c_interface::BoundGpu> bound;   // the same with its plan
    std::optional<kdvfs::c_interface::Session> session;  // takes the place of `bound`
    std::atomic<std::uint64_t> users{0};                 // what was begun on it and has not ended
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
