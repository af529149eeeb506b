// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/units.hpp>

#include <span>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// A stretch of constant power.
struct PowerStep {
    Seconds length{0};
    Watts power{};

    friend bool operator==(const PowerStep&, const PowerStep&) = default;
};

/// How much power swings over an iteration that repeats: of its mean over a sliding window, as
/// power supplies and meters smooth it. Range and ramp are those of the specifications of arXiv
/// 2508.14318.
struct PowerSwing {
    Watts mean{};
    Watts lowest{};
    Watts highest{};
    double steepest_w_per_ms = 0;  ///< of rises and falls

    [[nodiscard]] Watts range() const { return highest - lowest; }
};

/// The swing of an iteration that repeats, exactly: the mean over the window is linear between the
/// times at which a step enters or leaves it.
/// @pre the window is longer than 0
KDVFS_INLINE PowerSwing power_swing(std::span<const PowerStep> steps, Seconds window);

/// The sum of several powers over the same time, such as those of the stages of a pipeline.
KDVFS_INLINE std::vector<PowerStep> sum_power(std::span<const std::vector<PowerStep>> parts);

/// The kernels of a plan one after the other, each with all its launches of an iteration.
KDVFS_INLINE std::vector<PowerStep> power_over_iteration(const Plan& plan);

/// An iteration none of whose parts draws more than a power, by clocks alone.
struct CappedIteration {
    Watts cap{};
    Seconds time{0};
    PowerSwing swing{};
};

/// How many caps a table of lower ranges has, and by what share of the highest power they differ.
inline constexpr int swing_caps = 6;
inline constexpr double swing_cap_step = 0.08;

/// What a lower range of power would cost a plan in time, by clocks alone: kernels that draw more
/// than a cap run at their fastest measured clock below it, or where they draw least; others as
/// planned. From no cap downwards.
/// @param table that the plan was made from
KDVFS_INLINE std::vector<CappedIteration> lower_ranges(const Plan& plan, const CostTable& table,
                                                       Seconds window);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/power_swing.hpp>
#endif
