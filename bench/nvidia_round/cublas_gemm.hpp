// SPDX-License-Identifier: MIT
#pragma once

#include "round.hpp"

#include <dlfcn.h>

#include <cuda_bf16.h>

#include <array>
#include <cstdint>

namespace measuring {

/// cuBLAS's bf16 GEMM, loaded at run time: a round runs where the library is absent, and says so.
/// Own declarations of the four functions used.
class CublasGemm {
public:
    CublasGemm() {
        for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
            library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
            if (library_ != nullptr) break;
        }
        if (library_ == nullptr) return;
        const auto create = find<int (*)(void**)>("cublasCreate_v2");
        set_stream_ = find<SetStream>("cublasSetStream_v2");
        gemm_ = find<Gemm>("cublasGemmEx");
        if (create == nullptr || set_stream_ == nullptr || gemm_ == nullptr ||
            create(&handle_) != 0) {
            handle_ = nullptr;
        }
    }
    CublasGemm(const CublasGemm&) = delete;
    CublasGemm& operator=(const CublasGemm&) = delete;

    [[nodiscard]] bool available() const { return handle_ != nullptr; }

    /// C = A * B, all n x n.
    void run(cudaStream_t stream, __nv_bfloat16* c, const __nv_bfloat16* a, const __nv_bfloat16* b,
             int n) const {
        constexpr int bf16 = 14;           // CUDA_R_16BF
        constexpr int float_compute = 68;  // CUBLAS_COMPUTE_32F
        constexpr int plain = 0;           // CUBLAS_OP_N
        constexpr int default_algorithm = -1;
        const float one = 1.0F;
        const float zero = 0.0F;
        const int status = set_stream_(handle_, stream) != 0
                               ? 1
                               : gemm_(handle_, plain, plain, n, n, n, &one, a, bf16, n, b, bf16, n,
                                       &zero, c, bf16, n, float_compute, default_algorithm);
        if (status == 0) return;
        throw kdvfs::Error{
            kdvfs::Errc::io,
            {"multiply matrices", "the GPU", "cuBLAS " + std::to_string(status), ""}};
    }

private:
    using SetStream = int (*)(void*, cudaStream_t);
    using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int,
                         const void*, int, int, const void*, void*, int, int, int, int);

    template <class Function>
    Function find(const char* symbol) const {
        return reinterpret_cast<Function>(dlsym(library_, symbol));
    }

    void* library_ = nullptr;
    void* handle_ = nullptr;
    SetStream set_stream_ = nullptr;
    Gemm gemm_ = nullptr;
};

}  // namespace measuring
