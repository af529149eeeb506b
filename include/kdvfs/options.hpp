// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/measure/settings.hpp>
#include <kdvfs/units.hpp>

#include <chrono>
#include <optional>

namespace kdvfs::inline v0_3 {

struct ControllerOptions {
    /// No scope lowers a clock below this; `auto_clock`: no floor. Where collectives (RCCL, NCCL)
    /// or other unscoped work run beside scopes, a clock asked for one kernel slows them all. A
    /// limit beyond the clocks that the device lists is the nearest of them.
    ClockPoint never_below{};
    /// No scope raises a clock above this; `auto_clock`: no ceiling. It bounds what scopes ask for:
    /// where nothing asks, the clocks are as they were found.
    ClockPoint never_above{};
    /// Requests may leave the limits that were found: raise a clock above a cap, or lower it below
    /// a floor, that somebody had set before the GPU was opened. Else `auto` means "as found", and
    /// clocks that were found pinned (levels low, high, profile_*) are left alone.
    bool may_leave_found_limits = false;
    Duration lower_after{0};                          ///< hold a lowering back for so long
    Duration verify_every = std::chrono::seconds{1};  ///< read what the device really holds
    unsigned retries = 3;                             ///< of a transient refusal
    Duration first_retry_after = std::chrono::milliseconds{1};  ///< then four times longer each
};

/// What the `not_worth_it` gate may cost and must bring.
struct GateOptions {
    /// Largest share of a scope's own time that its switches may waste.
    double tolerated_loss = 0.003;
    /// A scope must last this many switching latencies, or its clock arrives when it is over.
    double least_latencies = 2.0;
};

/// What `open` does where the clocks cannot be set.
enum class OnRefused {
    fail,          ///< throw, saying why and what to do
    measure_only,  ///< go on without setting clocks, and say so in every report
};

/// When a scope's clock is asked for.
enum class Ordering {
    stream,  ///< when the stream gets there; the host never waits
    host,    ///< the host waits for the stream at each marker: for debugging
    /// As `stream`, and the stream waits until the clock is set: for measuring how long that takes.
    /// One stream at a time, never in a capture; on ROCm a waiting stream may hold up others.
    acked,
};

/// A clock for the time in which a GPU has no work. It is asked for once all work that kdvfs knows
/// of has been done for a while, and given up with the first scope, or `next_iteration()`. Only for
/// programs whose every launch is in a scope, as those of `kdvfs run` are: work that no scope tells
/// of would run at the idle clock. Where kdvfs knows that there may be such work, the clock stays
/// up: on streams with `protect`, in a captured graph, between the boundaries of a plan, which
/// has clocks for its own gaps. A kernel that keeps its clock in an unmetered registry is not seen.
struct IdleClock {
    std::optional<ClockPoint> clock{};               ///< nothing, the default: off
    Duration after = std::chrono::milliseconds{20};  ///< of no work
    /// Largest share of the time that waking may cost: each wake runs work at the idle clock for up
    /// to one switching latency (`GpuOptions::switch_latency`, else 150 ms are assumed).
    double tolerated_loss = 0.01;
};

/// Repeating in place, for boards whose meter is too slow, and mixes that are too regular, to tell
/// kernels apart: first the program runs as it is, always metered; then the next `launch` of each
/// kernel and variant calls its work again and again, with its real arguments, until the meter can
/// tell. The figures are where the attribution of the time before starts from; the meter has the
/// last word. What the work computes is garbage from then on, which draws other power (on an H100,
/// a model of NaN 16 % less than one that trains): later iterations are in no kernel's joules, and
/// results are to be thrown away. The environment variable `KDVFS_MODE=repeat` turns it on where
/// the program allows it (`GpuOptions::may_repeat`).
/// Not repeated: plain scopes, work that is captured into a graph, and kernels whose type says
/// `static constexpr bool runs_once = true;`. So should those say that change their own input by a
/// factor: infinities spoil the figures of the kernels that read them.
struct RepeatOptions {
    bool on = false;
    /// So long the program runs as it is, from the first launch that could be repeated on.
    Duration after = std::chrono::seconds{10};
    double widest = 0.03;                                ///< half-width wanted, of the power
    Duration at_least = std::chrono::milliseconds{100};  ///< a kernel
    Duration at_most = std::chrono::seconds{4};          ///< a kernel, told or not
};

struct GpuOptions {
    OnRefused on_refused = OnRefused::fail;
    /// Where another process drives the GPU's clocks already: vote beside it, in the folder of the
    /// machine, and drive when it has ended. The highest request of all processes holds. Else
    /// opening is refused (busy), as it is where there is no such folder.
    bool share_clocks = true;
    /// Sets the clocks of AMD families, too, for which nobody has shown that they come back
    /// (`detail/device/amd/families.hpp`). Families known not to come back are measured only,
    /// whatever this says.
    bool allow_unproven = false;
    /// Through what an AMD GPU's clocks are written; other GPUs have one way.
    ClockPath clock_path = ClockPath::best;
    Ordering ordering = Ordering::stream;
    /// How long a stream waits at most, with `Ordering::acked`; then it goes on, and `check()` says
    /// so.
    Duration ack_deadline = std::chrono::milliseconds{100};
    ControllerOptions controller{};
    GateOptions gate{};
    /// From a marker to the clock's effect, as `kdvfs measure-latency` finds it; 0: every scope
    /// switches. Where it is not known, scopes that lower a clock are held back unless they would
    /// pay at 150 ms, or carry the figure of a plan (`Lasting`), which was made for a latency.
    std::optional<Duration> switch_latency{};
    IdleClock idle_clock{};
    /// Of so many iterations one is metered, drawn by a fixed hash; 1 = always, as where kernels
    /// are repeated.
    unsigned meter_every = 16;
    RepeatOptions repeat{};
    /// Whether `KDVFS_MODE=repeat` in the environment may turn `repeat` on: it executes work more
    /// often than the program asked for, and so changes its results. Otherwise the variable is
    /// ignored, which standard error and the report say.
    bool may_repeat = false;
    /// Outside the GPU: `self_check` and the totals of reports hold the board's counter against it.
    /// It is read when the GPU is opened, checked and reported.
    std::optional<measure::ReferenceSensor> reference{};
    measure::SamplerSettings sampler{};
    measure::AccumulatorSettings accumulator{};
    /// How often the listener looks at the cells.
    Duration listen_every = std::chrono::microseconds{50};
};

}  // namespace kdvfs::inline v0_3
