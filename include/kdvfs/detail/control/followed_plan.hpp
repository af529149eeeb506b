// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/plan_follower.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/control/votes.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/plan.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// A plan of segments that the scopes of a GPU follow: what all streams share of it. Thread-safe.
class FollowedPlan {
public:
    /// @throws Error as `PlanTrack` and `RequestTable::index_of`
    FollowedPlan(const PlannedSequence& plan, RequestTable& requests)
        : track_{plan},
          met_{std::make_unique<std::atomic<bool>[]>(track_.kernels())},
          kinds_{std::make_unique<std::atomic<const ScopeKind*>[]>(track_.kernels() *
                                                                   track_.clocks().size())} {
        for (const ClockPoint clock : track_.clocks())
            requests_.push_back(requests.index_of(clock));
        const auto& clocks = track_.clocks();
        for (const PlannedRest& rest : track_.rests())
            rests_.push_back(
                requests.index_of_timed({clocks[rest.now], rest.after, clocks[rest.then]}));
        for (const PlannedSequence::Kernel& kernel : plan.kernels) keys_.push_back(kernel.key);
    }

    [[nodiscard]] const PlanTrack& track() const noexcept { return track_; }
    [[nodiscard]] RequestIndex request(PlanClock clock) const noexcept { return requests_[clock]; }
    /// The request of a gap of the plan.
    [[nodiscard]] RequestIndex request(const PlannedRest& rest) const noexcept {
        return rests_[static_cast<std::size_t>(&rest - track_.rests().data())];
    }
    [[nodiscard]] const KernelKey& key(PlanKernel kernel) const { return keys_[kernel]; }

    /// Which iteration of the program this is.
    [[nodiscard]] std::uint64_t iteration() const noexcept {
        return iteration_.load(std::memory_order_relaxed);
    }
    /// An iteration begins; counted once a scope has followed the plan.
    /// @returns whether the plan is of another program, found out just now: in two iterations,
    ///         under half of its kernels have been met, and under half of what was launched were
    ///         kernels of it
    bool begin_iteration() noexcept {
        if (seen_.load(std::memory_order_relaxed) == 0) return false;
        if (iteration_.fetch_add(1, std::memory_order_relaxed) != 2) return false;
        if (2 * known_.load(std::memory_order_relaxed) >= seen_.load(std::memory_order_relaxed))
            return false;
        const auto met = static_cast<std::size_t>(
            std::count_if(met_.get(), met_.get() + track_.kernels(),
                          [](const auto& m) { return m.load(std::memory_order_relaxed); }));
        if (2 * met >= track_.kernels()) return false;
        external_.store(true, std::memory_order_relaxed);
        end();
        return true;
    }
    /// A scope of this kernel was entered.
    void meet(PlanKernel kernel) noexcept {
        if (iteration() <= 2) {
            seen_.fetch_add(1, std::memory_order_relaxed);
            if (kernel != not_in_plan) known_.fetch_add(1, std::memory_order_relaxed);
        }
        if (kernel != not_in_plan && !met_[kernel].load(std::memory_order_relaxed))
            met_[kernel].store(true, std::memory_order_relaxed);
    }

    /// Whether it is not to be followed any more.
    [[nodiscard]] bool given_up() const noexcept {
        return given_up_.load(std::memory_order_relaxed);
    }
    void end() noexcept { given_up_.store(true, std::memory_order_relaxed); }
    /// Whether it is of another program.
    [[nodiscard]] bool external() const noexcept {
        return external_.load(std::memory_order_relaxed);
    }

    /// Where the kind of a kernel's scopes at one of the plan's clocks is kept: what a metered
    /// launch is recorded as. Null until it has been asked for.
    [[nodiscard]] std::atomic<const ScopeKind*>& kind(PlanKernel kernel, PlanClock clock) noexcept {
        return kinds_[kernel * track_.clocks().size() + clock];
    }

private:
    PlanTrack track_;
    std::vector<RequestIndex> requests_;  // by clock
    std::vector<RequestIndex> rests_;     // by gap
    std::vector<KernelKey> keys_;         // by kernel
    std::unique_ptr<std::atomic<bool>[]> met_;
    std::unique_ptr<std::atomic<const ScopeKind*>[]> kinds_;  // [kernel][clock]
    std::atomic<std::uint64_t> iteration_{0};
    std::atomic<std::uint64_t> seen_{0};   // launches in the first iterations
    std::atomic<std::uint64_t> known_{0};  // of them, those of the plan's kernels
    std::atomic<bool> given_up_{false};
    std::atomic<bool> external_{false};
};

