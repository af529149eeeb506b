// SPDX-License-Identifier: MIT
#include "mlp.hpp"

#include "hipblas_or_stand_in.hpp"

#include <cstddef>
#include <stdexcept>
#include <string>

namespace library_calls {
namespace {

void check(hipError_t status) {
    if (status != hipSuccess) throw std::runtime_error{hipGetErrorString(status)};
}
void check(hipblasStatus_t status) {
    if (status == HIPBLAS_STATUS_SUCCESS) return;
    throw std::runtime_error{"hipBLAS status " + std::to_string(static_cast<int>(status))};
}

/// A column-major matrix that host and device both reach.
class Matrix {
public:
    Matrix(int rows, int columns, float first)
        : rows_{rows}, host_(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns)) {
        for (std::size_t i = 0; i < host_.size(); ++i) {
            host_[i] = first * static_cast<float>(i % 7 + 1);
        }
        check(hipHostRegister(host_.data(), host_.size() * sizeof(float), hipHostRegisterMapped));
        void* device = nullptr;
        check(hipHostGetDevicePointer(&device, host_.data(), 0));
        device_ = static_cast<float*>(device);
    }
    ~Matrix() { static_cast<void>(hipHostUnregister(host_.data())); }
    Matrix(const Matrix&) = delete;
    Matrix& operator=(const Matrix&) = delete;

    [[nodiscard]] int rows() const { return rows_; }
    [[nodiscard]] float* device() const { return device_; }
    [[nodiscard]] const std::vector<float>& host() const { return host_; }

private:
    int rows_;
    std::vector<float> host_;
    float* device_ = nullptr;
};

/// hipBLAS on a stream of its own.
class Blas {
public:
    Blas() {
        check(hipStreamCreate(&stream_));
        check(hipblasCreate(&handle_));
        check(hipblasSetStream(handle_, stream_));
    }
    ~Blas() {
        static_cast<void>(hipblasDestroy(handle_));
        static_cast<void>(hipStreamDestroy(stream_));
    }
    Blas(const Blas&) = delete;
    Blas& operator=(const Blas&) = delete;

    [[nodiscard]] hipStream_t stream() const { return stream_; }

    /// out = left right
    [[nodiscard]] hipblasStatus_t multiply(const Matrix& left, const Matrix& right, Matrix& out,
                                           int columns) const {
        const float one = 1;
        const float zero = 0;
        return hipblasSgemm(handle_, HIPBLAS_OP_N, HIPBLAS_OP_N, left.rows(), columns, right.rows(),
                            &one, left.device(), left.rows(), right.device(), right.rows(), &zero,
                            out.device(), out.rows());
    }

private:
    hipStream_t stream_ = nullptr;
    hipblasHandle_t handle_ = nullptr;
};

}  // namespace

std::vector<float> run(const kdvfs::BoundGpu<Policies>& gpu, int rows, int width, int times) {
    const Matrix up{4 * width, width, 0.01F};
    const Matrix down{width, 4 * width, 0.02F};
    const Matrix in{width, rows, 1.0F};
    Matrix hidden{4 * width, rows, 0};
    Matrix out{width, rows, 0};
    const Blas blas;
    for (int i = 0; i < times; ++i) {
        check(kdvfs::launch<UpGemm>(gpu, blas.stream(),
                                    [&] { return blas.multiply(up, in, hidden, rows); }));
        check(kdvfs::launch<DownGemm>(gpu, blas.stream(),
                                      [&] { return blas.multiply(down, hidden, out, rows); }));
        gpu.next_iteration();
    }
    check(hipStreamSynchronize(blas.stream()));
    return out.host();
}

}  // namespace library_calls
