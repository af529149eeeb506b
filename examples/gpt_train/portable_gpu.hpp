// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#elif defined(__HIPCC__)
#include <hip/hip_runtime.h>
#else
#include "host_grid.hpp"
#endif

#include <cstddef>
#include <cstring>
#include <new>
#include <string>
#include <vector>

/// The dozen runtime calls of this example, under one name for HIP, CUDA and the host grid.
namespace gpt::gpu {

/// Whether kernels run on the host, for checking.
#if defined(__CUDACC__) || defined(__HIPCC__)
inline constexpr bool on_host = false;
#else
inline constexpr bool on_host = true;
#endif

#if defined(__CUDACC__)

using Stream = cudaStream_t;
using Status = cudaError_t;
inline constexpr Status success = cudaSuccess;
inline const char* words(Status status) { return cudaGetErrorString(status); }
inline Status last_error() { return cudaGetLastError(); }
inline Status raw_allocate(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }
inline void raw_release(void* memory) { (void)cudaFree(memory); }
inline Status raw_allocate_pinned(void** memory, std::size_t bytes) {
    return cudaMallocHost(memory, bytes);
}
inline void raw_release_pinned(void* memory) { (void)cudaFreeHost(memory); }
inline Status raw_copy(void* to, const void* from, std::size_t bytes, Stream stream) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
inline Status raw_clear(void* memory, std::size_t bytes, Stream stream) {
    return cudaMemsetAsync(memory, 0, bytes, stream);
}
inline Status raw_synchronize(Stream stream) { return cudaStreamSynchronize(stream); }
inline std::string device_name() {
    cudaDeviceProp properties{};
    return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name : "";
}

#elif defined(__HIPCC__)

using Stream = hipStream_t;
using Status = hipError_t;
inline constexpr Status success = hipSuccess;
inline const char* words(Status status) { return hipGetErrorString(status); }
inline Status last_error() { return hipGetLastError(); }
inline Status raw_allocate(void** memory, std::size_t bytes) { return hipMalloc(memory, bytes); }
inline void raw_release(void* memory) { (void)hipFree(memory); }
inline Status raw_allocate_pinned(void** memory, std::size_t bytes) {
    return hipHostMalloc(memory, bytes, hipHostMallocDefault);
}
inline void raw_release_pinned(void* memory) { (void)hipHostFree(memory); }
inline Status raw_copy(void* to, const void* from, std::size_t bytes, Stream stream) {
    return hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, stream);
}
inline Status raw_clear(void* memory, std::size_t bytes, Stream stream) {
    return hipMemsetAsync(memory, 0, bytes, stream);
}
inline Status raw_synchronize(Stream stream) { return hipStreamSynchronize(stream); }
inline std::string device_name() {
    hipDeviceProp_t properties{};
    return hipGetDeviceProperties(&properties, 0) == hipSuccess ? properties.name : "";
}

#else

using Stream = void*;
using Status = int;
inline constexpr Status success = 0;
inline const char* words(Status) { return "out of memory"; }
inline Status last_error() { return success; }
inline Status raw_allocate(void** memory, std::size_t bytes) {
    *memory = ::operator new(bytes, std::nothrow);
    return *memory == nullptr ? 1 : success;
}
inline void raw_release(void* memory) { ::operator delete(memory); }
inline Status raw_allocate_pinned(void** memory, std::size_t bytes) {
    return raw_allocate(memory, bytes);
}
inline void raw_release_pinned(void* memory) { raw_release(memory); }
inline Status raw_copy(void* to, const void* from, std::size_t bytes, Stream) {
    std::memcpy(to, from, bytes);
    return success;
}
inline Status raw_clear(void* memory, std::size_t bytes, Stream) {
    std::memset(memory, 0, bytes);
    return success;
}
inline Status raw_synchronize(Stream) { return success; }
inline std::string device_name() { return "host grid (no GPU)"; }

#endif

/// @throws kdvfs::Error with the runtime's words unless `status` is success.
inline void check(Status status, const char* action) {
    if (status == success) return;
    throw kdvfs::Error{kdvfs::Errc::io,
                       {action, "the GPU", words(status),
                        "is a GPU visible, is its memory free, was the program built for it?"}};
}

/// Device memory for `size` elements, released at the end of its life.
template <class T>
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(std::size_t size) : size_{size} {
        void* memory = nullptr;
        check(raw_allocate(&memory, size * sizeof(T)), "allocate device memory");
        elements_ = static_cast<T*>(memory);
    }
    explicit Buffer(const std::vector<T>& elements) : Buffer{elements.size()} {
        copy_from(elements, Stream{});
        // The stream that will use it may not wait for the default stream.
        check(raw_synchronize(Stream{}), "copy to the device");
    }
    Buffer(Buffer&& other) noexcept : elements_{other.elements_}, size_{other.size_} {
        other.elements_ = nullptr;
    }
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer() { raw_release(elements_); }

    [[nodiscard]] T* data() const { return elements_; }
    [[nodiscard]] std::size_t size() const { return size_; }

    /// In stream order; the elements must stay as they are until the stream has passed.
    void copy_from(const std::vector<T>& elements, Stream stream) {
        check(raw_copy(elements_, elements.data(), elements.size() * sizeof(T), stream),
              "copy to the device");
    }

    /// Waits for the stream.
    [[nodiscard]] std::vector<T> read(Stream stream) const {
        std::vector<T> elements(size_);
        check(raw_copy(elements.data(), elements_, size_ * sizeof(T), stream),
              "copy from the device");
        check(raw_synchronize(stream), "wait for the device");
        return elements;
    }

private:
    T* elements_ = nullptr;
    std::size_t size_ = 0;
};

/// All bits zero, in stream order.
template <class T>
void clear(const Buffer<T>& buffer, Stream stream) {
    check(raw_clear(buffer.data(), buffer.size() * sizeof(T), stream), "clear device memory");
}

/// Waits until the stream has passed everything in it.
inline void synchronize(Stream stream) { check(raw_synchronize(stream), "wait for the device"); }

/// Launches a `__global__` function.
/// @throws kdvfs::Error if the launch is refused.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, Stream stream,
            Arguments... arguments) {
#if defined(__CUDACC__) || defined(__HIPCC__)
    kernel<<<grid, block, 0, stream>>>(arguments...);
#else
    (void)stream;
    host_grid::run(kernel, grid, block, arguments...);
#endif
    check(last_error(), "launch a kernel");
}

}  // namespace gpt::gpu
