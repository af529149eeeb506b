// SPDX-License-Identifier: MIT
#pragma once

#include "probe_kernels.hpp"
#include "round.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// What something between two kernels adds to a stream's time, by events around batches of two
/// lengths: the device's timer moves in steps too coarse to see it between two single kernels, and
/// what a batch or a graph costs once cancels out.
namespace measuring {

/// What may stand between two kernels.
struct Between {
    std::string name;
    bool in_graphs;
    std::function<void(cudaStream_t)> put;
    /// Opens what surrounds a whole batch; dropped at its end. May be empty.
    std::function<std::shared_ptr<void>(cudaStream_t)> surround{};
};

/// What runs on both sides of it.
struct Neighbour {
    std::string name;
    std::function<void(cudaStream_t)> launch;
};

/// y = 1.5 x: reads and writes memory all over the GPU, as a training step's kernels do.
template <class = void>
__global__ void scale(float* out, const float* in) {
    const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    out[i] = 1.5F * in[i];
}

/// One thread, busy for so many cycles: the wall clock's steps would round its time.
template <class = void>
__global__ void spin(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
}

/// What is added per place, in us: over batches, each against the bare one of its own round.
struct AddedTime {
    std::string place;
    std::string neighbour;
    std::string between;
    Percentiles microseconds;
};

class MarkerCost {
public:
    explicit MarkerCost(std::vector<Between> kinds) : kinds_{std::move(kinds)} {
        check(cudaEventCreate(&begin_), "make an event");
        check(cudaEventCreate(&end_), "make an event");
    }
    ~MarkerCost() {
        (void)cudaEventDestroy(begin_);
        (void)cudaEventDestroy(end_);
    }
    MarkerCost(const MarkerCost&) = delete;
    MarkerCost& operator=(const MarkerCost&) = delete;

    /// All kinds between all neighbours; the first kind must be nothing.
    std::vector<AddedTime> measure(int rounds, bool graphs) {
        std::vector<AddedTime> added;
        for (const Neighbour& neighbour : neighbours()) {
            for (AddedTime& one : measure(neighbour, rounds, graphs)) {
                added.push_back(std::move(one));
            }
        }
        return added;
    }

private:
    static constexpr int short_batch = 64;
    static constexpr int long_batch = 192;
    static constexpr std::size_t floats = std::size_t{1} << 24U;

    std::vector<Neighbour> neighbours() {
        return {{"one thread", [](cudaStream_t stream) { spin<><<<1, 1, 0, stream>>>(20'000); }},
                {"fills the GPU", [this](cudaStream_t stream) {
                     scale<><<<floats / 256, 256, 0, stream>>>(out_.data(), in_.data());
                 }}};
    }

    /// Graphs of a short and a long batch; null where it is not for graphs.
    struct Graphs {
        std::unique_ptr<Graph> brief;
        std::unique_ptr<Graph> extended;
    };

    static void put(const Neighbour& neighbour, const Between& between, int kernels,
                    cudaStream_t stream) {
        for (int i = 0; i < kernels; ++i) {
            neighbour.launch(stream);
            if (between.put) between.put(stream);
        }
        check(cudaGetLastError(), "launch a batch");
    }

    /// Milliseconds of a batch.
    double time(const Neighbour& neighbour, const Between& between, int kernels,
                const Graph* graph) {
        std::shared_ptr<void> surrounding;
        if (graph == nullptr && between.surround) surrounding = between.surround(stream_.get());
        spin<><<<1, 1, 0, stream_.get()>>>(6'000'000);  // the host runs ahead
        check(cudaEventRecord(begin_, stream_.get()), "record an event");
        if (graph != nullptr) {
            graph->replay(stream_);
        } else {
            put(neighbour, between, kernels, stream_.get());
        }
        check(cudaEventRecord(end_, stream_.get()), "record an event");
        surrounding.reset();
        stream_.synchronize();
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin_, end_), "read events");
        return static_cast<double>(milliseconds);
    }

    /// Microseconds per kernel.
    double time(const Neighbour& neighbour, const Between& between, const Graphs& graphs) {
        const double brief = time(neighbour, between, short_batch, graphs.brief.get());
        const double extended = time(neighbour, between, long_batch, graphs.extended.get());
        return 1e3 * (extended - brief) / (long_batch - short_batch);
    }

    std::unique_ptr<Graph> capture(const Neighbour& neighbour, const Between& between,
                                   int kernels) {
        return std::make_unique<Graph>(stream_, [&] {
            std::shared_ptr<void> surrounding;
            if (between.surround) surrounding = between.surround(stream_.get());
            put(neighbour, between, kernels, stream_.get());
        });
    }

    std::vector<AddedTime> measure(const Neighbour& neighbour, int rounds, bool graphs) {
        std::vector<Graphs> made(kinds_.size());
        for (std::size_t k = 0; graphs && k < kinds_.size(); ++k) {
            if (!kinds_[k].in_graphs) continue;
            made[k] = {capture(neighbour, kinds_[k], short_batch),
                       capture(neighbour, kinds_[k], long_batch)};
        }
        std::vector<std::vector<double>> added(kinds_.size());
        for (int round = -2; round < rounds; ++round) {  // two to warm up
            double bare = 0;
            for (std::size_t k = 0; k < kinds_.size(); ++k) {
                if (graphs && !made[k].brief) continue;
                const double took = time(neighbour, kinds_[k], made[k]);
                if (k == 0) bare = took;
                if (round >= 0) added[k].push_back(k == 0 ? took : took - bare);
            }
            // The bare batch once more: its scatter is what cannot be told from nothing.
            const double again = time(neighbour, kinds_[0], made[0]);
            if (round >= 0) scatter_.push_back(again - bare);
        }
        std::vector<AddedTime> result;
        for (std::size_t k = 0; k < kinds_.size(); ++k) {
            if (added[k].empty()) continue;
            result.push_back({graphs ? "graph" : "stream", neighbour.name, kinds_[k].name,
                              Percentiles{std::move(added[k])}});
        }
        result.push_back({graphs ? "graph" : "stream", neighbour.name, "nothing, once more",
                          Percentiles{std::move(scatter_)}});
        scatter_.clear();
        return result;
    }

    std::vector<Between> kinds_;
    std::vector<double> scatter_;
    DeviceArray<float> in_{floats}, out_{floats};
    Stream stream_;
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
};

inline void report_added(const std::vector<AddedTime>& added, CsvFile& csv,
                         const std::string& about_place = "") {
    for (const AddedTime& one : added) {
        const Percentiles& p = one.microseconds;
        const bool bare = one.between == "nothing";
        std::printf("  %-7s %-14s %-30s %s%8.3f us (p10 %.3f, p90 %.3f)\n", one.place.c_str(),
                    one.neighbour.c_str(), one.between.c_str(), bare ? "takes" : "adds ",
                    p.median(), p.at(0.1), p.at(0.9));
        csv.row(one.place + about_place, one.neighbour, one.between, p.size(), p.median(),
                p.at(0.1), p.at(0.9));
    }
}

}  // namespace measuring
