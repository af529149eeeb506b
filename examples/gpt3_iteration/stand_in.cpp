// SPDX-License-Identifier: MIT
#include <examples/gpt3_iteration/stand_in.hpp>
#include <kdvfs/hip_markers.hpp>

#include <hip/hip_runtime_api.h>

#include <stdexcept>

namespace gpt3 {
namespace {

void check(hipError_t status) {
    if (status != hipSuccess) throw std::runtime_error{hipGetErrorString(status)};
}

#if defined(__HIPCC__)

using Half4 = _Float16 __attribute__((ext_vector_type(4)));
using Float16 = float __attribute__((ext_vector_type(16)));

/// `done` of `all`, as far as `steps` equal steps have come.
__device__ std::uint32_t share(std::uint32_t all, unsigned done, unsigned steps) {
    return static_cast<std::uint32_t>(std::uint64_t{all} * done / steps);
}

__global__ void __launch_bounds__(StandIn::threads_per_block)
    stand_in_kernel(StandIn work, const float4* from, float4* to, std::size_t mask) {
    const std::size_t thread = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
    const std::size_t threads = gridDim.x * std::size_t{blockDim.x};
    Float16 sums = {};
    float sum = 0;
    for (unsigned step = 0; step < work.steps; ++step) {
        const std::size_t i = (thread + step * threads) & mask;
        const float4 value = from[i];
        const std::uint32_t vectors = share(work.vector_instructions, step + 1, work.steps) -
                                      share(work.vector_instructions, step, work.steps);
        for (std::uint32_t k = 0; k < vectors; ++k) sum = fmaf(sum, 0.999F, value.x);
        const std::uint32_t matrices = share(work.matrix_instructions, step + 1, work.steps) -
                                       share(work.matrix_instructions, step, work.steps);
        const Half4 a = *reinterpret_cast<const Half4*>(&value.x);
        const Half4 b = *reinterpret_cast<const Half4*>(&value.z);
        for (std::uint32_t k = 0; k < matrices; ++k) {
#if defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx942__)
            sums = __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, sums, 0, 0, 0);
#else  // no matrix units: as many FLOPs on the vector units
            for (unsigned track = 0; track < 128; ++track) {
                sum = fmaf(sum, 0.999F, static_cast<float>(a[track % 4] * b[track % 4]));
            }
#endif
        }
        to[i] = {value.x, value.y, value.z, sum + sums[0]};
    }
}

/// Halves between 0.5 and 1 with random digits: zeros would draw far less power.
__global__ void fill_kernel(std::uint32_t* memory, std::size_t count) {
    const std::size_t threads = gridDim.x * std::size_t{blockDim.x};
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
         i += threads) {
        const auto mixed = static_cast<std::uint32_t>(i) * 2654435761U;
        memory[i] = ((mixed >> 3U) & 0x03ff03ffU) | 0x38003800U;
    }
}

void fill(void* memory, std::size_t bytes) {
    fill_kernel<<<1024, 256>>>(static_cast<std::uint32_t*>(memory), bytes / 4);
    check(hipGetLastError());
    check(hipDeviceSynchronize());
}

void enqueue(hipStream_t stream, const StandIn& work, const void* from, void* to,
             std::size_t buffer_bytes) {
    stand_in_kernel<<<work.blocks, StandIn::threads_per_block, 0, stream>>>(
        work, static_cast<const float4*>(from), static_cast<float4*>(to),
        buffer_bytes / sizeof(float4) - 1);
    check(hipGetLastError());
}

#else

void fill(void* memory, std::size_t bytes) { check(hipMemset(memory, 0x3a, bytes)); }

/// Half of the bytes are read, half written.
void enqueue(hipStream_t stream, const StandIn& work, const void* from, void* to,
             std::size_t buffer_bytes) {
    auto left = static_cast<std::size_t>(work.bytes() / 2);
    while (left > 0) {
        const std::size_t part = std::min(left, buffer_bytes);
        check(hipMemcpyAsync(to, from, part, hipMemcpyDeviceToDevice, stream));
        left -= part;
    }
}

#endif

}  // namespace

bool StandIns::burns_flops() {
#if defined(__HIPCC__)
    return true;
#else
    return false;
#endif
}

StandIns::StandIns(std::size_t buffer_bytes) : buffer_bytes_{buffer_bytes} {
    int device = 0;
    int compute_units = 0;
    check(hipGetDevice(&device));
    check(hipDeviceGetAttribute(&compute_units, hipDeviceAttributeMultiprocessorCount, device));
    blocks_at_once_ = 8 * static_cast<unsigned>(compute_units);
    check(hipMalloc(&from_, buffer_bytes_));
    const hipError_t second = hipMalloc(&to_, buffer_bytes_);
    if (second != hipSuccess) static_cast<void>(hipFree(from_));
    check(second);
    fill(from_, buffer_bytes_);
}

StandIns::~StandIns() {
    static_cast<void>(hipFree(from_));
    static_cast<void>(hipFree(to_));
}

void StandIns::launch(kdvfs::StreamRef stream, const StandIn& work) const {
    enqueue(stream.as<ihipStream_t>(), work, from_, to_, buffer_bytes_);
}

}  // namespace gpt3
