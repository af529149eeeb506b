// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/device_clock.hpp>
#include <kdvfs/detail/device/gpu_api.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

namespace kdvfs::inline v0_3::device {

/// Timestamps by timed events, where there is no marker kernel to make them: without core cycles,
/// and not in captures, where an event has no time. Recorded and harvested on the user's own
/// threads, in relaxed capture mode: on ROCm an event query of any other kind can invalidate a
/// capture that runs on another thread. Its few events are never destroyed: the runtime may be gone
/// before it is. A timestamp that cannot be taken is lost and counted, never an error: the request
/// that it belongs to is in the stream already. Thread-safe.
template <GpuApi Api>
class EventTimestamps {
public:
    using Event = typename Api::Event;
    using Status = typename Api::Status;

    EventTimestamps() = default;
    EventTimestamps(const EventTimestamps&) = delete;
    EventTimestamps& operator=(const EventTimestamps&) = delete;

    /// Whether the time between two events goes by as the host's does.
    /// @returns why not; nothing where it does
    /// @throws Error where no stream can be made
    [[nodiscard]] std::string prove() {
        const RelaxedCapture<Api> relaxed;
        const std::lock_guard lock{mutex_};
        const OwnStream<Api> own{std::string{Api::name}};
        constexpr int most_tries = 16;
        Pair pair;
        // Tried again where the host was kept from looking.
        for (int tries = 0; tries < most_tries && !pair.is_telling(); ++tries)
            pair = mark_two(own.get());
        if (pair.status == Api::success) pair.status = start();  // not in a user's first scope
        if (pair.status != Api::success) {
            Api::forget_last_error();
            return Api::words_of(pair.status);
        }
        const Duration slack = (pair.seen[1] - pair.put[0]) / 20;
        const bool fits = pair.between >= pair.put[1] - pair.seen[0] - slack &&
                          pair.between <= pair.seen[1] - pair.put[0] + slack;
        return fits ? "" : "events go by another clock";
    }

    /// @returns the status of what failed: then the timestamp is lost
    Status record(typename Api::Stream stream, const MarkerTag& tag) noexcept {
        const RelaxedCapture<Api> relaxed;
        const std::lock_guard lock{mutex_};
        const Status status = try_record(stream, tag);
        if (status == Api::success) return status;
        ++lost_;
        Api::forget_last_error();  // it is none of the user's
        return status;
    }

    /// Moves out the timestamps of events that have passed; never blocks.
    std::size_t drain(std::span<MarkerTimestamp> out) noexcept {
        const RelaxedCapture<Api> relaxed;
        const std::unique_lock lock{mutex_, std::try_to_lock};
        if (!lock) return 0;
        harvest_all();
        return take_ready(out);
    }

    /// Moves out the timestamps of events that were seen to pass; calls nothing of the runtime and
    /// never blocks.
    std::size_t collect(std::span<MarkerTimestamp> out) noexcept {
        const std::unique_lock lock{mutex_, std::try_to_lock};
        return lock ? take_ready(out) : 0;
    }

    /// How many could not be taken, or were not drained in time.
    [[nodiscard]] std::uint64_t lost() noexcept {
        const std::lock_guard lock{mutex_};
        return lost_;
    }

    /// A timestamp that the caller did without.
    void lose_one() noexcept {
        const std::lock_guard lock{mutex_};
        ++lost_;
    }

private:
    std::size_t take_ready(std::span<MarkerTimestamp> out) {
        std::size_t count = 0;
        for (; count < out.size() && !ready_.empty(); ++count) {
            out[count] = ready_.front();
            out[count].time += clock_.offset();  // one for all, so that times between are exact
            ready_.pop_front();
        }
        return count;
    }

    struct Pending {
        Event event;
        MarkerTag tag;
        Duration recorded;  ///< the host's time then
    };

    /// Two events, and between which of the host's times each one passed.
    struct Pair {
        Status status = Api::not_ready;
        std::array<TimePoint, 2> put{};
        std::array<TimePoint, 2> seen{};
        Duration between{};  ///< as the events have it

        [[nodiscard]] bool is_telling() const {
            if (status == Api::not_ready) return false;
            const Duration unsure = seen[0] - put[0] + (seen[1] - put[1]);
            return status != Api::success || unsure < (seen[1] - put[0]) / 10;
        }
    };

    Pair mark_two(typename Api::Stream stream) {
        Pair pair;
        std::array<Event, 2> events{};
        pair.status = Api::success;
        for (Event& event : events) {
            if (pair.status == Api::success) pair.status = take_event(event);
        }
        for (std::size_t i = 0; i < events.size() && pair.status == Api::success; ++i) {
            if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds{4});
            pair.put[i] = now();
            pair.status = Api::record(events[i], stream);
            if (pair.status == Api::success) pair.status = Api::synchronize(stream);
            pair.seen[i] = now();
        }
        float milliseconds = 0;
        if (pair.status == Api::success) {
            pair.status = Api::elapsed(&milliseconds, events[0], events[1]);
        }
        pair.between = nanoseconds(milliseconds);
        for (const Event event : events) {
            if (event != Event{}) idle_.push_back(event);
        }
        return pair;
    }

