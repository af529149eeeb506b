// SPDX-License-Identifier: MIT
#pragma once

#include "kernels.hpp"

namespace gpt::kernels {

/// Where the queries, keys and values of one (row of the batch, head) lie in a matrix
/// (tokens x 3 width), and where its probabilities in (batch x heads x sequence x sequence).
struct AttentionPlace {
    int sequence, heads, width;

    [[nodiscard]] __device__ int head_width() const { return width / heads; }
    [[nodiscard]] __device__ std::ptrdiff_t query(int pair, int position) const {
        return (static_cast<std::ptrdiff_t>(pair / heads) * sequence + position) * 3 * width +
               pair % heads * head_width();
    }
    [[nodiscard]] __device__ std::ptrdiff_t key(int pair, int position) const {
        return query(pair, position) + width;
    }
    [[nodiscard]] __device__ std::ptrdiff_t value(int pair, int position) const {
        return query(pair, position) + 2 * width;
    }
    [[nodiscard]] __device__ std::ptrdiff_t out(int pair, int position) const {
        return (static_cast<std::ptrdiff_t>(pair / heads) * sequence + position) * width +
               pair % heads * head_width();
    }
    [[nodiscard]] __device__ std::ptrdiff_t score(int pair, int position) const {
        return (static_cast<std::ptrdiff_t>(pair) * sequence + position) * sequence;
    }
};

__device__ inline float dot(const float* a, const float* b, int size) {
    float sum = 0.0F;
    for (int i = 0; i < size; ++i) sum += a[i] * b[i];
    return sum;
}

/// Causal attention; a block per query: grid (sequence, batch x heads).
__global__ void attention(float* out, float* probabilities, const float* qkv,
                          AttentionPlace place) {
    const int t = static_cast<int>(blockIdx.x);
    const int pair = static_cast<int>(blockIdx.y);
    const int first = static_cast<int>(threadIdx.x);
    const int step = static_cast<int>(blockDim.x);
    const int size = place.head_width();
    const float scale = 1.0F / sqrtf(static_cast<float>(size));
    const float* query = qkv + place.query(pair, t);
    float* p = probabilities + place.score(pair, t);
    float largest = -INFINITY;
    for (int s = first; s <= t; s += step) {
        p[s] = scale * dot(query, qkv + place.key(pair, s), size);
        largest = Largest{}(largest, p[s]);
    }
    largest = block_reduce(largest, Largest{});
    float sum = 0.0F;
    for (int s = first; s <= t; s += step) sum += p[s] = expf(p[s] - largest);
    sum = block_reduce(sum, Sum{});
    for (int s = first; s <= t; s += step) p[s] /= sum;
    __syncthreads();
    for (int d = first; d < size; d += step) {
        float mix = 0.0F;
        for (int s = 0; s <= t; ++s) mix += p[s] * qkv[place.value(pair, s) + d];
        out[place.out(pair, t) + d] = mix;
    }
}

/// The gradients of the scores (before scaling by 1/sqrt(head width)) and of the queries; a block
/// per query.
__global__ void attention_backward_queries(float* d_qkv, float* d_scores, const float* d_out,
                                           const float* probabilities, const float* qkv,
                                           AttentionPlace place) {
    const int t = static_cast<int>(blockIdx.x);
    const int pair = static_cast<int>(blockIdx.y);
    const int first = static_cast<int>(threadIdx.x);
    const int step = static_cast<int>(blockDim.x);
    const int size = place.head_width();
    const float scale = 1.0F / sqrtf(static_cast<float>(size));
    const float* p = probabilities + place.score(pair, t);
    float* d_score = d_scores + place.score(pair, t);
    float sum = 0.0F;
    for (int s = first; s <= t; s += step) {
        d_score[s] = dot(d_out + place.out(pair, t), qkv + place.value(pair, s), size);
        sum += p[s] * d_score[s];
    }
    const float mean = block_reduce(sum, Sum{});
    for (int s = first; s <= t; s += step) d_score[s] = p[s] * (d_score[s] - mean) * scale;
    __syncthreads();
    for (int d = first; d < size; d += step) {
        float mix = 0.0F;
        for (int s = 0; s <= t; ++s) mix += d_score[s] * qkv[place.key(pair, s) + d];
        d_qkv[place.query(pair, t) + d] = mix;
    }
}

/// The gradients of keys and values; a block per key, after attention_backward_queries.
__global__ void attention_backward_keys(float* d_qkv, const float* d_scores, const float* d_out,
                                        const float* probabilities, const float* qkv,
                                        AttentionPlace place) {
    const int s = static_cast<int>(blockIdx.x);
    const int pair = static_cast<int>(blockIdx.y);
    const int step = static_cast<int>(blockDim.x);
    for (int d = static_cast<int>(threadIdx.x); d < place.head_width(); d += step) {
        float d_key = 0.0F;
        float d_value = 0.0F;
        for (int t = s; t < place.sequence; ++t) {
            d_key += d_scores[place.score(pair, t) + s] * qkv[place.query(pair, t) + d];
            d_value += probabilities[place.score(pair, t) + s] * d_out[place.out(pair, t) + d];
        }
        d_qkv[place.key(pair, s) + d] = d_key;
        d_qkv[place.value(pair, s) + d] = d_value;
    }
}

}  // namespace gpt::kernels
