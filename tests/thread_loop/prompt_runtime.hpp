// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

/// Doubles for the threads: real time, real concurrency, no GPU.
namespace prompt {

inline kdvfs::TimePoint steady_now() {
    return kdvfs::TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
}

/// A runtime whose streams do everything at once: a marker is executed as it is put, unless the
/// streams are held. Thread-safe.
class Runtime {
public:
    kdvfs::TrackKey track_key(kdvfs::StreamRef stream) { return {.stream = stream}; }
    kdvfs::TrackKey key_now(const kdvfs::TrackKey& before) { return before; }

    kdvfs::RequestCell* make_cell() {
        const std::lock_guard lock{mutex_};
        return &cells_.emplace_back();
    }

    void put_marker(kdvfs::StreamRef, const kdvfs::Marker& marker) {
        const std::lock_guard lock{mutex_};
        if (held_) {
            waiting_.push_back(marker);
        } else {
            execute(marker);
        }
    }

    std::size_t drain_timestamps(std::span<kdvfs::MarkerTimestamp> out) noexcept {
        const std::lock_guard lock{mutex_};
        std::size_t count = 0;
        for (; count < out.size() && !timestamps_.empty(); ++count) {
            out[count] = timestamps_.front();
            timestamps_.pop_front();
        }
        return count;
    }
    std::uint64_t lost_timestamps() noexcept { return 0; }
    void synchronize(kdvfs::StreamRef) {}
    kdvfs::TimePoint now() noexcept { return steady_now(); }
    std::string_view marker_mechanism() { return "prompt double"; }

    /// Streams stand still, or go on.
    void hold(bool held) {
        const std::lock_guard lock{mutex_};
        held_ = held;
        if (held_) return;
        for (const kdvfs::Marker& marker : std::exchange(waiting_, {})) execute(marker);
    }

private:
    void execute(const kdvfs::Marker& marker) {
        marker.cell->store(marker.word);
        if (marker.timestamped) timestamps_.push_back({marker.tag, steady_now(), 0});
    }

    std::mutex mutex_;
    std::deque<kdvfs::RequestCell> cells_;
    std::deque<kdvfs::MarkerTimestamp> timestamps_;
    std::vector<kdvfs::Marker> waiting_;
    bool held_ = false;
};

/// A board that keeps what it is told, notes which thread told it, and can be made to block.
class Board {
public:
    const kdvfs::DeviceInfo& info() const { return info_; }
    const kdvfs::SupportedClocks& supported_clocks() const { return clocks_; }

    kdvfs::ClockState read_clock_state() {
        const std::unique_lock lock = enter();
        return state_;
    }
    void apply(kdvfs::ClockPoint point) {
        const std::unique_lock lock = enter();
        state_.cap = point;
        state_.mode = "manual";
        ++writes_;
        reads_before_last_write_ = reads_;
    }
    void restore(const kdvfs::ClockState& state) {
        const std::unique_lock lock = enter();
        state_ = state;
        ++writes_;
    }
    kdvfs::EnergyReading read_energy() noexcept {
        const std::unique_lock lock = enter();
        ++reads_;
        if (read_time_ > kdvfs::Duration::zero()) std::this_thread::sleep_for(read_time_);
        return {{100 * std::chrono::duration<double>(steady_now().time_since_epoch()).count()},
                steady_now(),
                kdvfs::ReadingStatus::ok};
    }
    kdvfs::Duration counter_period() const { return std::chrono::milliseconds{1}; }

    kdvfs::ClockState state() {
        const std::lock_guard lock{mutex_};
        return state_;
    }
    int writes() {
        const std::lock_guard lock{mutex_};
        return writes_;
    }
    int reads() {
        const std::lock_guard lock{mutex_};
        return reads_;
    }
    int reads_before_last_write() {
        const std::lock_guard lock{mutex_};
        return reads_before_last_write_;
    }
    /// How long one read of the counter lasts.
    void take_for_a_read(kdvfs::Duration time) {
        const std::lock_guard lock{mutex_};
        read_time_ = time;
    }
    /// Two calls were inside at the same time, once at least.
    bool overlapped() const { return overlapped_; }
    /// Calls from now on do not come back until they are let go.
    void block(bool blocked) {
        const std::lock_guard lock{mutex_};
        blocked_ = blocked;
        unblocked_.notify_all();
    }
    void set_as_other(kdvfs::ClockState state) {
        const std::lock_guard lock{mutex_};
        state_ = std::move(state);
    }

private:
    std::unique_lock<std::mutex> enter() {
        if (inside_.fetch_add(1) != 0) overlapped_ = true;
        std::unique_lock lock{mutex_};
        unblocked_.wait(lock, [this] { return !blocked_; });
        inside_.fetch_sub(1);
        return lock;
    }

    kdvfs::DeviceInfo info_{
        .name = "prompt board", .address = "0000:00:00.0", .architecture = "gfx90a"};
    kdvfs::SupportedClocks clocks_{.core = {.listed = {{500}, {1700}}, .continuous = true}};
    std::mutex mutex_;
    std::condition_variable unblocked_;
    kdvfs::ClockState state_;
    std::atomic<int> inside_{0};
    std::atomic<bool> overlapped_{false};
    int writes_ = 0;
    int reads_ = 0;
    int reads_before_last_write_ = 0;
    kdvfs::Duration read_time_{0};
    bool blocked_ = false;
};

static_assert(kdvfs::StreamRuntime<Runtime>);
static_assert(kdvfs::ClockControl<Board>);
static_assert(kdvfs::EnergySource<Board>);

}  // namespace prompt
