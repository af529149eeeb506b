// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/serve/late_share.hpp>
#include <kdvfs/detail/tune/compared_blocks.hpp>
#include <kdvfs/detail/tune/paired_comparison.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/serve/step_clocks.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/serve/step_sweep.hpp>
#include <kdvfs/serve/step_table.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

namespace kdvfs::inline v0_3::serve {

/// Measures what a plan saves while the engine serves, as `kdvfs tune` compares iterations: pairs
/// of neighbouring blocks in random order, one by the plan and one at the top clock. The power of a
/// pair's blocks is compared: requests come independently of clocks. A plan that costs energy is no
/// longer followed. A pure state machine, one for an engine and its energy counter; not
/// thread-safe.
///
///     if (proof.by_plan(now))
///         StepScope step{gpu, stream, shape, slack}; ...
///     else                                        // and no `gpu.rest()`
///         StepScope step{gpu, stream, shape, gpu.plan().clock_table().at_top(shape)}; ...
///     proof.energy(sampled_at, joules);
class StepProof {
public:
    /// @param block how long one lasts: longer than most requests, which go on from one to the next
    explicit StepProof(Seconds block = Seconds{30}) : blocks_{options(block), {}, 1, often} {}

    /// Whether what begins now, a step or idle time, is to follow the plan.
    [[nodiscard]] bool by_plan(Seconds now) {
        const bool planned = blocks_.next(time_point(now));
        return planned && !is_broken();
    }

    /// A sample of the energy counter. Times do not decrease, and have the origin of `by_plan`.
    void energy(Seconds time, Joules reading) {
        const measure::EnergySample sample{time_point(time), reading};
        blocks_.add({&sample, 1});
        for (; compared_ < blocks_.pairs().size(); ++compared_) {
            const auto& [planned, top] = blocks_.pairs()[compared_];
            pairs_.add((planned.energy / planned.time).count, (top.energy / top.time).count);
        }
    }

    /// The change of energy by the plan, with an interval that holds at every moment with 95 %.
    [[nodiscard]] std::optional<tune::PercentInterval> change() const { return pairs_.change(); }
    /// Whether the plan is known to save.
    [[nodiscard]] bool is_kept() const { return change() && change()->high < 0; }
    /// Whether it is known to cost: it is not followed any more.
    [[nodiscard]] bool is_broken() const { return change() && change()->low > 0; }

private:
    static constexpr std::uint64_t often = 64;             ///< pairs
    static constexpr std::chrono::milliseconds late{500};  ///< counters may be, at a block's begin

    static tune::BlockOptions options(Seconds block) {
        const auto whole = std::chrono::duration_cast<Duration>(block);
        return {.switch_latency = late / 10, .measured = whole - late, .counter_rows = 0};
    }
    static TimePoint time_point(Seconds time) {
        return TimePoint{std::chrono::duration_cast<Duration>(time)};
    }

    tune::detail::ComparedBlocks blocks_;
    tune::detail::PairedComparison pairs_;
    std::size_t compared_ = 0;  ///< of the pairs of `blocks_`
};

/// How an engine tunes itself while it serves.
struct StepRunOptions {
    StepSweepOptions sweep{};
    StepTargets targets{};
    Seconds sweeping{1800};   ///< behind the sweep's warm-up; then the plan is made
    Seconds proof_block{30};  ///< longer than most requests
};

/// An engine that tunes itself in one run: it sweeps its steps (`StepSweep`), plans, follows the
/// plan beside blocks at the top clock (`StepProof`), and goes back to the top clock for good where
/// the plan costs energy or makes steps late. A pure state machine, one for an engine and its
/// energy counter; not thread-safe.
///
///     kdvfs::serve::PlannedGpu gpu{kdvfs::rocm::open(0), own_clock_plan(run.buckets())};
///     while (engine.has_work()) {
///         const Seconds began = now();
///         StepScope step{gpu, stream, shape, run.decide(began, shape, slack)}; ...
///         run.ran(shape, began, now());
///     }
class StepRun {
public:
    enum class Phase { sweep, follow, top };

