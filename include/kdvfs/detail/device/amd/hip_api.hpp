// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/gpu_api.hpp>

// A device compiler needs the larger header; clang without hipcc defines only the second macro.
#if defined(__HIPCC__) || defined(__HIP__)
#include <hip/hip_runtime.h>
#else
#include <hip/hip_runtime_api.h>
#endif

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace kdvfs::inline v0_3::device {

/// Whether this version of HIP's headers knows the rate of the device's wall clock.
template <class Attribute>
concept HasWallClockRate = requires {
    Attribute::hipDeviceAttributeWallClockRate;
};

/// HIP's runtime. The one file that includes HIP's headers; see `GpuApi` for what the members are.
struct HipApi {
    using StreamObject = ihipStream_t;
    using Stream = hipStream_t;
    using Event = hipEvent_t;
    using Status = hipError_t;
    using CaptureMode = hipStreamCaptureMode;
    using Home = int;

    static constexpr const char* name = "HIP";
    static constexpr const char* compiler = "hipcc";
    // A capture runs both at once and says that all is well (ROCm up to 7.2, by its sources and
    // users' reports): a request would be stored while the graph is still being made.
    static constexpr bool records_writes = false;
    static constexpr bool records_callbacks = false;
    // By the documentation of hipStreamWaitValue32.
    static constexpr bool waits_in_signal_memory = true;

    static constexpr Status success = hipSuccess;
    static constexpr Status not_ready = hipErrorNotReady;
    static constexpr Status not_supported = hipErrorNotSupported;
    static constexpr Status cannot_capture = hipErrorStreamCaptureUnsupported;
    static constexpr Status capture_invalidated = hipErrorStreamCaptureInvalidated;
    static constexpr Status out_of_memory = hipErrorOutOfMemory;
    static constexpr CaptureMode relaxed_capture = hipStreamCaptureModeRelaxed;

    static constexpr Errc code_of(Status status) {
        switch (status) {
            case hipErrorNoDevice:
            case hipErrorNotSupported:
            case hipErrorInsufficientDriver: return Errc::not_supported;
            case hipErrorInvalidDevice:
            case hipErrorInvalidValue:
            case hipErrorInvalidHandle:
            case hipErrorStreamCaptureImplicit:
            case hipErrorStreamCaptureInvalidated: return Errc::invalid_input;
            default: return Errc::io;
        }
    }
    /// With the number, because Debian's HIP has one text for many errors.
    static std::string words_of(Status status) {
        return "HIP error " + std::to_string(status) + ": " + hipGetErrorString(status);
    }
    static constexpr const char* remedy_for(Status status) {
        switch (status) {
            case hipErrorNoDevice:
            case hipErrorInvalidDevice:  // Debian's HIP says this where there is no device at all
                return "is a GPU visible to this process (HIP_VISIBLE_DEVICES, /dev/kfd)?";
            case hipErrorInvalidHandle: return "is the stream alive, and of this device?";
            case hipErrorStreamCaptureImplicit:
                return "another stream is being captured: use no default stream meanwhile";
            case hipErrorStreamCaptureInvalidated:
                return "end the capture, and begin it again without calls that it forbids";
            default: return "";
        }
    }
    static void forget_last_error() { static_cast<void>(hipGetLastError()); }

    static Status get_device(int* device) { return hipGetDevice(device); }
    static Status set_device(int device) { return hipSetDevice(device); }
    static Status pci_address(char* text, int length, int device) {
        return hipDeviceGetPCIBusId(text, length, device);
    }
    /// 100 MHz on CDNA where the header knows no attribute to ask (it came after ROCm 5.2).
    static double wall_clock_megahertz(int device) { return asked_megahertz<>(device); }

    static Home home(int device) { return device; }
    static std::string external(Stream stream, int device, Home) {
        const int its = hipGetStreamDeviceId(stream);
        if (its == device) return {};
        return its < 0 ? "there is no such stream"
                       : "the stream is of HIP device " + std::to_string(its);
    }
    static bool is_per_thread(Stream stream) { return stream == hipStreamPerThread; }
    /// Null is the default stream that threads share, in files of the other kind than this one.
    static bool mistakes_null() {
#if defined(HIP_API_PER_THREAD_DEFAULT_STREAM)
        return true;
#else
        return false;
#endif
    }

    static Status make_stream(Stream* stream) {
        return hipStreamCreateWithFlags(stream, hipStreamNonBlocking);
    }
    static Status destroy_stream(Stream stream) { return hipStreamDestroy(stream); }
    static Status synchronize(Stream stream) { return hipStreamSynchronize(stream); }
    static Status query_stream(Stream stream) { return hipStreamQuery(stream); }
    static Status capture_state(Stream stream, CaptureState& capture) {
        hipStreamCaptureStatus state = hipStreamCaptureStatusNone;
        unsigned long long id = 0;
        const Status status = hipStreamGetCaptureInfo(stream, &state, &id);
        capture = {state == hipStreamCaptureStatusActive,
                   state == hipStreamCaptureStatusInvalidated, id};
        return status;
    }
    static Status exchange_capture_mode(CaptureMode* mode) {
        return hipThreadExchangeStreamCaptureMode(mode);
    }

    static Status register_host_memory(void* memory, std::size_t bytes) {
        return hipHostRegister(memory, bytes, hipHostRegisterMapped | hipHostRegisterPortable);
    }
    static Status device_address(void** device, void* host) {
        return hipHostGetDevicePointer(device, host, 0);
    }
    static Status make_device_memory(void** memory, std::size_t bytes) {
        const Status status = hipMalloc(memory, bytes);
        return status == hipSuccess ? hipMemset(*memory, 0, bytes) : status;
    }
    static Status make_signal_memory(std::uint32_t** word) {
        void* memory = nullptr;
        const Status status = hipExtMallocWithFlags(&memory, 8, hipMallocSignalMemory);
        if (status != hipSuccess) return status;
        *word = static_cast<std::uint32_t*>(memory);
        std::atomic_ref{**word}.store(0);
        return status;
    }

    static Status write(Stream stream, std::uint32_t* word, std::uint32_t value) {
        return hipStreamWriteValue32(stream, word, value, 0);
    }
    static Status set(Stream stream, std::uint32_t* word, std::uint32_t value) {
        return hipMemsetD32Async(word, static_cast<int>(value), 1, stream);
    }
    static Status wait(Stream stream, std::uint32_t* word, std::uint32_t value) {
        return hipStreamWaitValue32(stream, word, value, hipStreamWaitValueGte, 0xffffffffU);
    }
    /// hipLaunchHostFunc is declared, but not exported, by Debian's library.
    template <void (*Function)(void*)>
    static Status call_back(Stream stream, void* data) {
        const auto call = [](hipStream_t, hipError_t, void* its_data) { Function(its_data); };
        return hipStreamAddCallback(stream, call, data, 0);
    }

    static Status make_event(Event* event) { return hipEventCreate(event); }
    static Status record(Event event, Stream stream) { return hipEventRecord(event, stream); }
    static Status query(Event event) { return hipEventQuery(event); }
    static Status elapsed(float* milliseconds, Event from, Event to) {
        return hipEventElapsedTime(milliseconds, from, to);
    }

#if defined(__HIPCC__)
    /// One thread. Its status comes back without touching the user's last error, unlike <<<>>>'s.
    static Status launch(const void* kernel, void** arguments, Stream stream) {
        return hipLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, stream);
    }
#endif

private:
    template <class Attribute = hipDeviceAttribute_t>
    static double asked_megahertz(int device) {
        if constexpr (HasWallClockRate<Attribute>) {
            int kilohertz = 0;
            const Status status = hipDeviceGetAttribute(
                &kilohertz, Attribute::hipDeviceAttributeWallClockRate, device);
            if (status == hipSuccess && kilohertz > 0) return kilohertz / 1000.0;
        }
        static_cast<void>(device);
        return 100;
    }
};

static_assert(GpuApi<HipApi>);

/// HIP's streams; complete with <kdvfs/detail/device/gpu_streams.hpp>.
using Hip = GpuStreams<HipApi>;

}  // namespace kdvfs::inline v0_3::device

#if defined(__HIPCC__)
#include <kdvfs/detail/device/marker_kernel.hpp>
#endif
