// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/device/nvidia/cuda_api.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// What the programs of a measuring round share. They read an NVIDIA GPU and load it, and never
/// change its settings.
namespace measuring {

using kdvfs::Duration;
using kdvfs::TimePoint;

inline void check(cudaError_t status, const char* action) {
    kdvfs::device::check<kdvfs::device::CudaApi>(status, action, "the GPU");
}

inline TimePoint now() { return TimePoint{std::chrono::steady_clock::now().time_since_epoch()}; }

/// Sorts once, answers often.
class Percentiles {
public:
    explicit Percentiles(std::vector<double> values) : values_{std::move(values)} {
        std::sort(values_.begin(), values_.end());
    }
    [[nodiscard]] double at(double share) const {
        if (values_.empty()) return 0;
        const auto last = static_cast<double>(values_.size() - 1);
        return values_[static_cast<std::size_t>(share * last + 0.5)];
    }
    [[nodiscard]] double median() const { return at(0.5); }
    [[nodiscard]] std::size_t size() const { return values_.size(); }

private:
    std::vector<double> values_;
};

/// A CSV file in the output folder; `#` lines say what it is and where it was measured.
class CsvFile {
public:
    CsvFile(const std::filesystem::path& folder, const std::string& name, const std::string& about,
            const std::string& header)
        : path_{folder / name}, out_{path_} {
        if (!out_) {
            throw kdvfs::Error{kdvfs::Errc::io,
                               {"write", path_.string(), "", "is the folder there?"}};
        }
        out_.precision(9);
        out_ << "# " << about << '\n' << header << '\n';
    }

    template <class First, class... Rest>
    void row(const First& first, const Rest&... rest) {
        out_ << first;
        ((out_ << ',' << rest), ...);
        out_ << '\n';
    }

private:
    std::filesystem::path path_;
    std::ofstream out_;
};

/// "NVIDIA H100 80GB HBM3, driver ..." for the first line of each file.
inline std::string machine(int device, const std::string& driver) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "read the device's properties");
    int runtime = 0;
    check(cudaRuntimeGetVersion(&runtime), "read CUDA's version");
    return std::string{properties.name} + "; driver " + driver + "; CUDA runtime " +
           std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10);
}

/// A stream that ends with its owner.
class Stream {
public:
    Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream"); }
    ~Stream() { (void)cudaStreamDestroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    [[nodiscard]] cudaStream_t get() const { return stream_; }
    void synchronize() const { check(cudaStreamSynchronize(stream_), "wait for a stream"); }

private:
    cudaStream_t stream_ = nullptr;
};

/// Device memory that ends with its owner.
template <class T>
class DeviceArray {
public:
    explicit DeviceArray(std::size_t count) : count_{count} {
        void* memory = nullptr;
        check(cudaMalloc(&memory, count * sizeof(T)), "allocate device memory");
        elements_ = static_cast<T*>(memory);
    }
    ~DeviceArray() { (void)cudaFree(elements_); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;
    [[nodiscard]] T* data() const { return elements_; }
    [[nodiscard]] std::size_t size() const { return count_; }
    [[nodiscard]] std::vector<T> read() const {
        std::vector<T> copy(count_);
        check(cudaMemcpy(copy.data(), elements_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              "copy from the device");
        return copy;
    }

private:
    T* elements_ = nullptr;
    std::size_t count_ = 0;
};

/// What a capture of `enqueue` into a stream makes.
class Graph {
public:
    template <class Enqueue>
    Graph(const Stream& stream, Enqueue enqueue) {
        check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
              "begin a capture");
        enqueue();
        check(cudaStreamEndCapture(stream.get(), &graph_), "end a capture");
        check(cudaGraphInstantiate(&executable_, graph_, 0), "make a graph");
    }
    ~Graph() {
        (void)cudaGraphExecDestroy(executable_);
        (void)cudaGraphDestroy(graph_);
    }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    void replay(const Stream& stream) const {
        check(cudaGraphLaunch(executable_, stream.get()), "replay a graph");
    }

private:
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace measuring
