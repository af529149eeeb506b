// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/train/stage_scopes.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// Picks a stage's operations out of what was metered: each is one interval then, whatever scopes
/// were nested in it. Not thread-safe.
class OperationIntervals {
public:
    explicit OperationIntervals(const std::map<KernelId, StageScopes::Kernel>& kernels)
        : kernels_{&kernels} {}

    [[nodiscard]] std::vector<measure::MeteredRun> take(std::span<const measure::MeteredRun> runs) {
        std::vector<measure::MeteredRun> whole;
        for (const measure::MeteredRun& run : runs) {
            const KernelId kernel = run.interval.kernel;
            if (!kernels_->contains(kernel)) continue;
            const auto [at, is_first] = open_.try_emplace({kernel, run.interval.track}, run);
            measure::MeteredRun& open = at->second;
            open.interval.end = run.interval.end;
            if (!is_first) open.interval.core_cycles += run.interval.core_cycles;
            if (!run.interval.ends_scope) continue;
            open.interval.ends_scope = true;
            whole.push_back(open);
            open_.erase(at);
        }
        return whole;
    }

private:
    const std::map<KernelId, StageScopes::Kernel>* kernels_;
    std::map<std::pair<KernelId, TrackId>, measure::MeteredRun> open_;
};

/// When each iteration's operations of this stage ran, as far as is known.
class IterationSpans {
public:
    struct Span {
        TimePoint begin{};
        TimePoint end{};
        std::vector<Seconds> durations{};  ///< of the operations, in the stage's order
    };

    /// @param operations what each is measured under, in the stage's order
    explicit IterationSpans(std::vector<KernelId> operations)
        : operations_{std::move(operations)} {}

    /// @returns whether all is known of another iteration, which is `last` then
    bool add(const measure::MeteredRun& run) {
        std::vector<KernelInterval>& ran = open_[run.window];
        ran.push_back(run.interval);
        if (ran.size() < operations_.size()) return false;
        before_ = std::exchange(last_, std::pair{run.window, span_of(std::move(ran))});
        open_.erase(open_.begin(), std::next(open_.find(run.window)));
        return true;
    }
    /// The last iteration of which all is known, and its window.
    [[nodiscard]] const std::optional<std::pair<std::uint32_t, Span>>& last() const {
        return last_;
    }
    /// The window of the iteration before the last one of which all is known.
    [[nodiscard]] std::optional<std::uint32_t> window_before() const {
        if (!before_) return std::nullopt;
        return before_->first;
    }
    /// From the start of that iteration to that of the last one.
    [[nodiscard]] std::optional<Seconds> iteration() const {
        if (!before_) return std::nullopt;
        return Seconds{last_->second.begin - before_->second.begin};
    }

private:
    /// Operations that overlap may end in another order than they began; those that are measured
    /// alike run in the order of their microbatches.
    [[nodiscard]] Span span_of(std::vector<KernelInterval> ran) const {
        std::stable_sort(ran.begin(), ran.end(),
                         [](const auto& a, const auto& b) { return a.start < b.start; });
        Span span{ran.front().start, ran.front().end, {}};
        for (const KernelInterval& each : ran) span.end = std::max(span.end, each.end);
        for (const KernelId operation : operations_) {
            const auto its = std::find_if(ran.begin(), ran.end(), [&](const KernelInterval& each) {
                return each.kernel == operation;
            });
            if (its == ran.end()) continue;
            span.durations.emplace_back(its->end - its->start);
            ran.erase(its);
        }
        return span;
    }

    std::vector<KernelId> operations_;
    std::map<std::uint32_t, std::vector<KernelInterval>> open_;
    std::optional<std::pair<std::uint32_t, Span>> last_;
    std::optional<std::pair<std::uint32_t, Span>> before_;
};

}  // namespace kdvfs::inline v0_3::train
