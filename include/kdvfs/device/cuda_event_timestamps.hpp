// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/nvidia/cuda_api.hpp>
#include <kdvfs/units.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::device {

/// Timestamps by timed events, where there is no marker kernel to make them: without core cycles,
/// and not in captures, where an event has no time. Recorded and harvested on the user's threads.
/// Thread-safe.
class CudaEventTimestamps {
public:
    explicit CudaEventTimestamps(std::string object) : object_{std::move(object)} {}
    CudaEventTimestamps(const CudaEventTimestamps&) = delete;
    CudaEventTimestamps& operator=(const CudaEventTimestamps&) = delete;

    /// @throws Error with CUDA's words.
    void record(cudaStream_t stream, const MarkerTag& tag) {
        const cuda::RelaxedCapture relaxed;
        const std::lock_guard lock{mutex_};
        if (base_ == nullptr) start();
        cudaEvent_t event = nullptr;
        if (idle_.empty()) {
            cuda::check(cudaEventCreate(&event), "make an event", object_);
        } else {
            event = idle_.back();
            idle_.pop_back();
        }
        const cudaError_t status = cudaEventRecord(event, stream);
        if (status != cudaSuccess) idle_.push_back(event);
        cuda::check(status, "record an event", object_);
        pending_[tag.track].push_back({event, tag});
        harvest();
    }

    /// Moves out what has been harvested; never blocks.
    std::size_t drain(std::span<MarkerTimestamp> out) noexcept {
        const std::unique_lock lock{mutex_, std::try_to_lock};
        if (!lock) return 0;
        std::size_t count = 0;
        for (; count < out.size() && !ready_.empty(); ++count) {
            out[count] = ready_.front();
            ready_.pop_front();
        }
        return count;
    }

    /// Takes in the events that have passed; the user's thread.
    void harvest_now() {
        const cuda::RelaxedCapture relaxed;
        const std::lock_guard lock{mutex_};
        harvest();
    }

private:
    struct Pending {
        cudaEvent_t event;
        MarkerTag tag;
    };

    /// Times are counted from an event whose own time the host has seen.
    void start() {
        cuda::check(cudaEventCreate(&base_), "make an event", object_);
        cudaStream_t own = nullptr;
        cuda::check(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "make a stream",
                    object_);
        cudaError_t status = cudaEventRecord(base_, own);
        if (status == cudaSuccess) status = cudaEventSynchronize(base_);
        base_time_ = TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
        (void)cudaStreamDestroy(own);
        cuda::check(status, "record an event", object_);
    }

    // A track's events pass in order, and are taken in order.
    void harvest() {
        for (auto& [track, events] : pending_) {
            for (; !events.empty(); events.pop_front()) {
                const Pending& oldest = events.front();
                float milliseconds = 0;
                if (cudaEventQuery(oldest.event) != cudaSuccess ||
                    cudaEventElapsedTime(&milliseconds, base_, oldest.event) != cudaSuccess) {
                    break;
                }
                const TimePoint time =
                    base_time_ +
                    Duration{static_cast<Duration::rep>(static_cast<double>(milliseconds) * 1e6)};
                ready_.push_back({oldest.tag, time, 0});
                move_base(oldest.event, time, milliseconds);
            }
        }
    }

    // CUDA's elapsed time is a float: it is kept short, so that it stays exact to a microsecond.
    void move_base(cudaEvent_t event, TimePoint time, float milliseconds) {
        idle_.push_back(event);
        if (milliseconds < 8000) return;
        std::swap(idle_.back(), base_);
        base_time_ = time;
    }

    std::string object_;
    std::mutex mutex_;
    cudaEvent_t base_ = nullptr;
    TimePoint base_time_;
    std::vector<cudaEvent_t> idle_;
    std::map<std::uint32_t, std::deque<Pending>> pending_;  ///< by track
    std::deque<MarkerTimestamp> ready_;
};

}  // namespace kdvfs::device
