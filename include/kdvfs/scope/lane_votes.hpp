// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/kernel_interval.hpp>
#include <kdvfs/device/level_cell.hpp>
#include <kdvfs/scope/request_table.hpp>

#include <cstdint>
#include <map>
#include <optional>

namespace kdvfs {

/// What all lanes ask of a device together: in each domain the highest request wins, `auto` being
/// highest of all. A lane outside scopes has no vote, unless it is protected. Not thread-safe.
class LaneVotes {
public:
    explicit LaneVotes(const RequestTable& requests) : requests_{requests} {}

    /// A lane asks for this from here on. @returns whether it is by a scope not heard of before
    bool hear(LaneId lane, LevelWord level) {
        Vote& vote = votes_[lane];
        const bool entered = level.request() != no_request &&
                             (!vote.seen || newer(level.ticket(), vote.last_ticket));
        if (entered) {
            vote.seen = true;
            vote.last_ticket = level.ticket();
        }
        vote.request = level.request();
        return entered;
    }

    /// A standing `auto` vote, whatever the lane's scopes ask for.
    void protect(LaneId lane) { votes_[lane].is_protected = true; }

    /// A lane that will not be heard of again.
    void withdraw(LaneId lane) { votes_.erase(lane); }

    /// @returns nothing where no lane asks
    [[nodiscard]] std::optional<ClockPoint> winner() const {
        std::optional<ClockPoint> highest;
        const auto raise_to = [&](ClockPoint point) {
            highest = highest ? higher_cap(*highest, point) : point;
        };
        for (const auto& [lane, vote] : votes_) {
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
        constexpr std::uint32_t tickets = 1U << (32 - LevelWord::request_bits);
        const std::uint32_t ahead = (ticket - than) % tickets;
        return ahead != 0 && ahead < tickets / 2;
    }

    const RequestTable& requests_;
    std::map<LaneId, Vote> votes_;
};

}  // namespace kdvfs
