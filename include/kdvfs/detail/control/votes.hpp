// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/kernel_interval.hpp>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace kdvfs::detail {

/// Numbers the clock points that scopes ask for, so that a cell can carry one as a level. Only
/// grows; indices stay valid for the life of the GPU. Thread-safe.
class RequestTable {
public:
    /// @returns the index of a clock point, a new one where it has none yet
    /// @throws Error (invalid_input) once 4095 different points have been asked for
    RequestIndex index_of(ClockPoint point) {
        const std::lock_guard lock{mutex_};
        if (const auto known = indices_.find(point); known != indices_.end()) return known->second;
        if (points_.size() > RequestWord::most_requests) {
            throw Error{Errc::invalid_input,
                        {.action = "ask for " + to_string(point),
                         .object = "this GPU",
                         .vendor_words = "",
                         .remedy = "one process may ask for 4095 different clock points: plan with "
                                   "a coarser clock list"}};
        }
        const RequestIndex index{static_cast<std::uint32_t>(points_.size())};
        points_.push_back(point);
        indices_.emplace(point, index);
        return index;
    }

    /// @pre the index came from `index_of`
    [[nodiscard]] ClockPoint point(RequestIndex index) const {
        const std::lock_guard lock{mutex_};
        return points_.at(index.value);
    }

private:
    mutable std::mutex mutex_;
    std::vector<ClockPoint> points_{ClockPoint{}};  // index 0 is "no request"
    std::map<ClockPoint, RequestIndex> indices_;
};

/// What all tracks ask of a device together: in each domain the highest request wins, `auto` being
/// highest of all. A track outside scopes has no vote, unless it is protected. Not thread-safe.
class TrackVotes {
public:
    explicit TrackVotes(const RequestTable& requests) : requests_{requests} {}

    /// A track asks for this from here on. @returns whether it is by a scope not observed of before
    bool observe(TrackId track, RequestWord level) {
        Vote& vote = votes_[track];
        const bool entered = level.request() != no_request &&
                             (!vote.seen || newer(level.ticket(), vote.last_ticket));
        if (entered) {
            vote.seen = true;
            vote.last_ticket = level.ticket();
        }
        vote.request = level.request();
        return entered;
    }

    /// A standing `auto` vote, whatever the track's scopes ask for.
    void protect(TrackId track) { votes_[track].is_protected = true; }

    /// A track that will not be observed of again.
    void withdraw(TrackId track) { votes_.erase(track); }

    /// @returns nothing where no track asks
    [[nodiscard]] std::optional<ClockPoint> winner() const {
        std::optional<ClockPoint> highest;
        const auto raise_to = [&](ClockPoint point) {
            highest = highest ? higher_cap(*highest, point) : point;
        };
        for (const auto& [track, vote] : votes_) {
            if (vote.is_protected) raise_to(ClockPoint{});
            if (vote.request != no_request) raise_to(requests_.point(vote.request));
        }
        return highest;
    }

private:
    struct Vote {
        RequestIndex request = no_request;
        std::uint32_t last_ticket = 0;
        bool seen = false;
        bool is_protected = false;
    };

    static constexpr bool newer(std::uint32_t ticket, std::uint32_t than) {
        constexpr std::uint32_t tickets = 1U << (32 - RequestWord::request_bits);
        const std::uint32_t ahead = (ticket - than) % tickets;
        return ahead != 0 && ahead < tickets / 2;
    }

    const RequestTable& requests_;
    std::map<TrackId, Vote> votes_;
};

}  // namespace kdvfs::detail
