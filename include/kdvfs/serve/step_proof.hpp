// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/tune/paired_comparison.hpp>
#include <kdvfs/units.hpp>

#include <array>
#include <cstdint>
#include <optional>

namespace kdvfs::inline v0_3::serve {

/// Measures what a plan saves while the engine serves, as `tune::Session` does for iterations:
/// pairs of neighbouring blocks in random order, one by the plan and one at the top clock. What a
/// pair's blocks draw is compared: requests come independently of clocks. A plan that costs energy
/// is given up. A pure state machine, one for an engine and its energy counter; not thread-safe.
///
///     const bool planned = proof.by_plan(now);
///     StepScope step{gpu, stream, shape, planned ? slack : StepClocks::none};
///     ...                                       // at the top clock: no `gpu.rest()` either
///     proof.energy(sampled_at, joules);
class StepProof {
public:
    /// @param block how long one lasts: longer than most requests, which go on from one to the next
    explicit StepProof(Seconds block = Seconds{30}) : block_{block} {}

    /// Whether what begins now, a step or idle time, is to follow the plan.
    [[nodiscard]] bool by_plan(Seconds now) {
        if (!began_ || now >= *began_ + block_) next_block(now);
        return !is_broken() && by_plan_;
    }

    /// A sample of the energy counter.
    void energy(Seconds time, Joules reading) {
        if (!began_ || time < *began_ + settle) return;
        if (!first_) first_ = {time, reading};
        last_ = {time, reading};
    }

    /// The change of energy by the plan, with an interval that holds at every moment with 95 %.
    [[nodiscard]] std::optional<tune::PercentInterval> change() const { return pairs_.change(); }
    /// Whether the plan is known to save.
    [[nodiscard]] bool is_kept() const { return change() && change()->high < 0; }
    /// Whether it is known to cost: it is not followed any more.
    [[nodiscard]] bool is_broken() const { return change() && change()->low > 0; }

private:
    struct Sample {
        Seconds time{0};
        Joules reading{0};
    };
    static constexpr Seconds settle{0.5};       ///< of a block: counters may be late
    static constexpr std::uint64_t often = 64;  ///< pairs, one after the other; then each tenth
    static constexpr std::uint64_t seldom = 10;

    void next_block(Seconds now) {
        if (began_) end_block();
        began_ = now;
        const std::uint64_t pair = blocks_ / 2;
        const bool planned_first = ((pair * 0x9E3779B97F4A7C15ULL) >> 63) != 0;
        is_judged_ = pair < often || pair % seldom == 0;
        by_plan_ = !is_judged_ || (blocks_ % 2 == 0) == planned_first;
        first_ = last_ = std::nullopt;
    }

    void end_block() {
        const bool is_measured = first_ && last_->time > first_->time;
        watts_[by_plan_ ? 1 : 0] = is_measured ? (last_->reading - first_->reading).count /
                                                     (last_->time - first_->time).count()
                                               : 0;
        if (++blocks_ % 2 != 0) return;
        if (is_judged_ && watts_[0] > 0 && watts_[1] > 0) pairs_.add(watts_[1], watts_[0]);
        watts_ = {};
    }

    Seconds block_;
    std::optional<Seconds> began_;
    bool by_plan_ = true;
    bool is_judged_ = true;
    std::optional<Sample> first_, last_;
    std::array<double, 2> watts_{};  ///< at the top clock, by the plan; 0: not measured
    std::uint64_t blocks_ = 0;
    tune::detail::PairedComparison pairs_;
};

}  // namespace kdvfs::inline v0_3::serve
