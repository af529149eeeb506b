// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/gpu_api.hpp>
#include <kdvfs/detail/io/shared_library.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace kdvfs::inline v0_3::device {

/// CUDA's runtime. The one file that includes CUDA's headers; see `GpuApi` for what the members
/// are.
struct CudaApi {
    using StreamObject = CUstream_st;
    using Stream = cudaStream_t;
    using Event = cudaEvent_t;
    using Status = cudaError_t;
    using CaptureMode = cudaStreamCaptureMode;
    using Home = void*;

    static constexpr const char* name = "CUDA";
    static constexpr const char* compiler = "nvcc";
    static constexpr bool records_writes = true;
    static constexpr bool records_callbacks = true;
    static constexpr bool waits_in_signal_memory = false;

    static constexpr Status success = cudaSuccess;
    static constexpr Status not_ready = cudaErrorNotReady;
    static constexpr Status not_supported = cudaErrorNotSupported;
    static constexpr Status cannot_capture = cudaErrorStreamCaptureUnsupported;
    static constexpr Status capture_invalidated = cudaErrorStreamCaptureInvalidated;
    static constexpr Status out_of_memory = cudaErrorMemoryAllocation;
    static constexpr CaptureMode relaxed_capture = cudaStreamCaptureModeRelaxed;

    static constexpr Errc code_of(Status status) {
        switch (status) {
            case cudaErrorNoDevice:
            case cudaErrorInsufficientDriver:
            case cudaErrorNotSupported: return Errc::not_supported;
            case cudaErrorInvalidDevice:
            case cudaErrorInvalidValue:
            case cudaErrorInvalidResourceHandle:
            case cudaErrorStreamCaptureImplicit:
            case cudaErrorStreamCaptureInvalidated: return Errc::invalid_input;
            case cudaErrorNotPermitted: return Errc::refused;
            case cudaErrorDevicesUnavailable: return Errc::busy;
            default: return Errc::io;
        }
    }
    static std::string words_of(Status status) {
        return "CUDA error " + std::to_string(status) + ": " + cudaGetErrorString(status);
    }
    static constexpr const char* remedy_for(Status status) {
        switch (status) {
            case cudaErrorNoDevice:
            case cudaErrorInvalidDevice:
                return "is a GPU visible to this process (CUDA_VISIBLE_DEVICES)?";
            case cudaErrorInsufficientDriver: return "update NVIDIA's driver";
            case cudaErrorInvalidResourceHandle: return "is the stream alive, and of this device?";
            case cudaErrorStreamCaptureImplicit:
                return "another stream is being captured: use no default stream meanwhile";
            case cudaErrorStreamCaptureInvalidated:
                return "end the capture, and begin it again without calls that it forbids";
            default: return "";
        }
    }
    static void forget_last_error() { static_cast<void>(cudaGetLastError()); }

    static Status get_device(int* device) { return cudaGetDevice(device); }
    static Status set_device(int device) { return cudaSetDevice(device); }
    static Status pci_address(char* text, int length, int device) {
        return cudaDeviceGetPCIBusId(text, length, device);
    }
    static double wall_clock_megahertz(int) { return 1000; }  // %globaltimer is in nanoseconds

    /// The device's primary context; null where the driver does not tell.
    static Home home(int) {
        void* context = nullptr;
        if (driver().current_context != nullptr) driver().current_context(&context);
        return context;
    }
    /// By contexts, because cudaStreamGetDevice ends a capture: on driver 580 it returns 900 and
    /// invalidates, in every mode, for the captured stream and for the default one.
    static std::string external(Stream stream, int, Home home) {
        void* context = home;
        if (home == nullptr || driver().context_of == nullptr ||
            driver().context_of(stream, &context) != 0 || context == home) {
            return {};
        }
        return "the stream belongs to another CUDA context";
    }
    static bool is_per_thread(Stream stream) { return stream == cudaStreamPerThread; }
    /// Null is the default stream that threads share, in files of the other kind than this one.
    static bool mistakes_null() {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
        return true;
#else
        return false;
#endif
    }

