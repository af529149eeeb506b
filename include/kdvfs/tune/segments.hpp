// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/solve/effort.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/switch_costs.hpp>
#include <kdvfs/units.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <istream>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// Launches of an iteration over which one clock is asked for. The clock is in force from inside
/// launch `arrives_in`; asking so early is the plan's way to have a raise in time (`lead`).
struct Segment {
    std::size_t first = 0;       ///< the launch before which the clock is asked for
    std::size_t last = 0;        ///< one past the last launch before the next request
    std::size_t arrives_in = 0;  ///< the launch in which the clock arrives; `first` if it holds
    Seconds lead{0};             ///< from asking to the clock's arrival; 0 if it holds already
    ClockPoint clock;
    Cost expected;  ///< of its launches, switch included
    /// Asked for in the gap before `first`, so long after the launch before has ended; nothing:
    /// when the launch comes.
    std::optional<Seconds> after{};

    friend bool operator==(const Segment&, const Segment&) = default;
};

/// Clocks for a sequence of launches that repeats, and what they save.
struct SegmentPlan {
    std::string gpu;
    std::string objective;
    double max_slowdown = std::numeric_limits<double>::infinity();
    ClockPoint baseline_clock;
    Cost baseline;       ///< of one iteration at the baseline clock
    Cost expected;       ///< of one iteration, by the model of a switch
    double gap_pct = 0;  ///< how far from the best it can be, in percent of the baseline's score
    std::vector<Segment> segments;
    std::string reason;  ///< why the plan is one clock; empty where it is several

    PlannedSequence sequence;  ///< the launches and the segments' clocks, for who follows them

    Cost single;  ///< of the best single clock
    ClockPoint single_clock;
    Cost without_latency;  ///< if each launch had its own clock and switching took no time
    std::string level{};   ///< why clocks change with outer scopes alone; empty where they need not
    bool predicted = false;  ///< its costs were not measured: to be validated

    [[nodiscard]] double time_pct() const { return time_percent(expected, baseline); }
    [[nodiscard]] double energy_pct() const { return energy_percent(expected, baseline); }
};

struct SegmentOptions {
    /// A plan of several clocks must score better than one clock by so many percent of the
    /// baseline's score, or it is one clock. 0.03 keeps plans within 0.05 of the best.
    double worthwhile_pct = 0.03;
    /// Else `effort_for` the problem.
    std::optional<solve::ScheduleEffort> effort{};
};

/// The launches of an iteration as indices into a table's kernels.
/// @throws Error (invalid_input) naming a kernel that the table does not have, or for no launch
KDVFS_INLINE std::vector<std::size_t> launch_indices(const CostTable& table,
                                                     std::span<const KernelKey> launches);

/// What a program launches in an iteration, as its plan sees it.
struct ProgramLaunches {
    std::vector<std::size_t> launches;  ///< those that can be planned: indices into the table
    std::vector<Seconds> gaps;          ///< before each of them; empty where not known
    std::vector<KernelKey> unplanned;   ///< kernels that the profile does not have
    /// Where scopes are nested, by level, the outermost first: which of that level's scopes each
    /// launch is, or is in; ascending.
    std::vector<std::vector<std::size_t>> levels{};
};

/// Tells launches that a profile knows from others, such as scopes around them, which a follower
/// passes over.
/// @throws Error (invalid_input) if the table has none of the kernels
KDVFS_INLINE ProgramLaunches match_launches(const CostTable& table,
                                            std::span<const KernelKey> launches,
                                            std::span<const Seconds> gaps = {},
                                            std::span<const std::uint32_t> depths = {});

/// Plans clocks for a sequence of launches that repeats, `launches` being indices into the table's
/// kernels (`launch_indices`). Proven for the model of `SwitchModel`, up to the gap it states. The
/// bound holds with the objective's confidence where the table knows how far its times may be off.
/// If several clocks are not worth it, the plan is one clock, and says why.
KDVFS_INLINE SegmentPlan plan_segments(const CostTable& table,
                                       const std::vector<std::size_t>& launches,
                                       const SwitchCosts& costs, const Objective& objective,
                                       const SegmentOptions& options = {});

/// Plans what a program was recorded to launch. Where scopes are nested, such as kernels in forward
/// and backward, it plans for the outermost level that saves as much as the kernels by themselves
/// do, to `worthwhile_pct`: fewer switches, at places that everyone knows.
KDVFS_INLINE SegmentPlan plan_segments(const CostTable& table, const ProgramLaunches& program,
                                       SwitchCosts costs, const Objective& objective,
                                       const SegmentOptions& options = {});

