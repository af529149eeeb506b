// SPDX-License-Identifier: MIT
#include "saxpy.hpp"

#include <kdvfs/hip_markers.hpp>

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace saxpy {
namespace {

void check(hipError_t status) {
    if (status != hipSuccess) throw std::runtime_error{hipGetErrorString(status)};
}

/// Device memory of its own.
class Numbers {
public:
    explicit Numbers(int count) {
        const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
        check(hipMalloc(&memory_, bytes));
        check(hipMemset(memory_, 0, bytes));
    }
    ~Numbers() { static_cast<void>(hipFree(memory_)); }
    Numbers(const Numbers&) = delete;
    Numbers& operator=(const Numbers&) = delete;

    [[nodiscard]] float* get() const { return static_cast<float*>(memory_); }

private:
    void* memory_ = nullptr;
};

#if defined(__HIPCC__)
__global__ void saxpy_kernel(int count, float a, const float* x, float* y) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < static_cast<unsigned>(count)) y[i] = a * x[i] + y[i];
}

void launch(hipStream_t stream, int count, const float* x, float* y) {
    const unsigned blocks = (static_cast<unsigned>(count) + 255) / 256;
    saxpy_kernel<<<blocks, 256, 0, stream>>>(count, 2.0F, x, y);
    check(hipGetLastError());
}
#else
void launch(hipStream_t stream, int count, const float* x, float* y) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    check(hipMemcpyAsync(y, x, bytes, hipMemcpyDeviceToDevice, stream));
}
#endif

}  // namespace

bool has_kernel() {
#if defined(__HIPCC__)
    return true;
#else
    return false;
#endif
}

float run(const kdvfs::BoundGpu<Policies>& gpu, int count, int times) {
    hipStream_t stream = nullptr;
    check(hipStreamCreate(&stream));
    const Numbers x{count};
    const Numbers y{count};
    for (int i = 0; i < times; ++i) {
        kdvfs::FrequencyScope<Saxpy> scope{gpu, stream};
        launch(stream, count, x.get(), y.get());
    }
    float first = 0;
    check(hipMemcpyAsync(&first, y.get(), sizeof first, hipMemcpyDeviceToHost, stream));
    check(hipStreamSynchronize(stream));
    check(hipStreamDestroy(stream));
    return first;
}

}  // namespace saxpy
