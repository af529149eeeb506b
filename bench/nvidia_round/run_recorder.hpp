// SPDX-License-Identifier: MIT
#pragma once

#include "round.hpp"

#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/device/nvidia/cuda_api.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <thread>
#include <vector>

namespace measuring {

/// One stretch of stream work between two timestamps.
struct Run {
    std::uint32_t kind = 0;
    std::uint32_t number = 0;  ///< what `begin` was given
    TimePoint start;
    TimePoint end;
    std::uint64_t core_cycles = 0;  ///< 0 where not counted
};

/// Puts timestamps around stream work and gathers the stretches between them.
class RunRecorder {
public:
    RunRecorder(kdvfs::device::Cuda& cuda, const Stream& stream)
        : cuda_{cuda}, stream_{stream}, cell_{cuda.make_cell()} {
        drain();
        runs_.clear();
        open_.reset();
    }

    void begin(std::uint32_t kind, std::uint32_t number) { mark(kind, number, false); }
    void end(std::uint32_t kind, std::uint32_t number) { mark(kind, number, true); }

    /// Waits for the stream and takes in what its timestamps say.
    void finish() {
        cuda_.synchronize(stream_.get());
        drain();
    }

    [[nodiscard]] const std::vector<Run>& runs() const { return runs_; }

private:
    // A timestamp that begins while another is open ends that one: one timestamp between
    // neighbours.
    void mark(std::uint32_t kind, std::uint32_t number, bool leaving) {
        cuda_.put_marker(
            stream_.get(),
            {.cell = cell_,
             .word = {},
             .tag = {.track = 0, .scope_kind = kind, .leaving = leaving, .window = number},
             .timestamped = true});
    }

    void drain() {
        std::array<kdvfs::MarkerTimestamp, 256> timestamps;
        while (const std::size_t count = cuda_.drain_timestamps(timestamps)) {
            for (std::size_t i = 0; i < count; ++i) take(timestamps[i]);
        }
    }

    void take(const kdvfs::MarkerTimestamp& timestamp) {
        if (open_) {
            const bool counted = open_->core_cycles != 0 && timestamp.unit == open_->unit &&
                                 timestamp.core_cycles > open_->core_cycles;
            runs_.push_back({open_->tag.scope_kind, open_->tag.window, open_->time, timestamp.time,
                             counted ? timestamp.core_cycles - open_->core_cycles : 0});
        }
        open_.reset();
        if (!timestamp.tag.leaving) open_ = timestamp;
    }

    kdvfs::device::Cuda& cuda_;
    const Stream& stream_;
    kdvfs::RequestCell* cell_;
    std::optional<kdvfs::MarkerTimestamp> open_;
    std::vector<Run> runs_;
};

}  // namespace measuring
