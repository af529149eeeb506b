// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/followed_plan.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/report.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace kdvfs::detail {

/// Adds up how the tracks of a GPU have followed their plans.
class FollowTally {
public:
    void add(const TrackFollower& track) {
        share_.given_up = share_.given_up || track.plan().foreign();
        if (!track.ever_conducted()) return;
        const FollowCounts& counts = track.counts();
        share_.launches += counts.launches;
        share_.lost_launches += counts.lost_launches;
        share_.time += counts.time;
        share_.lost_time += counts.lost_time;
        share_.left_out += counts.left_out;
        share_.added += counts.added;
        share_.swapped += counts.swapped;
        share_.replaced += counts.replaced;
        share_.times_lost += counts.times_lost;
        const auto& stumbles = track.stumbles();
        for (std::size_t k = 0; k < stumbles.size(); ++k) {
            if (stumbles[k] == 0) continue;
            const bool known = k + 1 < stumbles.size();
            names_[known ? to_string(track.plan().key(static_cast<PlanKernel>(k)))
                         : "kernels that the plan does not have"] += stumbles[k];
        }
    }

    [[nodiscard]] measure::FollowedShare share() const {
        measure::FollowedShare share = share_;
        share.stumbled_over.assign(names_.begin(), names_.end());
        std::stable_sort(share.stumbled_over.begin(), share.stumbled_over.end(),
                         [](const auto& a, const auto& b) { return a.second > b.second; });
        return share;
    }

private:
    measure::FollowedShare share_;
    std::map<std::string, std::uint64_t> names_;
};

}  // namespace kdvfs::detail