/// How one track follows a plan. A plan is for the stream that it was recorded on: a track follows
/// it from the plan's first launch on, from a kernel that has a clock of its own, or once a few
/// launches in a row have come as planned; and no longer, when as many launches as the plan has
/// have come without its place being known. Under the track's mutex.
class TrackFollower {
public:
    explicit TrackFollower(FollowedPlan& plan)
        : plan_{&plan}, follower_{plan.track()}, mismatches_(plan.track().kernels() + 1) {
        iteration_ = plan.iteration();
    }

    [[nodiscard]] FollowedPlan& plan() const noexcept { return *plan_; }

    /// The track's next launch. @returns whether the plan speaks for the track
    bool launched(PlanKernel kernel) noexcept {
        if (const std::uint64_t now = plan_->iteration(); now != iteration_) {
            iteration_ = now;
            follower_.begin_iteration();
        }
        plan_->meet(kernel);
        follower_.launched(kernel);
        const std::uint64_t in_a_row = follower_.in_a_row();
        if (in_a_row == 0) note_mismatch(kernel);
        if (outer_request_) {
            lost_ = follower_.lost() ? lost_ + 1 : 0;
            outer_request_ = lost_ <= plan_->track().size();
        } else {
            outer_request_ = in_a_row >= convincing || (in_a_row > 0 && in_a_row == place()) ||
                             plan_->track().own_clock(kernel);
            ever_outer_request_ = ever_outer_request_ || outer_request_;
        }
        return outer_request_;
    }

    /// The clock that the plan asks for now.
    [[nodiscard]] PlanClock clock() const noexcept { return follower_.clock(); }
    [[nodiscard]] bool outer_request() const noexcept { return outer_request_; }
    [[nodiscard]] bool at_end() const noexcept { return follower_.at_end(); }
    /// What the plan asks for in the gap behind the last launch; null where nothing is.
    [[nodiscard]] const PlannedRest* rest() const noexcept { return follower_.rest(); }
    /// Whether the launch that came last did not come behind the one before it, as planned: work
    /// that no scope has told of, a graph for one, may lie between.
    [[nodiscard]] bool resynced() const noexcept { return follower_.in_a_row() <= 1; }

    /// A capture begins where another track, of the same stream, is.
    void go_on_from(const TrackFollower& live) noexcept {
        follower_.go_on_from(live.follower_);
        iteration_ = live.iteration_;
        outer_request_ = ever_outer_request_ = live.outer_request_;
    }

    /// Whether the track has ever followed the plan.
    [[nodiscard]] bool ever_outer_request() const noexcept { return ever_outer_request_; }
    [[nodiscard]] const FollowCounts& counts() const noexcept { return follower_.counts(); }
    /// By kernel, those that the plan does not have last.
    [[nodiscard]] const std::vector<std::uint32_t>& mismatches() const noexcept {
        return mismatches_;
    }

private:
    /// Launches in a row, anywhere in the plan, that make a track the plan's.
    static constexpr std::uint64_t convincing = 4;

    [[nodiscard]] std::uint64_t place() const noexcept {
        return follower_.next() == 0 ? plan_->track().size() : follower_.next();
    }
    void note_mismatch(PlanKernel kernel) noexcept {
        ++mismatches_[std::min<std::size_t>(kernel, mismatches_.size() - 1)];
    }

    FollowedPlan* plan_;
    PlanFollower follower_;
    std::vector<std::uint32_t> mismatches_;
    std::uint64_t iteration_ = 0;
    std::uint64_t lost_ = 0;  // launches in a row
    bool outer_request_ = false;
    bool ever_outer_request_ = false;
};

}  // namespace kdvfs::inline v0_3::detail