    /// @throws Error as `StepSweep`
    explicit StepRun(const StepRunOptions& options)
        : options_{options}, sweep_{options.sweep}, proof_{options.proof_block} {}
    StepRun(const StepRun&) = delete;
    StepRun& operator=(const StepRun&) = delete;

    [[nodiscard]] Phase phase() const { return phase_; }
    /// Why there is no plan any more; empty elsewhere.
    [[nodiscard]] const std::string& reason() const { return reason_; }
    /// Of its decisions' variants, in the sweep and by the plan.
    [[nodiscard]] const StepBuckets& buckets() const { return sweep_.load().buckets(); }
    [[nodiscard]] const std::optional<StepPlan>& plan() const { return plan_; }
    [[nodiscard]] const StepProof& proof() const { return proof_; }
    /// Shares of the steps with running sequences that took longer than the gap, by the plan and
    /// beside it at the top clock, in percent, with intervals that hold at every moment with 95 %.
    [[nodiscard]] tune::PercentInterval late_by_plan() const { return late_by_plan_.percent(); }
    [[nodiscard]] tune::PercentInterval late_at_top() const { return late_at_top_.percent(); }

    /// What the next step is to run at. An idle shape: the engine has nothing to do.
    /// @param slack of the step's first tokens (`FirstTokenSlack`)
    [[nodiscard]] StepDecision decide(Seconds now, StepShape shape,
                                      Seconds slack = Seconds{
                                          std::numeric_limits<double>::infinity()}) {
        if (!began_) began_ = now;
        if (phase_ == Phase::sweep && now - *began_ >= options_.sweep.warm_up + options_.sweeping)
            make_plan();
        by_plan_ = phase_ == Phase::follow && proof_.by_plan(now);
        if (by_plan_) return clocks_->decide(shape, slack);
        const Megahertz clock =
            phase_ == Phase::sweep ? sweep_.clock_for(now, shape) : options_.sweep.clocks.back();
        return {clock, buckets().variant(shape, false), false};
    }
    /// A step that `decide` was asked for has run.
    void ran(StepShape shape, Seconds begin, Seconds end) {
        if (phase_ == Phase::sweep) return sweep_.ran(shape, begin, end);
        if (phase_ == Phase::top || shape.sequences == 0) return;
        (by_plan_ ? late_by_plan_ : late_at_top_).add(end - begin > options_.targets.gap);
        const double allowed = 1 - options_.targets.gap_share;
        if (late_by_plan_.low() > std::max(allowed, late_at_top_.high()))
            leave("more steps take longer than the gap than may");
    }
    /// The engine had nothing to do until now.
    void idled(Seconds now) {
        if (phase_ == Phase::sweep) return sweep_.idled(now);
        if (clocks_) clocks_->rest();
    }
    /// A sample of the energy counter, after all steps that began before it were given.
    void energy(Seconds time, Joules reading) {
        if (phase_ == Phase::sweep) return sweep_.energy(time, reading);
        if (phase_ == Phase::top) return;
        proof_.energy(time, reading);
        if (proof_.is_broken()) leave("the plan costs energy");
    }

private:
    void make_plan() {
        try {
            plan_ = make_step_plan(StepTable{sweep_.rows()}, sweep_.load(), options_.targets);
            clocks_.emplace(*plan_);
            phase_ = Phase::follow;
        } catch (const Error& error) {
            leave(error.what());
        }
    }
    void leave(std::string why) {
        phase_ = Phase::top;
        reason_ = std::move(why);
    }

    StepRunOptions options_;
    StepSweep sweep_;
    StepProof proof_;
    Phase phase_ = Phase::sweep;
    std::string reason_;
    std::optional<Seconds> began_;
    std::optional<StepPlan> plan_;
    std::optional<StepClocks> clocks_;  ///< by `plan_`
    bool by_plan_ = false;              ///< the step that was decided last
    detail::LateShare late_by_plan_;
    detail::LateShare late_at_top_;
};

}  // namespace kdvfs::inline v0_3::serve
