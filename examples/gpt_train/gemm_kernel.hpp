// SPDX-License-Identifier: MIT
#pragma once

#include "portable_gpu.hpp"

#include <cstddef>

namespace gpt::kernels {

/// Each block of 256 threads makes a tile of 64 x 64 results, each thread 4 x 4 of them, from
/// slices of 16 that are staged in shared memory.
inline constexpr int gemm_tile = 64;
inline constexpr int gemm_slice = 16;
inline constexpr int gemm_threads = 256;
inline constexpr int gemm_part = 4;

/// Element (row, k) of op(X), 0 outside of it; op(X) is (extent x depth).
template <bool Transposed>
__device__ inline float gemm_element(const float* x, int row, int k, int extent, int depth) {
    if (row >= extent || k >= depth) return 0.0F;
    return Transposed ? x[static_cast<std::ptrdiff_t>(k) * extent + row]
                      : x[static_cast<std::ptrdiff_t>(row) * depth + k];
}

/// Stages op(X)[begin .. begin+64) x [k0 .. k0+16) as [k][row]; neighbouring threads read
/// neighbouring addresses.
template <bool Transposed>
__device__ inline void gemm_stage(float (&slice)[gemm_slice][gemm_tile + 1], const float* x,
                                  int begin, int k0, int extent, int depth) {
    for (int i = static_cast<int>(threadIdx.x); i < gemm_tile * gemm_slice; i += gemm_threads) {
        const int row = Transposed ? i % gemm_tile : i / gemm_slice;
        const int k = Transposed ? i / gemm_tile : i % gemm_slice;
        slice[k][row] = gemm_element<Transposed>(x, begin + row, k0 + k, extent, depth);
    }
}

/// C (m x n) = op(A) (m x k) * op(B) (k x n) + bias (n, or null). Grid: (n / 64, m / 64) rounded
/// up. B is staged by its columns: transposed exactly when op(B) is B as it lies in memory.
template <bool TransposeA, bool TransposeB>
__global__ void gemm(float* c, const float* a, const float* b, const float* bias, int m, int n,
                     int k) {
    __shared__ float slice_a[gemm_slice][gemm_tile + 1];
    __shared__ float slice_b[gemm_slice][gemm_tile + 1];
    const int row0 = static_cast<int>(blockIdx.y) * gemm_tile;
    const int column0 = static_cast<int>(blockIdx.x) * gemm_tile;
    const int thread_row = static_cast<int>(threadIdx.x) / gemm_slice;
    const int thread_column = static_cast<int>(threadIdx.x) % gemm_slice;
    float sum[gemm_part][gemm_part] = {};
    for (int k0 = 0; k0 < k; k0 += gemm_slice) {
        gemm_stage<TransposeA>(slice_a, a, row0, k0, m, k);
        gemm_stage<!TransposeB>(slice_b, b, column0, k0, n, k);
        __syncthreads();
        for (int i = 0; i < gemm_slice; ++i) {
            for (int r = 0; r < gemm_part; ++r) {
                for (int s = 0; s < gemm_part; ++s) {
                    sum[r][s] += slice_a[i][thread_row + r * gemm_slice] *
                                 slice_b[i][thread_column + s * gemm_slice];
                }
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < gemm_part; ++r) {
        for (int s = 0; s < gemm_part; ++s) {
            const int row = row0 + thread_row + r * gemm_slice;
            const int column = column0 + thread_column + s * gemm_slice;
            if (row >= m || column >= n) continue;
            c[static_cast<std::ptrdiff_t>(row) * n + column] =
                sum[r][s] + (bias == nullptr ? 0.0F : bias[column]);
        }
    }
}

}  // namespace gpt::kernels
