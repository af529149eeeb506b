// SPDX-License-Identifier: MIT
//
// The round's device code, compiled by hipcc or clang: the load, and kdvfs's marker kernel.
#include <kdvfs/hip_markers.hpp>

#include "load.hpp"

#include <hip/hip_runtime.h>

namespace {

constexpr unsigned blocks = 4864;  // 16 on each unit of an MI300X
constexpr unsigned threads = 256;

/// Arithmetic alone, so that its time goes with the core clock.
__global__ void burn_kernel(float* out, long long rounds) {
    float a = static_cast<float>(threadIdx.x);
    float b = 1.0F;
    for (long long i = 0; i < rounds; ++i) {
        a = a * 0.999F + b;
        b = b * 1.001F + a;
    }
    if (a + b == 0.12345F) *out = a;  // never, but the compiler does not know
}

void launch(hipStream_t stream, long long rounds) {
    static float* const out = [] {
        void* memory = nullptr;
        static_cast<void>(hipMalloc(&memory, sizeof(float)));
        return static_cast<float*>(memory);
    }();
    burn_kernel<<<blocks, threads, 0, stream>>>(out, rounds);
}

/// How many rounds take a million cycles of the highest clock that HIP tells.
double rounds_per_megacycle() {
    constexpr long long tried = 20'000;
    hipEvent_t from = nullptr;
    hipEvent_t to = nullptr;
    hipStream_t stream = nullptr;
    amd_round::check(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "make a stream");
    amd_round::check(hipEventCreate(&from), "make an event");
    amd_round::check(hipEventCreate(&to), "make an event");
    launch(stream, tried);  // loads the kernel, raises the clock
    amd_round::check(hipEventRecord(from, stream), "record an event");
    launch(stream, tried);
    amd_round::check(hipEventRecord(to, stream), "record an event");
    amd_round::check(hipStreamSynchronize(stream), "wait for a stream");
    float milliseconds = 0;
    amd_round::check(hipEventElapsedTime(&milliseconds, from, to), "time a kernel");
    int kilohertz = 0;
    int device = 0;
    amd_round::check(hipGetDevice(&device), "ask for the device");
    amd_round::check(hipDeviceGetAttribute(&kilohertz, hipDeviceAttributeClockRate, device),
                     "ask for the clock rate");
    static_cast<void>(hipEventDestroy(from));
    static_cast<void>(hipEventDestroy(to));
    static_cast<void>(hipStreamDestroy(stream));
    const double megacycles = static_cast<double>(milliseconds) * kilohertz / 1e6;
    return static_cast<double>(tried) / megacycles;
}

}  // namespace

hipError_t amd_round::burn(hipStream_t stream, double megacycles) {
    static const double rounds = rounds_per_megacycle();
    launch(stream, static_cast<long long>(rounds * megacycles) + 1);
    return hipGetLastError();
}
