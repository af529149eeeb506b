// SPDX-License-Identifier: MIT
//
// The device code of switch_latency, for hipcc; a host compiler makes of it a program that says
// that it has none.
#include <kdvfs/kdvfs.hpp>

#include <kdvfs/hip_markers.hpp>

#include "clock_loop.hpp"

#include <stdexcept>

namespace clock_loop {

#if defined(__HIPCC__)
namespace {

void check(hipError_t status) {
    if (status != hipSuccess) throw std::runtime_error{hipGetErrorString(status)};
}

/// Little power, so that no cap comes between the clock that is asked for and the one that holds.
__global__ void depend(unsigned steps, float* never) {
    auto x = static_cast<float>(threadIdx.x);
    for (unsigned i = 0; i < steps; ++i) x = x * 0.999F + 1.0F;
    if (x < 0) *never = x;
}

unsigned compute_units() {
    int device = 0;
    int count = 0;
    check(hipGetDevice(&device));
    check(hipDeviceGetAttribute(&count, hipDeviceAttributeMultiprocessorCount, device));
    return static_cast<unsigned>(count);
}

}  // namespace

bool has_kernel() { return true; }

void launch(void* stream, unsigned steps) {
    static const unsigned blocks = compute_units();
    constexpr unsigned threads = 256;
    depend<<<blocks, threads, 0, static_cast<hipStream_t>(stream)>>>(steps, nullptr);
    check(hipGetLastError());
}
#else
bool has_kernel() { return false; }

void launch(void*, unsigned) { throw std::logic_error{"built without device code"}; }
#endif

}  // namespace clock_loop
