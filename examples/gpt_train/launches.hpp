// SPDX-License-Identifier: MIT
#pragma once

#include "gemm_kernel.hpp"
#include "kernels.hpp"
#include "portable_gpu.hpp"

/// How the kernels of these examples are put into a stream.
namespace gpt::launches {

/// One block per row.
template <class Function, class... Arguments>
void per_row(gpu::Stream stream, Function kernel, int rows, Arguments... arguments) {
    gpu::launch(kernel, dim3{static_cast<unsigned>(rows), 1, 1}, dim3{kernels::block_threads, 1, 1},
                stream, arguments...);
}

/// One thread per element.
template <class Function, class... Arguments>
void elementwise(gpu::Stream stream, Function kernel, int count, Arguments... arguments) {
    per_row(stream, kernel, (count + kernels::block_threads - 1) / kernels::block_threads,
            arguments...);
}

/// C (m x n) = op(A) (m x k) * op(B) (k x n) + bias (n, or null).
template <bool TransposeA, bool TransposeB>
void product(gpu::Stream stream, float* c, const float* a, const float* b, const float* bias, int m,
             int n, int k) {
    const auto tiles = [](int size) {
        return static_cast<unsigned>((size + kernels::gemm_tile - 1) / kernels::gemm_tile);
    };
    gpu::launch(kernels::gemm<TransposeA, TransposeB>, dim3{tiles(n), tiles(m), 1},
                dim3{kernels::gemm_threads, 1, 1}, stream, c, a, b, bias, m, n, k);
}

}  // namespace gpt::launches
