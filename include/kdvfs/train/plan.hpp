// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/solve/switch_model.hpp>
#include <kdvfs/train/frontier.hpp>

#include <cstdint>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// Another clock, from a share of an operation's work on.
struct ClockChange {
    double share = 0;
    ClockPoint clock{};

    friend bool operator==(const ClockChange&, const ClockChange&) = default;
};

/// The clocks of one operation of a plan: at `first` for `share` of its work, then at `second`.
/// With one clock the share is 1.
struct PlannedClocks {
    Operation operation{};
    ClockPoint first{};
    double share = 1;
    ClockPoint second{};
};

/// How many clocks an operation may run at.
enum class Clocks {
    one,  ///< for the whole operation
    two,  ///< changing once, between two of its kernels: two neighbouring corners of its curve
};

/// One operation of a plan.
struct PlannedOperation {
    PlannedClocks clocks{};
    Seconds start{};  ///< at the earliest, since the iteration's start
    Seconds duration{};
    Joules effective{};
    /// With clocks by kernel: those after `clocks.first`, in order (`make_kernel_plan`).
    std::vector<ClockChange> changes{};

    /// The clock that it ends with.
    [[nodiscard]] ClockPoint last_clock() const;
};

/// A stretch in which a stage waits for others at a clock of its own.
struct PlannedWait {
    std::uint32_t before = 0;  ///< the operation that it ends with, as in the pipeline
    Seconds start{};           ///< since the iteration's start; may lie in the iteration before
    Seconds length{};
    ClockPoint clock{};
    Joules saved{};  ///< against waiting at the clock of the operation before it
    Seconds lead{};  ///< the clock behind it is requested so long before its end
};

/// Clocks for every operation of an iteration of a given length.
struct PipelinePlan {
    Seconds time{};      ///< the iteration's length that is promised; blocking lasts so long
    Seconds makespan{};  ///< when the last operation ends: `time` or sooner
    Joules effective{};  ///< of the operations
    Joules total{};      ///< with what all stages draw while they wait
    Joules bound{};      ///< no clocks that end within `time` need less in total
    std::uint32_t switches = 0;                  ///< changes of clock within stages
    std::vector<PlannedOperation> operations{};  ///< as in the pipeline
    std::vector<PlannedWait> waits{};            ///< those that get a clock

    /// How far above the bound the plan is, relative to it.
    [[nodiscard]] double gap() const { return (total - bound) / bound; }
};

/// Plans the waits of a plan, where the pipeline knows what stages draw at which clock while they
/// wait: those that are long enough get the clock of least power. Sets `waits` and `total`.
/// @param latency of a switch
KDVFS_INLINE void plan_waits(const Pipeline& pipeline, Seconds latency, PipelinePlan& plan);

/// Clocks for an iteration of this length; beyond the frugal end of the frontier for the frugal
/// one, as slower clocks save nothing there. With one clock an operation runs at a measured point:
/// the exact frontier is rounded to such points, and `PipelinePlan::gap` says how far the plan is
/// from it at most. Takes a second for 8 stages and 32 microbatches.
///
/// `switching` says how late clocks come. An operation then runs on at the clock of the one before
/// until its own arrives, asked for where that one ended; times and energies of the plan are those
/// of iterations that follow each other at once. Where even the fastest clocks cannot keep the
/// time, because of the pause in a switch, `time` is what they need. With a latency each operation
/// has one clock, whatever `clocks` says: a second one would come too late.
/// Where `Pipeline::waiting` says what waits draw by clock, waits that are longer than two
/// latencies get the clock of least power; the frontier, whose waits all have it, stays a bound.
/// @throws Error (invalid_input) for a time shorter than possible, or a latency that is none
KDVFS_INLINE PipelinePlan make_plan(const Frontier& frontier, Seconds length, Clocks clocks,
                                    const tune::SwitchDelay& switching = {});

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/plan.hpp>
#endif