    static Status make_stream(Stream* stream) {
        return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
    }
    static Status destroy_stream(Stream stream) { return cudaStreamDestroy(stream); }
    static Status synchronize(Stream stream) { return cudaStreamSynchronize(stream); }
    static Status query_stream(Stream stream) { return cudaStreamQuery(stream); }
    static Status capture_state(Stream stream, CaptureState& capture) {
        cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
        unsigned long long id = 0;
        const Status status = cudaStreamGetCaptureInfo(stream, &state, &id);
        capture = {state == cudaStreamCaptureStatusActive,
                   state == cudaStreamCaptureStatusInvalidated, id};
        return status;
    }
    static Status exchange_capture_mode(CaptureMode* mode) {
        return cudaThreadExchangeStreamCaptureMode(mode);
    }

    static Status register_host_memory(void* memory, std::size_t bytes) {
        return cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
    }
    static Status device_address(void** device, void* host) {
        return cudaHostGetDevicePointer(device, host, 0);
    }
    static Status make_device_memory(void** memory, std::size_t bytes) {
        const Status status = cudaMalloc(memory, bytes);
        return status == cudaSuccess ? cudaMemset(*memory, 0, bytes) : status;
    }
    static Status make_signal_memory(std::uint32_t**) { return cudaErrorNotSupported; }

    static Status write(Stream stream, std::uint32_t* word, std::uint32_t value) {
        if (driver().write == nullptr) return cudaErrorNotSupported;
        return static_cast<Status>(driver().write(stream, number_of(word), value, 0));
    }
    static Status set(Stream stream, std::uint32_t* word, std::uint32_t value) {
        if (driver().set == nullptr) return cudaErrorNotSupported;
        return static_cast<Status>(driver().set(number_of(word), value, 1, stream));
    }
    static Status wait(Stream stream, std::uint32_t* word, std::uint32_t value) {
        constexpr unsigned at_least = 0;  // CU_STREAM_WAIT_VALUE_GEQ
        if (driver().wait == nullptr) return cudaErrorNotSupported;
        return static_cast<Status>(driver().wait(stream, number_of(word), value, at_least));
    }
    template <void (*Function)(void*)>
    static Status call_back(Stream stream, void* data) {
        return cudaLaunchHostFunc(stream, Function, data);
    }

    static Status make_event(Event* event) { return cudaEventCreate(event); }
    static Status record(Event event, Stream stream) { return cudaEventRecord(event, stream); }
    static Status query(Event event) { return cudaEventQuery(event); }
    static Status elapsed(float* milliseconds, Event from, Event to) {
        return cudaEventElapsedTime(milliseconds, from, to);
    }

    /// One thread. Its status comes back without touching the user's last error, unlike <<<>>>'s.
    static Status launch(const void* kernel, void** arguments, Stream stream) {
        return cudaLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, stream);
    }

private:
    /// The driver's functions for streams that the runtime lacks, or has only in a form that a
    /// capture forbids; null where the driver lacks them. Own declarations of CUDA's driver API.
    struct Driver {
        int (*write)(Stream, std::uint64_t address, std::uint32_t value, unsigned flags);
        int (*wait)(Stream, std::uint64_t address, std::uint32_t value, unsigned flags);
        int (*set)(std::uint64_t address, unsigned value, std::size_t count, Stream);
        int (*context_of)(Stream, void** context);
        int (*current_context)(void** context);
    };

    static const Driver& driver() {
        static const Driver functions = [] {
            Driver found{};
            const io::SharedLibrary library{"libcuda.so.1"};  // CUDA holds it
            if (!library.is_open()) return found;
            library.find(found.write, "cuStreamWriteValue32_v2");
            library.find(found.wait, "cuStreamWaitValue32_v2");
            library.find(found.set, "cuMemsetD32Async");
            library.find(found.context_of, "cuStreamGetCtx");
            library.find(found.current_context, "cuCtxGetCurrent");
            return found;
        }();
        return functions;
    }

    static std::uint64_t number_of(const std::uint32_t* word) {
        return reinterpret_cast<std::uint64_t>(word);
    }
};

static_assert(GpuApi<CudaApi>);

/// CUDA's streams; complete with <kdvfs/detail/device/gpu_streams.hpp>.
using Cuda = GpuStreams<CudaApi>;

}  // namespace kdvfs::inline v0_3::device

#if defined(__CUDACC__)
#include <kdvfs/detail/device/marker_kernel.hpp>
#endif
