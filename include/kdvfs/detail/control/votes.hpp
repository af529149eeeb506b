// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace kdvfs::inline v0_3::detail {

/// A clock that is requested now, and another one some time after the stream has got there.
struct TimedRequest {
    ClockPoint now{};
    Duration after{0};  ///< 0: `now` stays
    ClockPoint then{};

    friend bool operator==(const TimedRequest&, const TimedRequest&) = default;
    friend auto operator<=>(const TimedRequest&, const TimedRequest&) = default;
};

/// Numbers the clock points that scopes ask for, so that a request word can carry one. Only
/// grows; indices stay valid for the life of the GPU. Thread-safe.
class RequestTable {
public:
    /// @returns the index of a clock point, a new one where it has none yet
    /// @throws Error (invalid_input) once 4095 different points have been asked for
    RequestIndex index_of(ClockPoint point) { return index_of_timed({point, {}, {}}); }
    /// The same for a request that changes with time.
    RequestIndex index_of_timed(const TimedRequest& request) {
        const std::lock_guard lock{mutex_};
        if (const auto known = indices_.find(request); known != indices_.end())
            return known->second;
        const std::uint32_t size = size_.load(std::memory_order_relaxed);
        if (size > RequestWord::most_requests) {
            throw Error{Errc::invalid_input,
                        {.action = "ask for " + to_string(request.now),
                         .object = "this GPU",
                         .vendor_words = "",
                         .remedy = "one process may ask for 4095 different clock points: plan with "
                                   "a coarser clock list"}};
        }
        const RequestIndex index{size};
        auto& chunk = chunks_[size / per_chunk];
        if (!chunk) chunk = std::make_unique<Chunk>();
        (*chunk)[size % per_chunk] = request;
        indices_.emplace(request, index);
        size_.store(size + 1, std::memory_order_release);
        return index;
    }

    /// Takes no lock: launches and the listener ask. @returns auto for what `index_of` never gave
    [[nodiscard]] ClockPoint point(RequestIndex index) const { return timed(index).now; }
    /// The whole request. Takes no lock.
    [[nodiscard]] TimedRequest timed(RequestIndex index) const {
        const bool given = index.value < size_.load(std::memory_order_acquire);
        if (!given || index == no_request) return {};
        return (*chunks_[index.value / per_chunk])[index.value % per_chunk];
    }

private:
    static constexpr std::size_t per_chunk = 64;  // most programs have no second one
    using Chunk = std::array<TimedRequest, per_chunk>;

    std::mutex mutex_;
    // Index 0 is "no request". Each chunk is written once, before `size_` says that it is there.
    std::array<std::unique_ptr<Chunk>, (RequestWord::most_requests + 1) / per_chunk> chunks_;
    std::atomic<std::uint32_t> size_{1};
    std::map<TimedRequest, RequestIndex> indices_;
};

/// Combines what all tracks request of a device: in each domain the highest request wins, `auto`
/// being highest of all. A protected track is a lower bound of what others request; while nobody
/// else requests anything it has no effect, so that protecting never slows a device down. Not
/// thread-safe.
class TrackVotes {
public:
    explicit TrackVotes(const RequestTable& requests) : requests_{requests} {}

    /// What a look at a track's cell tells. Tickets are consecutive, so that scopes which came and
    /// went between two looks are counted, too.
    struct Look {
        bool entered = false;      ///< the word is that of a scope not seen before
        std::uint32_t missed = 0;  ///< scopes before it that were entered and left unseen
    };

    /// A track asks for this from here on.
    Look observe(TrackId track, RequestWord word, TimePoint now) {
        Vote& vote = votes_[track];
        if (vote.word != word) vote.since = now;
        vote.word = word;
        vote.request = word.request();
        const bool is_first = !std::exchange(vote.seen, true);
        // What a graph writes where its plan begins has no ticket.
        if (word.raw() == 0) return {};
        const bool entered = word.request() != no_request;
        std::uint32_t ahead = tickets_ahead(word.ticket(), vote.last_ticket);
        if (is_first && ahead == 0 && entered) ahead = 1;  // seen from afar
        if (ahead == 0) return {};
        vote.last_ticket = word.ticket();
        return {.entered = entered, .missed = ahead - (entered ? 1 : 0)};
    }

    /// Sets a lower bound for what other tracks request, from now on.
    void protect(TrackId track, ClockPoint at_least) { votes_[track].at_least = at_least; }

    /// Sets a request that holds without scopes until it is withdrawn.
    void request(TrackId track, ClockPoint point) { votes_[track].standing = point; }

    /// A track that will not be observed again.
    void withdraw(TrackId track) { votes_.erase(track); }

    /// When a request changes by itself next; nothing where none does.
    [[nodiscard]] std::optional<TimePoint> next_change(TimePoint now) const {
        std::optional<TimePoint> next;
        for (const auto& [track, vote] : votes_) {
            const Duration after = requests_.timed(vote.request).after;
            if (after == Duration::zero() || vote.since + after <= now) continue;
            next = std::min(next.value_or(TimePoint::max()), vote.since + after);
        }
        return next;
    }

    /// @returns nothing where no track requests a clock
    [[nodiscard]] std::optional<ClockPoint> winner(TimePoint now) const {
        std::optional<ClockPoint> highest;
        const auto raise_to = [&](ClockPoint point) {
            highest = highest ? higher_cap(*highest, point) : point;
        };
        for (const auto& [track, vote] : votes_) {
            if (vote.standing) raise_to(*vote.standing);
            if (vote.request == no_request) continue;
            const TimedRequest request = requests_.timed(vote.request);
            const bool changed =
                request.after > Duration::zero() && now >= vote.since + request.after;
            raise_to(changed ? request.then : request.now);
        }
        if (!highest) return std::nullopt;
        for (const auto& [track, vote] : votes_) {
            if (vote.at_least) raise_to(*vote.at_least);
        }
        return highest;
    }

private:
    struct Vote {
        RequestWord word{};
        RequestIndex request = no_request;
        TimePoint since{};  ///< it was requested
        std::uint32_t last_ticket = 0;
        bool seen = false;
        std::optional<ClockPoint> standing{};
        std::optional<ClockPoint> at_least{};
    };

    /// How many tickets a later one is ahead; 0 where it is not later. Tickets begin at 1.
    static constexpr std::uint32_t tickets_ahead(std::uint32_t ticket, std::uint32_t than) {
        constexpr std::uint32_t tickets = 1U << (32 - RequestWord::request_bits);
        const std::uint32_t ahead = (ticket - than) % tickets;
        return ahead < tickets / 2 ? ahead : 0;
    }

    const RequestTable& requests_;
    std::map<TrackId, Vote> votes_;
};

}  // namespace kdvfs::inline v0_3::detail
