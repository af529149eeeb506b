// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/hip_markers.hpp>

#include <hip/hip_runtime_api.h>

// The calls of hipBLAS that this example makes: hipBLAS's own where it is installed, else a few
// functions of the same shape, which compute in a callback of the stream, over memory that the host
// can reach. Callbacks are not captured: graphs need the real library.
#if __has_include(<hipblas/hipblas.h>) && !defined(KDVFS_NO_HIPBLAS)

#include <hipblas/hipblas.h>

#else

#include <array>
#include <memory>

enum hipblasStatus_t { HIPBLAS_STATUS_SUCCESS = 0, HIPBLAS_STATUS_INTERNAL_ERROR = 3 };
enum hipblasOperation_t { HIPBLAS_OP_N = 111 };
struct hipblasStandIn {
    hipStream_t stream = nullptr;
};
using hipblasHandle_t = hipblasStandIn*;

inline hipblasStatus_t hipblasCreate(hipblasHandle_t* handle) {
    *handle = std::make_unique<hipblasStandIn>().release();
    return HIPBLAS_STATUS_SUCCESS;
}

inline hipblasStatus_t hipblasDestroy(hipblasHandle_t handle) {
    const std::unique_ptr<hipblasStandIn> owned{handle};
    return HIPBLAS_STATUS_SUCCESS;
}

inline hipblasStatus_t hipblasSetStream(hipblasHandle_t handle, hipStream_t stream) {
    handle->stream = stream;
    return HIPBLAS_STATUS_SUCCESS;
}

/// C = alpha A B + beta C, column-major, without transposes.
inline hipblasStatus_t hipblasSgemm(hipblasHandle_t handle, hipblasOperation_t, hipblasOperation_t,
                                    int m, int n, int k, const float* alpha, const float* a,
                                    int lda, const float* b, int ldb, const float* beta, float* c,
                                    int ldc) {
    struct Call {
        int m, n, k, lda, ldb, ldc;
        float alpha, beta;
        const float* a;
        const float* b;
        float* c;

        void operator()() const {
            for (int column = 0; column < n; ++column) {
                for (int row = 0; row < m; ++row) {
                    float sum = 0;
                    for (int i = 0; i < k; ++i) sum += a[row + i * lda] * b[i + column * ldb];
                    float& out = c[row + column * ldc];
                    out = alpha * sum + (beta == 0 ? 0 : beta * out);
                }
            }
        }
    };
    auto call = std::make_unique<Call>(Call{m, n, k, lda, ldb, ldc, *alpha, *beta, a, b, c});
    const auto compute = [](hipStream_t, hipError_t, void* data) {
        const std::unique_ptr<Call> owned{static_cast<Call*>(data)};
        (*owned)();
    };
    if (hipStreamAddCallback(handle->stream, compute, call.get(), 0) != hipSuccess) {
        return HIPBLAS_STATUS_INTERNAL_ERROR;
    }
    static_cast<void>(call.release());  // the callback's own now
    return HIPBLAS_STATUS_SUCCESS;
}

#endif
