// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/control/clock_controller.hpp>
#include <kdvfs/detail/control/followed_plan.hpp>
#include <kdvfs/detail/control/gate.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/control/stream_track.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/report.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// The kernels of a GPU object by number, and the kinds of their scopes. Only grows; what it
/// returns stays valid. Thread-safe: its lock is never held for longer than a look-up or an
/// insertion.
class ScopeKinds {
public:
    const ScopeKind& find(std::string_view kernel, Variant variant, ClockRequest request,
                          RequestIndex index, bool metered, FollowedPlan* plan = nullptr,
                          bool encloses = false) {
        const std::lock_guard lock{mutex_};
        const KernelId id = kernels_.id(kernel, variant);
        const auto [found, is_new] = numbers_.try_emplace(
            {id, request.asks, index.value, request.ungated, metered, plan, encloses},
            kinds_.size());
        if (is_new) {
            ScopeKind& kind = kinds_.emplace_back();
            kind.kernel = id;
            kind.number = static_cast<std::uint32_t>(found->second);
            kind.request = request;
            kind.index = index;
            kind.metered = metered;
            kind.encloses = encloses;
            kind.plan = plan;
            if (plan != nullptr) {
                kind.plan_kernel = plan->track().number({std::string{kernel}, variant});
            }
        }
        return kinds_[found->second];
    }

    /// @pre the number came with a kind
    [[nodiscard]] const ScopeKind& at(std::uint32_t number) const {
        const std::lock_guard lock{mutex_};
        return kinds_.at(number);
    }
    [[nodiscard]] std::size_t size() const {
        const std::lock_guard lock{mutex_};
        return kinds_.size();
    }
    /// All kernels so far, by number; a table that locks itself.
    [[nodiscard]] const measure::KernelTable& kernels() const { return kernels_; }

    /// A kernel whose scopes compile to nothing.
    void note_kept(std::string_view kernel) {
        const std::lock_guard lock{mutex_};
        kept_.insert(kernels_.id(kernel));
    }
    /// A kernel that a registry names.
    void note_bound(std::string_view kernel) {
        const std::lock_guard lock{mutex_};
        bound_.emplace(kernel);
    }
    [[nodiscard]] std::set<std::string> bound() const {
        const std::lock_guard lock{mutex_};
        return bound_;
    }
    [[nodiscard]] std::set<KernelId> kept() const {
        const std::lock_guard lock{mutex_};
        return kept_;
    }

private:
    mutable std::mutex mutex_;
    measure::KernelTable kernels_;
    std::map<std::tuple<KernelId, bool, std::uint32_t, bool, bool, FollowedPlan*, bool>,
             std::size_t>
        numbers_;
    std::deque<ScopeKind> kinds_;
    std::set<KernelId> kept_;
    std::set<std::string> bound_;
};

/// What became of all scopes, for a report: what enqueueing counted, settled with what the
/// controller counted of those that asked.
class ScopeAccounts {
public:
    /// @param asked by scope kind; taken before the tracks are counted, so that no scope is settled
    ///              that was not counted yet
    ScopeAccounts(const ScopeKinds& kinds, std::vector<AskedScopes> asked)
        : kinds_{kinds}, asked_{std::move(asked)} {}

    /// Adds up what the tracks have counted.
    /// @param hand_on called with a kernel and its calls since the last time that left no interval;
    ///                not with scopes that only enclose others
    template <class HandOn>
    void add(TrackTable& tracks, HandOn hand_on) {
        for (StreamTrack* track : tracks.all()) {  // none is locked under the table's mutex
            const std::lock_guard lock{track->mutex};
            unmetered_ += track->counts.unmetered;
            for (std::size_t kind = 0; kind < track->counts.kinds.size(); ++kind) {
                add(kind, track->counts.kinds[kind]);
            }
        }
        for (std::size_t kind = 0; kind < counted_.size(); ++kind) {
            const ScopeKind& its = kinds_.at(static_cast<std::uint32_t>(kind));
            if (!its.encloses) hand_on(its.kernel, counted_[kind].unmetered_calls);
        }
    }

