// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/followed_plan.hpp>
#include <kdvfs/detail/control/stream_track.hpp>
#include <kdvfs/detail/control/votes.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/report.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// Adds up how the tracks of a GPU have followed their plans.
class FollowTally {
public:
    void add(const TrackFollower& track) {
        share_.given_up = share_.given_up || track.plan().external();
        if (!track.ever_outer_request()) return;
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
        const auto& mismatches = track.mismatches();
        for (std::size_t k = 0; k < mismatches.size(); ++k) {
            if (mismatches[k] == 0) continue;
            const bool known = k + 1 < mismatches.size();
            names_[known ? to_string(track.plan().key(static_cast<PlanKernel>(k)))
                         : "kernels that the plan does not have"] += mismatches[k];
        }
    }

    [[nodiscard]] measure::FollowedShare share() const {
        measure::FollowedShare share = share_;
        share.mismatch.assign(names_.begin(), names_.end());
        std::stable_sort(share.mismatch.begin(), share.mismatch.end(),
                         [](const auto& a, const auto& b) { return a.second > b.second; });
        return share;
    }

private:
    measure::FollowedShare share_;
    std::map<std::string, std::uint64_t> names_;
};

/// The plans that the scopes of a GPU follow. Thread-safe.
class FollowedPlans {
public:
    /// @throws Error as `FollowedPlan`
    FollowedPlan& add(const PlannedSequence& plan, RequestTable& requests) {
        auto followed = std::make_unique<FollowedPlan>(plan, requests);
        const std::lock_guard lock{mutex_};
        return *plans_.emplace_back(std::move(followed));
    }

    /// An iteration begins, for every plan. @returns whether one was just found to be of another
    ///         program
    bool begin_iteration() noexcept {
        const std::lock_guard lock{mutex_};
        bool external = false;
        for (const auto& plan : plans_) {
            if (!plan->given_up() && plan->begin_iteration()) external = true;
        }
        return external;
    }

    /// How the plans have been followed; nothing where there is none.
    std::optional<measure::FollowedShare> share(TrackTable& tracks) const {
        {
            const std::lock_guard lock{mutex_};
            if (plans_.empty()) return std::nullopt;
        }
        FollowTally tally;
        for (StreamTrack* track : tracks.all()) {
            const std::lock_guard lock{track->mutex};
            if (track->follower != nullptr) tally.add(*track->follower);
        }
        return tally.share();
    }

private:
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<FollowedPlan>> plans_;
};

}  // namespace kdvfs::inline v0_3::detail
