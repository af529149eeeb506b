// SPDX-License-Identifier: MIT
#pragma once

#include <gpt_train/attention_kernels.hpp>
#include <gpt_train/kernels.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

/// The kernels that serving needs beside those of training. A row is one token of a step, of the
/// sequence in `slots[row]`, at `positions[row]` of it.
namespace gpt::kernels {

/// One thread per element of (rows x width).
__global__ void embed_rows(float* out, const int* tokens, const int* positions,
                           const float* token_table, const float* position_table, int rows,
                           int width) {
    const int i = global_thread();
    if (i >= rows * width) return;
    const int row = i / width;
    const int column = i % width;
    out[i] =
        token_table[tokens[row] * width + column] + position_table[positions[row] * width + column];
}

/// Where the keys (and, alike, the values) of a position lie in a layer's cache: slots x sequence x
/// width.
struct CachePlace {
    int sequence, heads, width;

    [[nodiscard]] __device__ int head_width() const { return width / heads; }
    [[nodiscard]] __device__ std::ptrdiff_t at(int slot, int position) const {
        return (static_cast<std::ptrdiff_t>(slot) * sequence + position) * width;
    }
};

/// Keeps the keys and values of all rows; one thread per element of (rows x width).
__global__ void store_keys_and_values(float* keys, float* values, const float* qkv,
                                      const int* slots, const int* positions, CachePlace place,
                                      int rows) {
    const int i = global_thread();
    if (i >= rows * place.width) return;
    const int row = i / place.width;
    const int column = i % place.width;
    const std::ptrdiff_t to = place.at(slots[row], positions[row]) + column;
    const float* from = qkv + static_cast<std::ptrdiff_t>(row) * 3 * place.width + column;
    keys[to] = from[place.width];
    values[to] = from[2 * place.width];
}

/// Attention of each row to all that its sequence has in the cache up to it; a block per row and
/// head: grid (rows, heads). `scores` is (rows x heads x sequence).
__global__ void cached_attention(float* out, float* scores, const float* qkv, const float* keys,
                                 const float* values, const int* slots, const int* positions,
                                 CachePlace place) {
    const int row = static_cast<int>(blockIdx.x);
    const int head = static_cast<int>(blockIdx.y);
    const int first = static_cast<int>(threadIdx.x);
    const int step = static_cast<int>(blockDim.x);
    const int size = place.head_width();
    const int offset = head * size;
    const int slot = slots[row];
    const int t = positions[row];
    const float scale = 1.0F / sqrtf(static_cast<float>(size));
    const float* query = qkv + static_cast<std::ptrdiff_t>(row) * 3 * place.width + offset;
    float* p = scores + (static_cast<std::ptrdiff_t>(row) * place.heads + head) * place.sequence;
    float largest = -INFINITY;
    for (int s = first; s <= t; s += step) {
        p[s] = scale * dot(query, keys + place.at(slot, s) + offset, size);
        largest = Largest{}(largest, p[s]);
    }
    largest = block_reduce(largest, Largest{});
    float sum = 0.0F;
    for (int s = first; s <= t; s += step) sum += p[s] = expf(p[s] - largest);
    sum = block_reduce(sum, Sum{});
    for (int d = first; d < size; d += step) {
        float mix = 0.0F;
        for (int s = 0; s <= t; ++s) mix += p[s] * values[place.at(slot, s) + offset + d];
        out[static_cast<std::ptrdiff_t>(row) * place.width + offset + d] = mix / sum;
    }
}

// ---- sampling ----

/// A number in (0, 1) from what is sampled: the same on every device, so that a sequence's bytes
/// depend on its own seed alone and not on its batch. The mixer is lowbias32 (Wellons, 2018).
__host__ __device__ inline float uniform_of(std::uint32_t seed, std::uint32_t position,
                                            std::uint32_t byte) {
    std::uint32_t x = seed * 0x9e3779b9U + position * 256U + byte;
    x ^= x >> 16U;
    x *= 0x7feb352dU;
    x ^= x >> 15U;
    x *= 0x846ca68bU;
    x ^= x >> 16U;
    return (static_cast<float>(x >> 9U) + 0.5F) * (1.0F / 8388608.0F);
}

/// The byte with the largest logit / temperature + Gumbel noise, which is a sample of the softmax;
/// one block per sampled row, whose number in the step is `rows[block]`.
__global__ void sample(int* bytes, const float* logits, const int* rows, const int* seeds,
                       const int* positions, float inverse_temperature, int vocabulary) {
    const int row = rows[blockIdx.x];
    const int first = static_cast<int>(threadIdx.x);
    const int step = static_cast<int>(blockDim.x);
    const float* x = logits + static_cast<std::ptrdiff_t>(row) * vocabulary;
    const auto score = [&](int c) {
        const float u =
            uniform_of(static_cast<std::uint32_t>(seeds[row]),
                       static_cast<std::uint32_t>(positions[row]), static_cast<std::uint32_t>(c));
        return x[c] * inverse_temperature - logf(-logf(u));
    };
    float largest = -INFINITY;
    for (int c = first; c < vocabulary; c += step) largest = Largest{}(largest, score(c));
    largest = block_reduce(largest, Largest{});
    // Of equals the first: the negative of its number is the largest.
    float found = -static_cast<float>(vocabulary);
    for (int c = first; c < vocabulary; c += step)
        if (score(c) == largest) found = Largest{}(found, -static_cast<float>(c));
    found = block_reduce(found, Largest{});
    if (first == 0) bytes[blockIdx.x] = static_cast<int>(-found);
}

}  // namespace gpt::kernels
