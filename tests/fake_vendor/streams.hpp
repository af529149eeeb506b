// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <tests/fake_vendor/driver.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string_view>

namespace acme {

/// Markers in Acme's streams: a write into the cell, and the time at which it was made. Acme has no
/// captures and no per-thread streams, so a stream is its own key.
class Streams {
public:
    kdvfs::TrackKey track_key(kdvfs::StreamRef stream) { return {.stream = stream}; }
    kdvfs::TrackKey key_now(const kdvfs::TrackKey& before) { return before; }

    /// Never given back: a marker may still be on its way when this object is gone.
    kdvfs::RequestCell* make_cell() {
        static auto& cells = *new std::deque<kdvfs::RequestCell>;
        static std::mutex mutex;
        const std::lock_guard lock{mutex};
        return &cells.emplace_back();
    }

    void put_marker(kdvfs::StreamRef stream, const kdvfs::Marker& marker) {
        std::int64_t written_at = 0;
        const acme_driver::Status status = acme_driver::stream_write(
            stream.as<acme_driver::Stream>(), &marker.cell->word, marker.word.raw(), &written_at);
        if (status != acme_driver::success) {
            throw kdvfs::Error{kdvfs::Errc::io,
                               {.action = "put a marker into a stream",
                                .object = "an Acme stream",
                                .vendor_words = acme_driver::words_of(status),
                                .remedy = "see that the stream has not been destroyed"}};
        }
        if (!marker.timestamped) return;
        const std::lock_guard lock{mutex_};
        timestamps_.push_back(
            {.tag = marker.tag, .time = kdvfs::TimePoint{std::chrono::nanoseconds{written_at}}});
    }

    std::size_t drain_timestamps(std::span<kdvfs::MarkerTimestamp> out) noexcept {
        const std::lock_guard lock{mutex_};
        const std::size_t count = std::min(out.size(), timestamps_.size());
        const auto end = timestamps_.begin() + static_cast<std::ptrdiff_t>(count);
        std::copy(timestamps_.begin(), end, out.begin());
        timestamps_.erase(timestamps_.begin(), end);
        return count;
    }

    std::uint64_t lost_timestamps() noexcept { return 0; }
    void synchronize(kdvfs::StreamRef) {}
    kdvfs::TimePoint now() noexcept {
        return kdvfs::TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    }
    [[nodiscard]] std::string_view marker_mechanism() const { return "Acme stream writes"; }

private:
    std::mutex mutex_;
    std::deque<kdvfs::MarkerTimestamp> timestamps_;
};

static_assert(kdvfs::StreamRuntime<Streams>);

}  // namespace acme
