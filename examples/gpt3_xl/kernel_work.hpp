// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/iteration.hpp>
#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>

#include <array>
#include <cstddef>

/// FLOPs and bytes of each entry from GPT-3-XL's shapes, to predict the iteration on boards that
/// nobody measured it on. The published times (GEMMs at 72 of 76 TFLOP/s, GELU at 848 of 912 GB/s)
/// fit bf16 activations and weights with fp32 accumulation. Where a kernel makes several passes
/// over its input (llm.c, llmc/*.cuh), each one that the caches cannot hold is counted. Attention's
/// softmax touches the causal half only, its GEMMs the whole square.
namespace gpt3 {

namespace detail {

using kdvfs::simulated::KernelWork;

inline constexpr double bytes_per_value = 2;
inline constexpr double tokens = 40 * 1024;  // batch 40, sequence 1024
inline constexpr double hidden = 2048;
inline constexpr double vocabulary = 50304;  // 50257 padded to a multiple of 128
inline constexpr double heads_in_batch = 40 * 16;
inline constexpr double sequence = 1024;
inline constexpr double head_size = 128;

inline constexpr double activations = tokens * hidden;
inline constexpr double attention = heads_in_batch * sequence * sequence;

/// rows x inner times inner x columns, `batch` of them.
constexpr KernelWork gemm(double rows, double columns, double inner, double batch = 1) {
    return {2 * rows * columns * inner * batch, 0,
            bytes_per_value * batch * (rows * inner + inner * columns + rows * columns)};
}

/// Values moved, read and written alike, and FLOPs per value.
constexpr KernelWork streaming(double values, double flops_per_value) {
    return {0, values * flops_per_value, bytes_per_value * values};
}

inline constexpr KernelWork attention_scores =
    gemm(sequence, sequence, head_size, heads_in_batch);  // also of its gradient
inline constexpr KernelWork attention_values =
    gemm(sequence, head_size, sequence, heads_in_batch);  // also of the gradients of q, k and v
inline constexpr KernelWork layernorm_backward = streaming(6 * activations, 3);
inline constexpr KernelWork permute_qkv = streaming(6 * activations, 0);
inline constexpr KernelWork permute_values = streaming(2 * activations, 0);
inline constexpr KernelWork fused_residual = streaming(4 * activations, 3);
inline constexpr KernelWork bias_sums = streaming(64 * hidden, 1);  // 32 partial sums in fp32

}  // namespace detail

/// One launch of each entry of `published_table`.
inline constexpr std::array<kdvfs::simulated::KernelWork, kernel_count> kernel_work = [] {
    using namespace detail;
    return std::array<KernelWork, kernel_count>{{
        streaming(2 * activations, 1),          // 0 token and position embedding
        streaming(2 * activations, 4),          // 1 layernorm
        gemm(tokens, 3 * hidden, hidden),       // 2 q, k, v
        permute_qkv,                            // 3
        attention_scores,                       // 4
        streaming(attention, 6),                // 5 causal softmax: half read, half written
        attention_values,                       // 6
        permute_values,                         // 7
        gemm(tokens, hidden, hidden),           // 8 attention projection
        fused_residual,                         // 9 residual and layernorm
        gemm(tokens, 4 * hidden, hidden),       // 10 up
        streaming(8 * activations, 10),         // 11 GELU
        gemm(tokens, hidden, 4 * hidden),       // 12 down
        fused_residual,                         // 13
        gemm(tokens, vocabulary, hidden),       // 14 logits
        streaming(2 * tokens * vocabulary, 4),  // 15 softmax and loss
        gemm(tokens, hidden, vocabulary),       // 16 logits' gradient to activations
        gemm(vocabulary, hidden, tokens),       // 17 to the embedding
        layernorm_backward,                     // 18
        streaming(8 * activations, 10),         // 19 GELU, recomputed
        streaming(activations, 1),              // 20 bias of down
        bias_sums,                              // 21
        gemm(tokens, 4 * hidden, hidden),       // 22 down, to activations
        streaming(12 * activations, 10),        // 23 GELU backward
        gemm(hidden, 4 * hidden, tokens),       // 24 down, to weights
        streaming(4 * activations, 1),          // 25 bias of up
        gemm(tokens, hidden, 4 * hidden),       // 26 up, to activations
        gemm(4 * hidden, hidden, tokens),       // 27 up, to weights
        layernorm_backward,                     // 28
        streaming(activations, 1),              // 29 bias of the attention projection
        bias_sums,                              // 30
        gemm(tokens, hidden, hidden),           // 31 projection, to activations
        gemm(hidden, hidden, tokens),           // 32 projection, to weights
        permute_values,                         // 33
        attention_scores,                       // 34
        attention_values,                       // 35
        streaming(2 * attention, 3),            // 36 softmax backward: half read twice, all written
        attention_values,                       // 37
        attention_values,                       // 38
        permute_qkv,                            // 39
        streaming(3 * activations, 1),          // 40 bias of q, k, v
        gemm(tokens, hidden, 3 * hidden),       // 41 q, k, v, to activations
        gemm(3 * hidden, hidden, tokens),       // 42 to weights
        layernorm_backward,                     // 43
        streaming(activations, 1),              // 44 position embedding
        streaming(3 * activations, 1),          // 45 token embedding: read, add, write
    }};
}();

/// The iteration's kernels on any board, predicted from `kernel_work`.
inline std::array<kdvfs::simulated::KernelModel, kernel_count> predicted_kernels(
    const kdvfs::simulated::Board& board) {
    std::array<kdvfs::simulated::KernelModel, kernel_count> kernels;
    for (std::size_t k = 0; k < kernel_count; ++k) {
        kernels[k] = kdvfs::simulated::roofline(board, kernel_work[k]);
    }
    return kernels;
}

}  // namespace gpt3
