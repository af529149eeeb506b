// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>

#if defined(__HIPCC__)
#include <hip/hip_runtime.h>
#else
#include <hip/hip_runtime_api.h>
#endif
#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

/// The one file that includes HIP's headers.
namespace kdvfs::device::hip {

constexpr Errc code_of(hipError_t status) {
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

constexpr const char* remedy_for(hipError_t status) {
    switch (status) {
        case hipErrorNoDevice:
        case hipErrorInvalidDevice:  // Debian's HIP says this where there is no device at all
            return "is a GPU visible to this process (HIP_VISIBLE_DEVICES, /dev/kfd)?";
        case hipErrorInvalidHandle: return "is the stream alive, and of this device?";
        case hipErrorStreamCaptureInvalidated:
            return "end the capture, and begin it again without calls that it forbids";
        default: return "";
    }
}

/// @throws Error with HIP's words unless `status` is success.
inline void check(hipError_t status, std::string action, std::string object) {
    if (status == hipSuccess) return;
    throw Error{
        code_of(status),
        {std::move(action), std::move(object),
         std::string{"HIP error "} + std::to_string(status) + ": " + hipGetErrorString(status),
         remedy_for(status)}};
}

/// "0000:c1:00.0". HIP's number of a device depends on HIP_VISIBLE_DEVICES and
/// ROCR_VISIBLE_DEVICES; its PCI address does not.
inline std::string pci_address(int device) {
    std::array<char, 32> text{};
    check(hipDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device),
          "read the PCI address", "HIP device " + std::to_string(device));
    return text.data();
}

/// Lets this thread make calls that a capture in the strict modes forbids, and that do not touch
/// the captured stream.
class RelaxedCapture {
public:
    RelaxedCapture() { static_cast<void>(hipThreadExchangeStreamCaptureMode(&mode_)); }
    ~RelaxedCapture() { static_cast<void>(hipThreadExchangeStreamCaptureMode(&mode_)); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

private:
    hipStreamCaptureMode mode_ = hipStreamCaptureModeRelaxed;
};

/// Makes a device current, and the one before again.
class OnDevice {
public:
    OnDevice(int device, const std::string& object) {
        check(hipGetDevice(&before_), "ask for the current device", object);
        check(hipSetDevice(device), "use the device", object);
    }
    ~OnDevice() { static_cast<void>(hipSetDevice(before_)); }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;

private:
    int before_ = 0;
};

/// Host memory that the device writes, with its two addresses.
template <class T>
struct MappedArray {
    T* host = nullptr;
    T* device = nullptr;
};

/// Zeroed and never given back: markers still on their way may write it, and a listener may read
/// it, until the process ends. It is not HIP's memory, which would go when HIP does.
template <class T>
MappedArray<T> map_for_ever(std::size_t count, const std::string& object) {
    const RelaxedCapture relaxed;
    const std::size_t bytes = count * sizeof(T);
    void* const memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) check(hipErrorOutOfMemory, "map host memory", object);
    check(hipHostRegister(memory, bytes, hipHostRegisterMapped | hipHostRegisterPortable),
          "register host memory", object);
    void* address = nullptr;
    check(hipHostGetDevicePointer(&address, memory, 0), "find the device's address of host memory",
          object);
    return {static_cast<T*>(memory), static_cast<T*>(address)};
}

}  // namespace kdvfs::device::hip
