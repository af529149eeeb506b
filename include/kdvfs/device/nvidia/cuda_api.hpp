// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>

#include <cuda_runtime_api.h>

#include <dlfcn.h>
#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

/// The one file that includes CUDA's header.
namespace kdvfs::device::cuda {

constexpr Errc code_of(cudaError_t status) {
    switch (status) {
        case cudaErrorNoDevice:
        case cudaErrorInsufficientDriver:
        case cudaErrorNotSupported: return Errc::not_supported;
        case cudaErrorInvalidDevice:
        case cudaErrorInvalidValue:
        case cudaErrorInvalidResourceHandle:
        case cudaErrorStreamCaptureImplicit: return Errc::invalid_input;
        case cudaErrorNotPermitted: return Errc::refused;
        case cudaErrorDevicesUnavailable: return Errc::busy;
        default: return Errc::io;
    }
}

constexpr const char* remedy_for(cudaError_t status) {
    switch (status) {
        case cudaErrorNoDevice: return "is a GPU visible to this process (CUDA_VISIBLE_DEVICES)?";
        case cudaErrorInsufficientDriver: return "update NVIDIA's driver";
        case cudaErrorStreamCaptureImplicit:
            return "another stream is being captured: use no default stream meanwhile";
        case cudaErrorInvalidResourceHandle: return "is the stream alive, and of this device?";
        default: return "";
    }
}

/// @throws Error with CUDA's words unless `status` is success.
inline void check(cudaError_t status, std::string action, std::string object) {
    if (status == cudaSuccess) return;
    throw Error{
        code_of(status),
        {std::move(action), std::move(object), cudaGetErrorString(status), remedy_for(status)}};
}

/// "0000:1b:00.0".
inline std::string pci_address(int device) {
    std::array<char, 32> text{};
    check(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device),
          "read the PCI address", "CUDA device " + std::to_string(device));
    return text.data();
}

/// Lets this thread make calls that a capture in the strict modes forbids, which do not touch the
/// captured stream.
class RelaxedCapture {
public:
    RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// The driver's functions for streams that the runtime lacks, or has only in a form that a capture
/// forbids; null where the driver lacks them. Own declarations of CUDA's driver API.
struct DriverStreams {
    using Write = int (*)(cudaStream_t, std::uint64_t address, std::uint32_t value, unsigned flags);
    using Set = int (*)(std::uint64_t address, unsigned value, std::size_t count, cudaStream_t);
    using Context = int (*)(cudaStream_t, void** context);
    using Current = int (*)(void** context);
    Write write = nullptr;
    Set set = nullptr;
    Context context_of = nullptr;
    Current current_context = nullptr;

    static DriverStreams find() {
        DriverStreams functions;
        void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // held by CUDA anyway
        if (driver == nullptr) return functions;
        functions.write = reinterpret_cast<Write>(dlsym(driver, "cuStreamWriteValue32_v2"));
        functions.set = reinterpret_cast<Set>(dlsym(driver, "cuMemsetD32Async"));
        functions.context_of = reinterpret_cast<Context>(dlsym(driver, "cuStreamGetCtx"));
        functions.current_context = reinterpret_cast<Current>(dlsym(driver, "cuCtxGetCurrent"));
        return functions;
    }
};

/// Host memory that the device writes, with its two addresses.
template <class T>
struct MappedArray {
    T* host = nullptr;
    T* device = nullptr;
};

/// Zeroed and never given back: markers that are still on their way may write it, and a listener
/// may read it, until the process ends, CUDA's own end included (so it is not CUDA's memory).
/// Shared rather than private, so that a fork leaves the device and the parent the same pages.
template <class T>
MappedArray<T> map_for_ever(std::size_t count, const std::string& object) {
    const RelaxedCapture relaxed;
    const std::size_t bytes = count * sizeof(T);
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) check(cudaErrorMemoryAllocation, "map host memory", object);
    check(cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
          "register host memory", object);
    void* address = nullptr;
    check(cudaHostGetDevicePointer(&address, memory, 0), "find the device's address of host memory",
          object);
    return {static_cast<T*>(memory), static_cast<T*>(address)};
}

}  // namespace kdvfs::device::cuda