    /// Fills in the counts of all scopes and those of each row's kernel.
    void fill(measure::Report& report) const {
        report.scopes = counts();
        std::map<KernelKey, measure::KernelScopes> by_kernel;
        for (std::size_t kind = 0; kind < counted_.size(); ++kind) {
            measure::KernelScopes& scopes = by_kernel[kinds_.kernels().key(kernel_of(kind))];
            scopes.asked += at(kind, ScopeOutcome::asked);
            scopes.not_worth_it += at(kind, ScopeOutcome::not_worth_it);
            if (counted_[kind].refusal) scopes.gate = counted_[kind].refusal;
            if (kind >= asked_.size()) continue;
            scopes.observed += asked_[kind].observed;
            scopes.missed += asked_[kind].missed;
            scopes.switched += asked_[kind].switched;
            scopes.overtaken += asked_[kind].overtaken;
        }
        for (measure::ReportRow& row : report.rows) {
            const auto found = by_kernel.find(row.kernel);
            if (found != by_kernel.end()) row.scopes = found->second;
        }
    }

    /// The kernels that are bound and whose scopes nobody has entered, by name.
    [[nodiscard]] std::set<std::string> never_entered() const {
        std::set<std::string> names = kinds_.bound();
        for (std::size_t kind = 0; kind < counted_.size(); ++kind) {
            std::uint64_t entered = 0;
            for (const std::uint64_t count : counted_[kind].outcomes) entered += count;
            if (entered > 0) names.erase(kinds_.kernels().key(kernel_of(kind)).name);
        }
        return names;
    }

private:
    void add(std::size_t kind, TrackCounts::OfKind& counted) {
        if (counted_.size() <= kind) counted_.resize(kind + 1);
        TrackCounts::OfKind& sum = counted_[kind];
        for (std::size_t i = 0; i < scope_outcomes; ++i) sum.outcomes[i] += counted.outcomes[i];
        sum.unmetered_calls += std::exchange(counted.unmetered_calls, 0);  // handed on once
        if (counted.refusal) sum.refusal = counted.refusal;
    }

    [[nodiscard]] measure::ScopeCounts counts() const {
        measure::ScopeCounts counts;
        counts.unmetered = unmetered_;
        std::uint64_t asking = 0;
        for (std::size_t kind = 0; kind < counted_.size(); ++kind) {
            for (const std::uint64_t count : counted_[kind].outcomes) counts.scopes += count;
            counts.kept += at(kind, ScopeOutcome::kept);
            counts.stream_redundant += at(kind, ScopeOutcome::stream_redundant);
            counts.not_worth_it += at(kind, ScopeOutcome::not_worth_it);
            counts.captured += at(kind, ScopeOutcome::captured);
            counts.measured += at(kind, ScopeOutcome::measured);
            counts.followed += at(kind, ScopeOutcome::followed);
            counts.refused += at(kind, ScopeOutcome::refused);
            asking += at(kind, ScopeOutcome::asked);
        }
        AskedScopes settled;
        for (const AskedScopes& kind : asked_) settled += kind;
        counts.switches = settled.switched;
        counts.refused += settled.refused;
        counts.missed = settled.missed;
        counts.overtaken = settled.overtaken;
        counts.device_redundant = settled.redundant;
        counts.pending = asking - settled.switched - settled.refused - settled.missed -
                         settled.overtaken - settled.redundant;
        return counts;
    }

    [[nodiscard]] std::uint64_t at(std::size_t kind, ScopeOutcome outcome) const {
        return counted_[kind].outcomes[static_cast<std::size_t>(outcome)];
    }
    [[nodiscard]] KernelId kernel_of(std::size_t kind) const {
        return kinds_.at(static_cast<std::uint32_t>(kind)).kernel;
    }

    const ScopeKinds& kinds_;
    std::vector<AskedScopes> asked_;            // by scope kind
    std::vector<TrackCounts::OfKind> counted_;  // by scope kind
    std::uint64_t unmetered_ = 0;
};

}  // namespace kdvfs::inline v0_3::detail
