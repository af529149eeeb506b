// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/tune/compared_blocks.hpp>
#include <kdvfs/detail/tune/paired_comparison.hpp>
#include <kdvfs/units.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

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

}  // namespace kdvfs::inline v0_3::serve
