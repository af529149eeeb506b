// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/stream_track.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace kdvfs::detail {

/// The answers of `Ordering::acked`: behind each marker that changes a track's level the stream
/// waits until the controller has settled it, or until a deadline. Acknowledgements are numbered,
/// and one track at a time gets them: a wait may hold a hardware queue that other streams need. Not
/// thread-safe: the clock arbiter's lock is held.
class Acknowledgements {
public:
    /// @param word that streams can wait for, valid until the process ends
    Acknowledgements(std::uint32_t* word, Duration deadline) : word_{word}, deadline_{deadline} {}

    /// Before a track's marker is put. @returns the number to wait for behind it
    /// @throws Error (invalid_input) in a capture, (busy) while another track gets answers
    std::uint32_t expect(const StreamTrack& track, bool leaving) {
        if (track.captured()) {
            throw Error{Errc::invalid_input,
                        {.action = "wait for an answer in a capture",
                         .object = "this stream",
                         .vendor_words = "",
                         .remedy = "capture with Ordering::stream: each replay would wait"}};
        }
        if (!leaving && owner_ && *owner_ != track.id() && (asks_ || asked_ != answered_)) {
            throw Error{Errc::busy,
                        {.action = "wait for an answer",
                         .object = "this stream",
                         .vendor_words = "another stream waits for answers",
                         .remedy = "use Ordering::acked on one stream at a time"}};
        }
        owner_ = track.id();
        asks_ = track.word().request() != no_request;
        return ++asked_;
    }
    /// The marker or the wait could not be put after all.
    void give_up() { --asked_; }

    [[nodiscard]] std::uint32_t* word() const { return word_; }

    /// The track's level was seen to change: its stream waits now.
    void observed(TrackId track, TimePoint now) {
        if (owner_ == track && asked_ != answered_) waits_since_ = now;
    }

    /// Whether a stream waits now.
    [[nodiscard]] bool owed() const { return waits_since_.has_value(); }
    /// When a stream must not wait any longer.
    [[nodiscard]] std::optional<TimePoint> due() const {
        if (!waits_since_) return std::nullopt;
        return *waits_since_ + deadline_;
    }

    void answer() {
        waits_since_.reset();
        store(++answered_);
    }

    /// No stream waits from here on.
    void release() {
        waits_since_.reset();
        store(last_);
    }

private:
    static constexpr std::uint32_t last_ = 0x7fffffffU;  // also where numbers are compared by sign

    void store(std::uint32_t number) {
        std::atomic_ref{*word_}.store(number, std::memory_order_release);
    }

    std::uint32_t* word_;
    Duration deadline_;
    std::optional<TrackId> owner_;
    bool asks_ = false;  // the owner's scopes still do
    std::uint32_t asked_ = 0;
    std::uint32_t answered_ = 0;
    std::optional<TimePoint> waits_since_;
};

}  // namespace kdvfs::detail
