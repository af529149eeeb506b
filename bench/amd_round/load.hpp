// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/hip_api.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/units.hpp>

#include <hip/hip_runtime_api.h>

#include <chrono>
#include <string>

namespace amd_round {

/// Puts a kernel into a stream that keeps the whole GPU busy for about so many million core cycles,
/// whatever the clock. Defined by the file that is compiled for the device.
hipError_t burn(hipStream_t stream, double megacycles);

inline kdvfs::TimePoint now() {
    return kdvfs::TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
}

/// @throws kdvfs::Error
inline void check(kdvfs::device::HipApi::Status status, const char* action) {
    kdvfs::device::check<kdvfs::device::HipApi>(status, action, "the GPU");
}

/// A stream that ends with its owner.
class Stream {
public:
    Stream() { check(hipStreamCreateWithFlags(&stream_, hipStreamNonBlocking), "make a stream"); }
    ~Stream() { static_cast<void>(hipStreamDestroy(stream_)); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    [[nodiscard]] hipStream_t get() const { return stream_; }
    void synchronize() const { check(hipStreamSynchronize(stream_), "wait for a stream"); }
    [[nodiscard]] bool is_idle() const { return hipStreamQuery(stream_) == hipSuccess; }

private:
    hipStream_t stream_ = nullptr;
};

}  // namespace amd_round