// Gaps between launches.

/// What a planner must know of the time in which a stream runs nothing.
struct GapModel {
    /// What the board draws at a clock while it runs nothing. Needed.
    std::function<Watts(ClockPoint)> idle_power;
    /// Before each launch, whether the host ends the gap at a time of its own: then a launch in
    /// front of it may last longer, and the gap is so much shorter. Empty: no gap is.
    std::vector<bool> host_bound{};
    /// A shorter gap gets no clock of its own: the listener looks at cells every 50 us.
    Seconds shortest{500e-6};
    /// By how much earlier than a switch takes a clock is asked for: what a look at the cells and a
    /// call to the driver take.
    Seconds margin{200e-6};
};

/// What a board draws by clock while it runs nothing: CSV with the columns `core_mhz`, `idle_w` and
/// `mem_mhz` where memory clocks differ. Between the file's core clocks it is interpolated, beyond
/// them it is that of the nearest one; `auto`, where it has no row, is its highest one.
/// @throws Error (invalid_input) naming file and line
KDVFS_INLINE std::function<Watts(ClockPoint)> read_idle_power(std::istream& input,
                                                              const std::string& name);

/// Which gaps the host ends at times of its own: those that are shorter where the launches in front
/// of them, since the last such gap, take longer. Found from two recordings of the same iteration.
/// @param fast the gaps at higher clocks, one before each launch of an iteration that repeats
/// @param slow the gaps at lower clocks
/// @param slower by how much each launch takes longer at the lower clocks
/// @throws Error (invalid_input) unless all have the same length
KDVFS_INLINE std::vector<bool> host_bound_gaps(const std::vector<Seconds>& fast,
                                               const std::vector<Seconds>& slow,
                                               const std::vector<Seconds>& slower);

/// Plans clocks for an iteration that repeats, with those of the gaps in it: a gap is a position of
/// the sequence with a length and a power by clock, a clock may be asked for at its begin and as
/// long before its end as a switch takes, and launches that the host waits out may be slower by as
/// much as the gap behind them is long. Time is that of the wall, energy that of the board.
/// @throws Error (invalid_input) as `launch_indices`
KDVFS_INLINE SegmentPlan plan_segments(const CostTable& table, const ProgramLaunches& program,
                                       const SwitchCosts& costs, const Objective& objective,
                                       const GapModel& gaps, const SegmentOptions& options = {});

// Work on several streams.

/// A launch of an iteration as it ran at the baseline clocks.
struct StreamLaunch {
    std::size_t kernel = 0;  ///< index into the table's kernels
    std::uint32_t stream = 0;
    Seconds start{0};  ///< since the iteration began
    Seconds end{0};
};

/// The launches of a recording with times, as `plan_segments` wants them.
/// @throws Error (invalid_input) for launches without times or kernels that the table does not have
KDVFS_INLINE std::vector<StreamLaunch> stream_launches(const CostTable& table,
                                                       const LaunchSequence& recorded);

/// Plans clocks for an iteration whose launches overlap. All streams of a GPU share its clock, so
/// clocks change where nothing runs; in between, the time is that of the critical path. Work that
/// others wait out may be slower for nothing. Launches keep the order that they were recorded in,
/// across streams, too; how much they slow each other down is taken as recorded.
/// @param launches   ascending by `start`
/// @param idle_power by clock, of the time in which nothing runs; empty: it counts no energy
/// @returns a plan over the launches of the stream that has the most work
/// @throws Error (invalid_input) for launches that are out of order or overlap on one stream
KDVFS_INLINE SegmentPlan plan_segments(const CostTable& table,
                                       std::span<const StreamLaunch> launches,
                                       const SwitchCosts& costs, const Objective& objective,
                                       const std::function<Watts(ClockPoint)>& idle_power,
                                       const SegmentOptions& options = {});

/// What a launch costs at core clocks that it was not measured at, from two or more that it was:
/// its time by a law of host and GPU time, its energy what the board draws without work in that
/// time, and the rest, which is interpolated between the clocks that are known.
/// @param points two or more at different core clocks, none of them auto; ascending. Those that
///               take less time than a higher clock by over 5 % are left out
/// @param clocks core clocks within those of the points, ascending, the highest known one last
/// @throws Error (invalid_input) if fewer than two points are left
KDVFS_INLINE KernelCosts predict_clocks(const KernelKey& key, std::span<const PointCost> points,
                                        std::span<const Megahertz> clocks,
                                        const std::function<Watts(ClockPoint)>& idle_power);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/segments.hpp>
#endif
