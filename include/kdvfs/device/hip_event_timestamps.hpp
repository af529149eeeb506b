// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/amd/hip_api.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
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
/// and not in captures, where an event has no time. Recorded and harvested on the user's own
/// threads, in relaxed capture mode: on ROCm an event query of any other kind can invalidate a
/// capture that runs on another thread. Its few events are never destroyed: HIP may be gone before
/// it is. Thread-safe.
class HipEventTimestamps {
public:
    explicit HipEventTimestamps(std::string object) : object_{std::move(object)} {}
    HipEventTimestamps(const HipEventTimestamps&) = delete;
    HipEventTimestamps& operator=(const HipEventTimestamps&) = delete;

    /// @throws Error with HIP's words.
    void record(hipStream_t stream, const MarkerTag& tag) {
        const hip::RelaxedCapture relaxed;
        const std::lock_guard lock{mutex_};
        if (base_ == nullptr) start();
        const hipEvent_t event = take_event();
        const hipError_t status = hipEventRecord(event, stream);
        if (status != hipSuccess) idle_.push_back(event);
        hip::check(status, "record an event", object_);
        pending_[tag.track].push_back({event, tag});
        harvest();
    }

    /// Moves out the timestamps of events that have passed; never blocks.
    std::size_t drain(std::span<MarkerTimestamp> out) noexcept {
        const hip::RelaxedCapture relaxed;
        const std::unique_lock lock{mutex_, std::try_to_lock};
        if (!lock) return 0;
        harvest();
        std::size_t count = 0;
        for (; count < out.size() && !ready_.empty(); ++count) {
            out[count] = ready_.front();
            ready_.pop_front();
        }
        return count;
    }

private:
    struct Pending {
        hipEvent_t event;
        MarkerTag tag;
    };

    hipEvent_t take_event() {
        hipEvent_t event = nullptr;
        if (idle_.empty()) {
            hip::check(hipEventCreate(&event), "make an event", object_);
        } else {
            event = idle_.back();
            idle_.pop_back();
        }
        return event;
    }

    /// Times are counted from an event that passed while the host was looking: tried again where
    /// the host was kept from looking for long.
    void start() {
        constexpr Duration soon_enough = std::chrono::microseconds{100};
        constexpr int most_tries = 16;
        hip::check(hipEventCreate(&base_), "make an event", object_);
        hipStream_t own = nullptr;
        hip::check(hipStreamCreateWithFlags(&own, hipStreamNonBlocking), "make a stream", object_);
        hipError_t status = hipSuccess;
        Duration width = Duration::max();
        for (int tries = 0; tries < most_tries && width > soon_enough; ++tries) {
            const TimePoint before = now();
            status = hipEventRecord(base_, own);
            if (status != hipSuccess) break;
            do {
                status = hipEventQuery(base_);
            } while (status == hipErrorNotReady);
            if (status != hipSuccess) break;
            base_time_ = now();
            width = base_time_ - before;
        }
        static_cast<void>(hipStreamDestroy(own));
        hip::check(status, "record an event", object_);
    }

    static TimePoint now() {
        return TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    }

    // A track's events pass in order, and are taken in order.
    void harvest() {
        for (auto& [track, events] : pending_) {
            for (; !events.empty(); events.pop_front()) {
                const Pending& oldest = events.front();
                float milliseconds = 0;
                if (hipEventQuery(oldest.event) != hipSuccess ||
                    hipEventElapsedTime(&milliseconds, base_, oldest.event) != hipSuccess) {
                    break;
                }
                ready_.push_back({oldest.tag, time_of(milliseconds), 0});
                move_base(oldest.event, ready_.back().time, milliseconds);
            }
        }
    }

    // The base's own time was seen a little late; no event is later than the look at it.
    TimePoint time_of(float milliseconds) {
        const Duration since{static_cast<Duration::rep>(static_cast<double>(milliseconds) * 1e6)};
        base_time_ = std::min(base_time_, now() - since);
        return base_time_ + since;
    }

    // HIP's elapsed time is a float: it is kept short, so that it stays exact to a microsecond.
    void move_base(hipEvent_t event, TimePoint time, float milliseconds) {
        idle_.push_back(event);
        if (milliseconds < 8000) return;
        std::swap(idle_.back(), base_);
        base_time_ = time;
    }

    std::string object_;
    std::mutex mutex_;
    hipEvent_t base_ = nullptr;
    TimePoint base_time_;
    std::vector<hipEvent_t> idle_;
    std::map<std::uint32_t, std::deque<Pending>> pending_;  // by track
    std::deque<MarkerTimestamp> ready_;
};

}  // namespace kdvfs::device
