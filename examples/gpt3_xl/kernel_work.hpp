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

namespace work_parts {

using kdvfs::simulated::KernelWork;

inline constexpr double bytes_per_value = 2;
inline constexpr double hidden = 2048;
inline constexpr double vocabulary = 50304;  // 50257 padded to a multiple of 128
inline constexpr double sequence = 1024;
inline constexpr double head_size = 128;

/// rows x inner times inner x columns, `batch` of them.
constexpr KernelWork gemm(double rows, double columns, double inner, double batch = 1) {
    return {2 * rows * columns * inner * batch, 0,
            bytes_per_value * batch * (rows * inner + inner * columns + rows * columns)};
}

/// Values moved, read and written alike, and FLOPs per value.
constexpr KernelWork streaming(double values, double flops_per_value) {
    return {0, values * flops_per_value, bytes_per_value * values};
}

}  // namespace work_parts

/// One launch of each entry of `published_table`, with `batch` sequences on a GPU of a group of
/// `split` that share each layer as Megatron-LM has it: heads, the hidden values between up and
/// down, and the vocabulary are split; norms and residuals are not.
constexpr std::array<kdvfs::simulated::KernelWork, kernel_count> kernel_work_of(double batch,
                                                                                double split = 1) {
    using namespace work_parts;
    const double tokens = batch * sequence;
    const double part = hidden / split;  // of q, k, v and the attention's output
    const double up = 4 * hidden / split;
    const double words = vocabulary / split;
    const double heads_in_batch = batch * 16 / split;
    const double activations = tokens * hidden;
    const double split_activations = tokens * part;
    const double attention = heads_in_batch * sequence * sequence;
    const KernelWork attention_scores =
        gemm(sequence, sequence, head_size, heads_in_batch);  // also of its gradient
    const KernelWork attention_values =
        gemm(sequence, head_size, sequence, heads_in_batch);  // also of the gradients of q, k and v
    const KernelWork layernorm_backward = streaming(6 * activations, 3);
    const KernelWork permute_qkv = streaming(6 * split_activations, 0);
    const KernelWork permute_values = streaming(2 * split_activations, 0);
    const KernelWork fused_residual = streaming(4 * activations, 3);
    const KernelWork bias_sums = streaming(64 * hidden, 1);  // 32 partial sums in fp32
    return {{
        streaming(2 * activations, 1),        // 0 token and position embedding
        streaming(2 * activations, 4),        // 1 layernorm
        gemm(tokens, 3 * part, hidden),       // 2 q, k, v
        permute_qkv,                          // 3
        attention_scores,                     // 4
        streaming(attention, 6),              // 5 causal softmax: half read, half written
        attention_values,                     // 6
        permute_values,                       // 7
        gemm(tokens, hidden, part),           // 8 attention projection
        fused_residual,                       // 9 residual and layernorm
        gemm(tokens, up, hidden),             // 10 up
        streaming(2 * tokens * up, 10),       // 11 GELU
        gemm(tokens, hidden, up),             // 12 down
        fused_residual,                       // 13
        gemm(tokens, words, hidden),          // 14 logits
        streaming(2 * tokens * words, 4),     // 15 softmax and loss
        gemm(tokens, hidden, words),          // 16 logits' gradient to activations
        gemm(words, hidden, tokens),          // 17 to the embedding
        layernorm_backward,                   // 18
        streaming(2 * tokens * up, 10),       // 19 GELU, recomputed
        streaming(activations, 1),            // 20 bias of down
        bias_sums,                            // 21
        gemm(tokens, up, hidden),             // 22 down, to activations
        streaming(3 * tokens * up, 10),       // 23 GELU backward
        gemm(hidden, up, tokens),             // 24 down, to weights
        streaming(tokens * up, 1),            // 25 bias of up
        gemm(tokens, hidden, up),             // 26 up, to activations
        gemm(up, hidden, tokens),             // 27 up, to weights
        layernorm_backward,                   // 28
        streaming(activations, 1),            // 29 bias of the attention projection
        bias_sums,                            // 30
        gemm(tokens, part, hidden),           // 31 projection, to activations
        gemm(part, hidden, tokens),           // 32 projection, to weights
        permute_values,                       // 33
        attention_scores,                     // 34
        attention_values,                     // 35
        streaming(2 * attention, 3),          // 36 softmax backward: half read twice, all written
        attention_values,                     // 37
        attention_values,                     // 38
        permute_qkv,                          // 39
        streaming(3 * split_activations, 1),  // 40 bias of q, k, v
        gemm(tokens, hidden, 3 * part),       // 41 q, k, v, to activations
        gemm(3 * part, hidden, tokens),       // 42 to weights
        layernorm_backward,                   // 43
        streaming(activations, 1),            // 44 position embedding
        streaming(3 * activations, 1),        // 45 token embedding: read, add, write

    }};
}

/// As published: batch 40 on one GPU.
inline constexpr std::array<kdvfs::simulated::KernelWork, kernel_count> kernel_work =
    kernel_work_of(40);

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
