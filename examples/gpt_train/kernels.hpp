// SPDX-License-Identifier: MIT
#pragma once

#include "portable_gpu.hpp"

#include <cmath>
#include <cstddef>

/// The kernels of a training step: plain, deterministic (no atomics), single precision. Matrices
/// are row-major. `rows` is tokens (batch x sequence) unless it says otherwise.
namespace gpt::kernels {

inline constexpr int block_threads = 256;

// ---- reductions over a block ----

struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct Largest {
    __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

/// The combination of one value per thread, given to all threads; the block has a power of two.
template <class Combine>
__device__ inline float block_reduce(float value, Combine combine) {
    __shared__ float partial[block_threads];
    const unsigned thread = threadIdx.x;
    partial[thread] = value;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (thread < half) partial[thread] = combine(partial[thread], partial[thread + half]);
        __syncthreads();
    }
    const float result = partial[0];
    __syncthreads();
    return result;
}

__device__ inline int global_thread() {
    return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

// ---- embedding: one thread per element of (rows x width) ----

__global__ void embed(float* out, const int* tokens, const float* token_table,
                      const float* position_table, int rows, int sequence, int width) {
    const int i = global_thread();
    if (i >= rows * width) return;
    const int row = i / width;
    const int column = i % width;
    out[i] =
        token_table[tokens[row] * width + column] + position_table[row % sequence * width + column];
}

/// One block per token of the vocabulary: adds the rows at which it stands.
__global__ void embed_backward_tokens(float* d_token_table, const float* d_out, const int* tokens,
                                      int rows, int width) {
    const int token = static_cast<int>(blockIdx.x);
    for (int row = 0; row < rows; ++row) {
        if (tokens[row] != token) continue;
        for (int c = static_cast<int>(threadIdx.x); c < width; c += static_cast<int>(blockDim.x)) {
            d_token_table[token * width + c] += d_out[row * width + c];
        }
    }
}

/// One thread per element of (sequence x width).
__global__ void embed_backward_positions(float* d_position_table, const float* d_out, int rows,
                                         int sequence, int width) {
    const int i = global_thread();
    if (i >= sequence * width) return;
    float sum = 0.0F;
    for (int row = i / width; row < rows; row += sequence) sum += d_out[row * width + i % width];
    d_position_table[i] = sum;
}

// ---- layer norm: one block per row ----

inline constexpr float norm_epsilon = 1e-5F;

__global__ void norm(float* out, float* mean_out, float* deviation_out, const float* in,
                     const float* scale, const float* shift, int width) {
    const int row = static_cast<int>(blockIdx.x);
    const int first = static_cast<int>(threadIdx.x);
    const int step = static_cast<int>(blockDim.x);
    const float* x = in + static_cast<std::ptrdiff_t>(row) * width;
    float* y = out + static_cast<std::ptrdiff_t>(row) * width;
    float sum = 0.0F;
    for (int c = first; c < width; c += step) sum += x[c];
    const float mean = block_reduce(sum, Sum{}) / static_cast<float>(width);
    float squares = 0.0F;
    for (int c = first; c < width; c += step) squares += (x[c] - mean) * (x[c] - mean);
    const float variance = block_reduce(squares, Sum{}) / static_cast<float>(width);
    const float inverse_deviation = 1.0F / sqrtf(variance + norm_epsilon);
    for (int c = first; c < width; c += step) {
        y[c] = (x[c] - mean) * inverse_deviation * scale[c] + shift[c];
    }
    if (first == 0) {
        mean_out[row] = mean;
        deviation_out[row] = inverse_deviation;
    }
}

/// Adds the gradient of the norm's input to `d_in`, which holds that of the residual path.
__global__ void norm_backward_input(float* d_in, const float* d_out, const float* in,
                                    const float* scale, const float* means, const float* deviations,
                                    int width) {
    const int row = static_cast<int>(blockIdx.x);
    const int first = static_cast<int>(threadIdx.x);
    const int step = static_cast<int>(blockDim.x);
    const std::ptrdiff_t begin = static_cast<std::ptrdiff_t>(row) * width;
    const float mean = means[row];
    const float inverse_deviation = deviations[row];
    float sum = 0.0F;
    float sum_normal = 0.0F;
    for (int c = first; c < width; c += step) {
        const float d = d_out[begin + c] * scale[c];
        sum += d;
        sum_normal += d * (in[begin + c] - mean) * inverse_deviation;
    }
    const float mean_d = block_reduce(sum, Sum{}) / static_cast<float>(width);
    const float mean_d_normal = block_reduce(sum_normal, Sum{}) / static_cast<float>(width);
    for (int c = first; c < width; c += step) {
        const float normal = (in[begin + c] - mean) * inverse_deviation;
        const float d = d_out[begin + c] * scale[c];
        d_in[begin + c] += inverse_deviation * (d - mean_d - normal * mean_d_normal);
    }
}

// ---- sums down the columns: blocks of 8 columns x 32 rows ----

inline constexpr int sum_columns = 8;

/// Adds up the 32 partial sums of each of the block's columns; the threads of row 0 hold them.
__device__ inline float sum_down_block(float value) {
    __shared__ float partial[block_threads];
    const unsigned thread = threadIdx.x;
    partial[thread] = value;
    __syncthreads();
    for (unsigned half = block_threads / 2; half >= sum_columns; half /= 2) {
        if (thread < half) partial[thread] += partial[thread + half];
        __syncthreads();
    }
    const float result = partial[thread];
    __syncthreads();
    return result;
}

/// The gradient of a bias: `out[c]` = sum of column c.
__global__ void column_sum(float* out, const float* in, int rows, int width) {
    const int thread = static_cast<int>(threadIdx.x);
    const int c = static_cast<int>(blockIdx.x) * sum_columns + thread % sum_columns;
    float sum = 0.0F;
    if (c < width) {
        for (int row = thread / sum_columns; row < rows; row += block_threads / sum_columns) {
            sum += in[static_cast<std::ptrdiff_t>(row) * width + c];
        }
    }
    const float total = sum_down_block(sum);
    if (thread < sum_columns && c < width) out[c] = total;
}

__global__ void norm_backward_parameters(float* d_scale, float* d_shift, const float* d_out,
                                         const float* in, const float* means,
                                         const float* deviations, int rows, int width) {
    const int thread = static_cast<int>(threadIdx.x);
    const int c = static_cast<int>(blockIdx.x) * sum_columns + thread % sum_columns;
    float sum = 0.0F;
    float sum_normal = 0.0F;
    if (c < width) {
        for (int row = thread / sum_columns; row < rows; row += block_threads / sum_columns) {
            const std::ptrdiff_t i = static_cast<std::ptrdiff_t>(row) * width + c;
            sum += d_out[i];
            sum_normal += d_out[i] * (in[i] - means[row]) * deviations[row];
        }
    }
    const float total = sum_down_block(sum);
    const float total_normal = sum_down_block(sum_normal);
    if (thread < sum_columns && c < width) {
        d_shift[c] = total;
        d_scale[c] = total_normal;
    }
}

// ---- elementwise ----

__global__ void add(float* out, const float* a, const float* b, int count) {
    const int i = global_thread();
    if (i < count) out[i] = a[i] + b[i];
}

inline constexpr float root_2_over_pi = 0.7978845608F;
inline constexpr float gelu_cubic = 0.044715F;

__global__ void gelu(float* out, const float* in, int count) {
    const int i = global_thread();
    if (i >= count) return;
    const float x = in[i];
    out[i] = 0.5F * x * (1.0F + tanhf(root_2_over_pi * (x + gelu_cubic * x * x * x)));
}

/// Turns the gradient of GELU's output into that of its input, in place.
__global__ void gelu_backward(float* d, const float* in, int count) {
    const int i = global_thread();
    if (i >= count) return;
    const float x = in[i];
    const float t = tanhf(root_2_over_pi * (x + gelu_cubic * x * x * x));
    const float slope = root_2_over_pi * (1.0F + 3.0F * gelu_cubic * x * x);
    d[i] *= 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * slope;
}

/// Corrections are 1 - beta^step; the first `decayed` parameters are decayed.
struct AdamWStep {
    float learning_rate, beta1, beta2, epsilon, weight_decay, correction1, correction2;
};

__global__ void adamw(float* parameters, float* first, float* second, const float* gradient,
                      AdamWStep step, int decayed, int count) {
    const int i = global_thread();
    if (i >= count) return;
    const float g = gradient[i];
    const float m = first[i] = step.beta1 * first[i] + (1.0F - step.beta1) * g;
    const float v = second[i] = step.beta2 * second[i] + (1.0F - step.beta2) * g * g;
    const float decay = i < decayed ? step.weight_decay * parameters[i] : 0.0F;
    parameters[i] -= step.learning_rate *
                     (m / step.correction1 / (sqrtf(v / step.correction2) + step.epsilon) + decay);
}

// ---- softmax and cross-entropy: one block per row ----

/// Leaves the row's loss, and in `logits` their gradient of the mean loss.
__global__ void cross_entropy(float* row_losses, float* logits, const int* targets, int rows,
                              int vocabulary) {
    const int row = static_cast<int>(blockIdx.x);
    const int first = static_cast<int>(threadIdx.x);
    const int step = static_cast<int>(blockDim.x);
    float* x = logits + static_cast<std::ptrdiff_t>(row) * vocabulary;
    const int target = targets[row];
    float largest = x[0];
    for (int c = first; c < vocabulary; c += step) largest = Largest{}(largest, x[c]);
    largest = block_reduce(largest, Largest{});
    float sum = 0.0F;
    for (int c = first; c < vocabulary; c += step) sum += expf(x[c] - largest);
    sum = block_reduce(sum, Sum{});
    if (first == 0) row_losses[row] = logf(sum) + largest - x[target];
    __syncthreads();
    for (int c = first; c < vocabulary; c += step) {
        const float probability = expf(x[c] - largest) / sum;
        x[c] = (probability - (c == target ? 1.0F : 0.0F)) / static_cast<float>(rows);
    }
}

}  // namespace gpt::kernels
