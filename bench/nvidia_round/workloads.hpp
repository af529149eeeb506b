// SPDX-License-Identifier: MIT
#pragma once

#include "cublas_gemm.hpp"
#include "round.hpp"

#include <gpt_train/attention_kernels.hpp>
#include <gpt_train/gemm_kernel.hpp>
#include <gpt_train/kernels.hpp>

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace measuring {

/// Values without a pattern, since zeros draw less power: about half of them negative.
template <class T>
__global__ void fill_at_random(T* out, std::size_t count) {
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += step) {
        std::uint64_t bits = (i + 1) * 0x9e3779b97f4a7c15U;
        bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
        out[i] = static_cast<T>(static_cast<float>(bits >> 40U) * 0x1p-23F - 1.0F);
    }
}

/// y = A x, a warp per row; columns a multiple of 64.
template <class = void>
__global__ void gemv(float* y, const __nv_bfloat162* a, const __nv_bfloat162* x, int rows,
                     int pairs) {
    const int row = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32);
    if (row >= rows) return;
    float sum = 0.0F;
    for (int i = static_cast<int>(threadIdx.x % 32); i < pairs; i += 32) {
        const float2 left = __bfloat1622float2(a[static_cast<std::ptrdiff_t>(row) * pairs + i]);
        const float2 right = __bfloat1622float2(x[i]);
        sum += left.x * right.x + left.y * right.y;
    }
    for (int tracks = 16; tracks > 0; tracks /= 2) sum += __shfl_down_sync(~0U, sum, tracks);
    if (threadIdx.x % 32 == 0) y[row] = sum;
}

/// A partial sum per block.
template <class = void>
__global__ void reduce(float* out, const float4* in, std::size_t count) {
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    float sum = 0.0F;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += step) {
        const float4 four = in[i];
        sum += four.x + four.y + four.z + four.w;
    }
    const float total = gpt::kernels::block_reduce(sum, gpt::kernels::Sum{});
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}

struct Workload {
    std::string name;
    std::function<void(cudaStream_t)> launch;
    double microseconds = 0;  ///< of one launch, measured
};

/// Eight kernels of very different power, on buffers of their own.
class Workloads {
public:
    Workloads() {
        constexpr unsigned blocks = 1024;
        fill_at_random<<<blocks, 256>>>(big_a_.data(), big_a_.size());
        fill_at_random<<<blocks, 256>>>(big_b_.data(), big_b_.size());
        fill_at_random<<<blocks, 256>>>(matrix_a_.data(), matrix_a_.size());
        fill_at_random<<<blocks, 256>>>(matrix_b_.data(), matrix_b_.size());
        check(cudaDeviceSynchronize(), "fill the inputs");
        add_gemms();
        add_streaming();
        add_rest();
        for (Workload& workload : list_) workload.microseconds = time_of(workload);
    }
    Workloads(const Workloads&) = delete;
    Workloads& operator=(const Workloads&) = delete;

    [[nodiscard]] const std::vector<Workload>& list() const { return list_; }
    [[nodiscard]] const Workload& named(const std::string& name) const {
        for (const Workload& workload : list_) {
            if (workload.name == name) return workload;
        }
        throw kdvfs::Error{kdvfs::Errc::invalid_input, {"find workload", name, "", ""}};
    }
    [[nodiscard]] bool has_cublas() const { return blas_.available(); }

private:
    static constexpr std::size_t big = std::size_t{1} << 28U;  // floats: 1 GiB
    static constexpr int large = 8192;
    static constexpr int small = 2048;

    void add_gemm(const std::string& name, int n) {
        if (blas_.available()) {
            list_.push_back({name, [this, n](cudaStream_t stream) {
                                 blas_.run(stream, matrix_c_.data(), matrix_a_.data(),
                                           matrix_b_.data(), n);
                             }});
            return;
        }
        list_.push_back(
            {name, [this, n](cudaStream_t stream) {
                 const dim3 grid{static_cast<unsigned>(n / gpt::kernels::gemm_tile),
                                 static_cast<unsigned>(n / gpt::kernels::gemm_tile)};
                 gpt::kernels::gemm<false, false><<<grid, gpt::kernels::gemm_threads, 0, stream>>>(
                     big_a_.data(), big_b_.data(), big_b_.data() + n * n, nullptr, n, n, n);
             }});
    }

    void add_gemms() {
        add_gemm("gemm_8192", large);
        add_gemm("gemm_2048", small);
        list_.push_back(
            {"gemv", [this](cudaStream_t stream) {
                 gemv<><<<large * 32 / 256, 256, 0, stream>>>(
                     big_b_.data(), reinterpret_cast<const __nv_bfloat162*>(matrix_a_.data()),
                     reinterpret_cast<const __nv_bfloat162*>(matrix_b_.data()), large, large / 2);
             }});
    }

    void add_streaming() {
        list_.push_back({"copy", [this](cudaStream_t stream) {
                             check(
                                 cudaMemcpyAsync(big_b_.data(), big_a_.data(), big * sizeof(float),
                                                 cudaMemcpyDeviceToDevice, stream),
                                 "copy");
                         }});
        list_.push_back({"gelu", [this](cudaStream_t stream) {
                             gpt::kernels::gelu<<<big / 256, 256, 0, stream>>>(
                                 big_b_.data(), big_a_.data(), static_cast<int>(big));
                         }});
        list_.push_back({"layer_norm", [this](cudaStream_t stream) {
                             gpt::kernels::norm<<<16384, 256, 0, stream>>>(
                                 big_b_.data(), means_.data(), means_.data() + 16384, big_a_.data(),
                                 big_a_.data(), big_a_.data() + large, large);
                         }});
    }

    void add_rest() {
        list_.push_back({"attention", [this](cudaStream_t stream) {
                             const gpt::kernels::AttentionPlace place{1024, 16, 1024};
                             gpt::kernels::attention<<<dim3{1024, 4 * 16}, 128, 0, stream>>>(
                                 big_b_.data(), big_b_.data() + big / 2, big_a_.data(), place);
                         }});
        list_.push_back({"reduction", [this](cudaStream_t stream) {
                             reduce<><<<2048, 256, 0, stream>>>(
                                 means_.data(), reinterpret_cast<const float4*>(big_a_.data()),
                                 big / 4);
                         }});
    }

    static double time_of(const Workload& workload) {
        Stream stream;
        for (int i = 0; i < 3; ++i) workload.launch(stream.get());
        stream.synchronize();
        check(cudaGetLastError(), "launch a workload");
        int launches = 0;
        const TimePoint start = now();
        while (now() - start < std::chrono::milliseconds{100}) {
            for (int i = 0; i < 10; ++i) workload.launch(stream.get());
            launches += 10;
            stream.synchronize();
        }
        const Duration took = now() - start;
        return static_cast<double>(took.count()) * 1e-3 / launches;
    }

    DeviceArray<float> big_a_{big}, big_b_{big};
    DeviceArray<__nv_bfloat16> matrix_a_{std::size_t{large} * large},
        matrix_b_{std::size_t{large} * large}, matrix_c_{std::size_t{large} * large};
    DeviceArray<float> means_{2 * 16384};
    CublasGemm blas_;
    std::vector<Workload> list_;
};

}  // namespace measuring
