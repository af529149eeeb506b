// SPDX-License-Identifier: MIT
// CUDA's streams on a real GPU; compiled with nvcc, as a program of the measuring round
// (bench/nvidia_round). It loads the GPU and sets nothing.
#include <kdvfs/cuda_markers.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/device/nvidia/cuda_api.hpp>

#include <tests/conformance/stream_order.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace conformance {
namespace {

using kdvfs::device::Cuda;
using kdvfs::device::MarkerWay;

template <class = void>
__global__ void note(std::uint32_t* place, const std::uint32_t* level, long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
    if (level != nullptr) *place = *static_cast<const volatile std::uint32_t*>(level);
}

void check(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

template <MarkerWay Way>
class CudaStreams {
public:
    static constexpr bool timestamps_in_graphs = Way == MarkerWay::kernel;  // others are by events

    CudaStreams() {
        check(cudaMallocManaged(&seen_, places * sizeof *seen_));
        std::array<kdvfs::MarkerTimestamp, 64> left_over;
        while (runtime().drain_timestamps(left_over) > 0) {
        }
    }
    ~CudaStreams() {
        for (const auto graph : graphs_) check(cudaGraphExecDestroy(graph));
        for (const auto stream : streams_) check(cudaStreamDestroy(stream));
        check(cudaFree(seen_));
    }
    CudaStreams(const CudaStreams&) = delete;
    CudaStreams& operator=(const CudaStreams&) = delete;

    /// One for all tests: what it maps stays mapped until the process ends.
    Cuda& runtime() {
        static Cuda cuda{0, Way};
        return cuda;
    }
    kdvfs::StreamRef create_stream() {
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        streams_.push_back(stream);
        return stream;
    }
    void work(kdvfs::StreamRef stream) { launch(stream, 0, nullptr); }
    void look(kdvfs::StreamRef stream, kdvfs::RequestCell* cell, std::size_t place) {
        void* level = nullptr;
        check(cudaHostGetDevicePointer(&level, cell, 0));
        launch(stream, place, static_cast<const std::uint32_t*>(level));
    }
    kdvfs::RequestWord seen(std::size_t place) { return kdvfs::RequestWord{seen_[place]}; }
    cudaGraphExec_t capture(kdvfs::StreamRef stream, const std::function<void()>& record) {
        auto* const handle = stream.as<CUstream_st>();
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t ready = nullptr;
        check(cudaStreamBeginCapture(handle, cudaStreamCaptureModeGlobal));
        record();
        check(cudaStreamEndCapture(handle, &graph));
        check(cudaGraphInstantiate(&ready, graph, 0));
        check(cudaGraphDestroy(graph));
        graphs_.push_back(ready);
        return ready;
    }
    void replay(kdvfs::StreamRef stream, cudaGraphExec_t graph) {
        check(cudaGraphLaunch(graph, stream.as<CUstream_st>()));
    }

private:
    static constexpr std::size_t places = 1000;

    void launch(kdvfs::StreamRef stream, std::size_t place, const std::uint32_t* level) {
        note<><<<1, 1, 0, stream.as<CUstream_st>()>>>(seen_ + place, level, 5'000);
        check(cudaGetLastError());
    }

    std::uint32_t* seen_ = nullptr;
    std::vector<cudaStream_t> streams_;
    std::vector<cudaGraphExec_t> graphs_;
};

using Ways = testing::Types<CudaStreams<MarkerWay::kernel>, CudaStreams<MarkerWay::stream_write>,
                            CudaStreams<MarkerWay::memset>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, StreamOrder, Ways);

}  // namespace
}  // namespace conformance