    static Duration nanoseconds(float milliseconds) {
        return Duration{static_cast<Duration::rep>(static_cast<double>(milliseconds) * 1e6)};
    }

    Status take_event(Event& event) {
        if (idle_.empty()) return Api::make_event(&event);
        event = idle_.front();
        idle_.pop_front();
        return Api::success;
    }

    // As many as the ring of marker kernels holds.
    static constexpr std::size_t most_ready = std::size_t{1} << 16U;

    Status try_record(typename Api::Stream stream, const MarkerTag& tag) {
        if (!started_) {
            if (const Status status = start(); status != Api::success) return status;
        }
        Event event{};
        if (const Status status = take_event(event); status != Api::success) return status;
        const Duration recorded = now().time_since_epoch();
        if (const Status status = Api::record(event, stream); status != Api::success) {
            idle_.push_back(event);
            return status;
        }
        auto& events = pending_[tag.track];
        events.push_back({event, tag, recorded});
        harvest(events);
        if (pending_.size() > most_tracks_) {  // the streams of most may be gone
            harvest_all();
            most_tracks_ = std::max(most_tracks_, 2 * pending_.size());
        }
        return Api::success;
    }

    /// Times are counted from the first event. Where that lies is known from events that pass while
    /// the host is looking: tried again where the host was kept from looking for long.
    Status start() {
        constexpr Duration sure_enough = std::chrono::microseconds{50};
        constexpr int most_tries = 16;
        typename Api::Stream own{};
        Status status = Api::make_stream(&own);
        if (status == Api::success) status = pass(own, base_);
        for (int tries = 0; tries < most_tries && status == Api::success; ++tries) {
            Event event{};
            const TimePoint before = now();
            status = pass(own, event);
            if (event != Event{}) idle_.push_back(event);
            if (status == Api::success) status = observe(event, before.time_since_epoch());
            if (clock_.uncertainty() < sure_enough) break;
        }
        if (own != nullptr) static_cast<void>(Api::destroy_stream(own));
        clock_.center();
        started_ = status == Api::success;
        return status;
    }

    /// Records an event and waits until it has passed.
    Status pass(typename Api::Stream stream, Event& event) {
        Status status = event == Event{} ? take_event(event) : Api::success;
        if (status == Api::success) status = Api::record(event, stream);
        if (status != Api::success) return status;
        while ((status = Api::query(event)) == Api::not_ready) std::this_thread::yield();
        return status;
    }

    /// Takes in when an event passed that has just been seen to have.
    Status observe(Event event, Duration recorded) {
        float milliseconds = 0;
        const Status status = Api::elapsed(&milliseconds, base_, event);
        if (status != Api::success) return status;
        since_base_ = nanoseconds(milliseconds);
        clock_.observe(ticks_of(since_base_), recorded, now().time_since_epoch());
        return status;
    }

    /// On the axis that begins at the first event.
    [[nodiscard]] std::uint64_t ticks_of(Duration since_base) const {
        return static_cast<std::uint64_t>((base_at_ + since_base).count());
    }

    static TimePoint now() {
        return TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    }

    void harvest_all() {
        for (auto& [track, events] : pending_) harvest(events);
        std::erase_if(pending_, [](const auto& track) { return track.second.empty(); });
    }

    /// A track's events pass in order, and are taken in order.
    void harvest(std::deque<Pending>& events) {
        for (; !events.empty(); events.pop_front()) {
            const Pending& oldest = events.front();
            if (Api::query(oldest.event) != Api::success) break;
            idle_.push_back(oldest.event);
            if (observe(oldest.event, oldest.recorded) != Api::success) {
                ++lost_;
                continue;
            }
            ready_.push_back({oldest.tag, TimePoint{base_at_ + since_base_}, 0});
            if (since_base_ >= std::chrono::seconds{8}) move_base();
        }
        for (; ready_.size() > most_ready; ready_.pop_front()) ++lost_;
    }

    /// To the event that was just taken in. Elapsed times are floats: they are kept short, so that
    /// they stay exact to a microsecond.
    void move_base() {
        std::swap(idle_.back(), base_);
        base_at_ += since_base_;
    }

    std::mutex mutex_;
    Event base_{};
    bool started_ = false;
    Duration base_at_{};     // since the first one
    Duration since_base_{};  // of the event that was taken in last
    DeviceClock clock_;
    std::deque<Event> idle_;
    std::map<std::uint32_t, std::deque<Pending>> pending_;  // by track
    std::size_t most_tracks_ = 64;
    std::deque<MarkerTimestamp> ready_;
    std::uint64_t lost_ = 0;
};

}  // namespace kdvfs::inline v0_3::device
