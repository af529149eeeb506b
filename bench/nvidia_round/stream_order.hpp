// SPDX-License-Identifier: MIT
#pragma once

#include "probe_kernels.hpp"
#include "round.hpp"

#include <kdvfs/device/cuda.hpp>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

/// That markers act in stream order: while a kernel runs, its stream's cell holds the level of the
/// marker before it, and the stamps around it are its own.
namespace measuring {

struct OrderResult {
    std::string check;
    int repetitions = 0;
    int wrong = 0;
};

/// A stream with a cell of its own, whose kernels look at the level.
class Lane {
public:
    Lane(kdvfs::device::Cuda& cuda, std::uint32_t number, std::size_t room)
        : cuda_{cuda}, number_{number}, cell_{cuda.make_cell()}, probes_{room} {
        cudaPointerAttributes attributes{};
        check(cudaPointerGetAttributes(&attributes, cell_), "find a cell's address");
        level_ = static_cast<const std::uint32_t*>(attributes.devicePointer);
    }

    void mark(std::uint32_t level, bool leaving) {
        cuda_.put_marker(stream_.get(), {.cell = cell_,
                                         .word = kdvfs::LevelWord{level},
                                         .tag = {.lane = number_, .leaving = leaving},
                                         .stamped = true});
        ++marks_;
    }
    /// Expects the level that was marked last.
    void probe_level(std::size_t place, std::uint32_t level) {
        probe<><<<1, 1, 0, stream_.get()>>>(probes_.data() + place, level_, 500);
        check(cudaGetLastError(), "launch a probe");
        expected_[place] = level;
    }
    /// How many of the probes saw another level than they should have.
    [[nodiscard]] int wrong_levels() const {
        const std::vector<Probe> probes = probes_.read();
        int wrong = 0;
        for (const auto& [place, level] : expected_) {
            if (probes[place].level_at_start != level || probes[place].level_at_end != level) {
                ++wrong;
            }
        }
        return wrong;
    }
    [[nodiscard]] std::uint32_t level() const { return cell_->load().raw(); }
    [[nodiscard]] const Stream& stream() const { return stream_; }
    [[nodiscard]] int marks() const { return marks_; }

private:
    kdvfs::device::Cuda& cuda_;
    std::uint32_t number_;
    kdvfs::LevelCell* cell_;
    const std::uint32_t* level_ = nullptr;
    DeviceArray<Probe> probes_;
    Stream stream_;
    std::map<std::size_t, std::uint32_t> expected_;
    int marks_ = 0;
};

/// Takes stamps until there are no more; checks that each lane's alternate and that its time goes
/// forward.
class StampCheck {
public:
    void drain(kdvfs::device::Cuda& cuda) {
        std::array<kdvfs::MarkerStamp, 256> stamps;
        while (const std::size_t count = cuda.drain_stamps(stamps)) {
            for (std::size_t i = 0; i < count; ++i) take(stamps[i]);
        }
    }
    void forget() { *this = {}; }
    [[nodiscard]] int seen() const { return seen_; }
    [[nodiscard]] int wrong() const { return wrong_; }

private:
    void take(const kdvfs::MarkerStamp& stamp) {
        ++seen_;
        auto [last, first] = last_.try_emplace(stamp.tag.lane, stamp);
        if (first) return;
        if (stamp.time < last->second.time) ++wrong_;
        if (stamp.tag.leaving == last->second.tag.leaving) ++wrong_;
        last->second = stamp;
    }

    std::map<std::uint32_t, kdvfs::MarkerStamp> last_;
    int seen_ = 0;
    int wrong_ = 0;
};

/// One stream; the levels never come twice.
inline OrderResult one_stream(kdvfs::device::Cuda& cuda, int repetitions) {
    OrderResult result{"one stream", repetitions};
    StampCheck stamps;
    stamps.drain(cuda);
    stamps.forget();
    Lane lane{cuda, 1, static_cast<std::size_t>(repetitions)};
    for (int i = 0; i < repetitions; ++i) {
        const auto level = static_cast<std::uint32_t>(i + 1);
        lane.mark(level, false);
        lane.probe_level(static_cast<std::size_t>(i), level);
        lane.mark(0, true);
        if (i % 64 == 0) stamps.drain(cuda);
    }
    cuda.synchronize(lane.stream().get());
    stamps.drain(cuda);
    result.wrong = lane.wrong_levels() + stamps.wrong() + (lane.level() == 0 ? 0 : 1) +
                   std::abs(stamps.seen() - lane.marks());
    return result;
}

/// Several streams at once, in random order.
inline OrderResult many_streams(kdvfs::device::Cuda& cuda, int repetitions) {
    OrderResult result{"8 streams at once", repetitions};
    StampCheck stamps;
    stamps.drain(cuda);
    stamps.forget();
    std::vector<std::unique_ptr<Lane>> lanes;
    for (std::uint32_t i = 0; i < 8; ++i) {
        lanes.push_back(
            std::make_unique<Lane>(cuda, 10 + i, static_cast<std::size_t>(repetitions)));
    }
    std::mt19937 random{1};
    for (int i = 0; i < repetitions; ++i) {
        Lane& lane = *lanes[random() % lanes.size()];
        const auto level = static_cast<std::uint32_t>(random());
        lane.mark(level, false);
        lane.probe_level(static_cast<std::size_t>(i), level);
        lane.mark(0, true);
        if (i % 64 == 0) stamps.drain(cuda);
    }
    int marks = 0;
    for (const auto& lane : lanes) {
        cuda.synchronize(lane->stream().get());
        result.wrong += lane->wrong_levels() + (lane->level() == 0 ? 0 : 1);
        marks += lane->marks();
    }
    stamps.drain(cuda);
    result.wrong += stamps.wrong() + std::abs(stamps.seen() - marks);
    return result;
}

/// A graph with two nested levels, replayed; between the replays the same stream works live.
inline OrderResult graph_replays(kdvfs::device::Cuda& cuda, int repetitions,
                                 bool stamps_in_graphs) {
    OrderResult result{"graph, replayed", repetitions};
    StampCheck stamps;
    stamps.drain(cuda);
    stamps.forget();
    Lane lane{cuda, 30, 4};
    const Graph graph{lane.stream(), [&] {
                          lane.mark(7, false);
                          lane.probe_level(0, 7);
                          lane.mark(9, true);
                          lane.probe_level(1, 9);
                          lane.mark(7, false);
                          lane.probe_level(2, 7);
                          lane.mark(0, true);
                      }};
    for (int i = 0; i < repetitions; ++i) {
        graph.replay(lane.stream());
        if (i % 16 != 0) continue;
        cuda.synchronize(lane.stream().get());
        result.wrong += lane.wrong_levels() + (lane.level() == 0 ? 0 : 1);
        stamps.drain(cuda);
    }
    cuda.synchronize(lane.stream().get());
    stamps.drain(cuda);
    result.wrong += lane.wrong_levels() + stamps.wrong();
    if (stamps_in_graphs) result.wrong += std::abs(stamps.seen() - 4 * repetitions);
    return result;
}

}  // namespace measuring
