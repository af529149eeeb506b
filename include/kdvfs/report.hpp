// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// An energy with its 95 % interval, joules +- half_width; or, where the samples do not say, not a
/// number at all: `resolved` is false, `joules` is 0, and reports print "unresolved".
struct EnergyEstimate {
    Joules joules;
    Joules half_width;
    bool resolved = false;
    /// The part of `half_width` that comes from not knowing the sensor's delay, memory and the
    /// like. 0 where the sensor was not sought.
    Joules sensor_half_width{0};

    /// The part that comes from noise: the squares of both parts add up.
    [[nodiscard]] Joules noise_half_width() const {
        const double sensor = std::min(sensor_half_width.count, half_width.count);
        return {std::sqrt(half_width.count * half_width.count - sensor * sensor)};
    }
};

/// Why the gate kept a scope from switching: at least one of two inequalities failed,
/// `dwell >= least_latencies * switch_latency` or `loss <= tolerated_loss`.
struct GateRefusal {
    Duration dwell{};  ///< how long the scope lasts: the median of those seen, else planned
    Duration switch_latency{};   ///< from the marker to the clock's effect
    double least_latencies = 0;  ///< `GateOptions::least_latencies`
    double loss = 0;             ///< share of the scope's time lost to a late raise behind it
    double tolerated_loss = 0;   ///< `GateOptions::tolerated_loss`
    bool too_short = false;      ///< the first inequality failed, else the second did
};

/// What became of the scopes of one kernel and variant; `ScopeCounts` says it for all of them.
struct KernelScopes {
    std::uint64_t asked = 0;            ///< put a request of their own into their stream
    std::uint64_t observed = 0;         ///< of them, seen by the listener
    std::uint64_t missed = 0;           ///< of them, over between two looks of the listener
    std::uint64_t switched = 0;         ///< of those observed, the device was changed for them
    std::uint64_t overtaken = 0;        ///< of those observed, over before their turn came
    std::uint64_t not_worth_it = 0;     ///< did not ask: the gate refused
    std::optional<GateRefusal> gate{};  ///< its last refusal
};

/// What a kernel drew while its work was called again and again in place (`GpuOptions::repeat`).
struct RepeatedFigure {
    Watts power;
    Watts half_width;             ///< of the 95 % interval, of what the meter saw then
    std::uint64_t calls = 0;      ///< of the work
    Seconds time{0};              ///< of all calls
    Megahertz held = auto_clock;  ///< core clock by cycles meanwhile; 0 = not counted
};

/// A core clock and the share of a kernel's time, 0 to 1, in which it held.
struct ClockShare {
    Megahertz clock = auto_clock;
    double share = 0;
};

/// One kernel and variant. Energies and times are those of the metered calls.
struct ReportRow {
    KernelKey kernel;
    std::uint64_t calls = 0;          ///< scopes that ended, metered or not
    std::uint64_t metered_calls = 0;  ///< calls whose interval is known
    Seconds time{0};                  ///< wall time of the metered calls
    Seconds call_time_half_width{0};  ///< 95 %, of the mean time of a call; 0: too few calls
    Seconds counted_time{0};          ///< of it, under trusted counter samples, shared by 1/n
    EnergyEstimate energy;            ///< over `counted_time`
    ClockPoint asked;                 ///< for most of the time
    ClockPoint applied;               ///< for most of the time
    Megahertz held = auto_clock;      ///< median over time, by cycles; 0 = not counted
    double held_share = 0;            ///< share of the time within 2 % of `held`, 0 to 1
    /// The clocks that held, those within 2 % as one, the longest first. An interval in which a
    /// switch arrived counts for both clocks. Empty where cycles are not counted.
    std::vector<ClockShare> held_clocks{};
    /// Mean power by interpolated counter differences, of scopes longer than 20 counter periods.
    std::optional<Watts> direct_power;
    bool direct_disagrees = false;  ///< `direct_power` lies outside the attributed interval
    bool kept = false;              ///< bound to `KeepClock`: listed, not counted
    KernelScopes scopes{};
    /// Share of the time, 0 to 1, in which the clock that was asked for held: by cycles, where
    /// these are counted, else by what the device was written.
    double asked_share = 1;
    /// What `energy` starts from, where the kernel was repeated.
    std::optional<RepeatedFigure> repeated{};
};

/// Kernels that always ran in the same mix: their energy is known together and not one by one.
struct KernelGroup {
    std::vector<KernelKey> kernels;
    bool with_idle = false;  ///< the time between kernels belongs to the mix as well
    EnergyEstimate energy;
};

/// The joules of an iteration, or of a scope that encloses others (forward, backward, optimizer):
/// of all that ran in it, counted once. They are told where those of its kernels may not be.
struct EnergyLevel {
    bool iteration = false;
    KernelKey scope;                 ///< of an enclosing scope
    std::uint64_t runs = 0;          ///< metered ones that have ended
    Seconds time{0};                 ///< of the runs
    Seconds run_time_half_width{0};  ///< 95 %, of the mean time of a run; 0: too few runs
    Seconds counted_time{0};         ///< of it, under trusted counter samples
    EnergyEstimate energy;           ///< over `time`: what ran outside the samples drew as within

    /// The mean energy of a run.
    [[nodiscard]] EnergyEstimate per_run() const {
        if (!energy.resolved || runs == 0) return {};
        const double share = 1 / static_cast<double>(runs);
        return {energy.joules * share, energy.half_width * share, true,
                energy.sensor_half_width * share};
    }
};

/// A sensor outside the GPU beside the board's counter, since the GPU was opened.
struct ReferenceTotals {
    std::string name;
    Joules joules;            ///< by the sensor
    Seconds time{0};          ///< in this time
    Joules counter;           ///< by the board's counter
    Seconds counter_time{0};  ///< in this time; it begins and ends up to a counter's period apart

    /// The counter's mean power as a multiple of the sensor's; 0 where the latter shows none.
    [[nodiscard]] double ratio() const {
        const double watts = (joules / time).count;
        return watts > 0 ? (counter / counter_time).count / watts : 0;
    }
};

/// The time with no kernel while the device had been written one clock: gaps, waits and rests.
struct ClockRest {
    ClockPoint clock;
    Seconds time{0};        ///< metered, under trusted samples
    EnergyEstimate energy;  ///< by the counter's intervals in which nothing else was
};

/// Where the joules of the counter went: `kernels + idle + unexplained = counter`.
struct EnergyTotals {
    Joules counter;           ///< trusted joules of the metered time
    EnergyEstimate kernels;   ///< all kernels together, resolved or not one by one
    EnergyEstimate idle;      ///< time with no kernel; among `kernels` if it is below 0.1 %
    Joules unexplained;       ///< the rest: printed, never spread
    Seconds counted_time{0};  ///< metered time under trusted samples
    Seconds idle_time{0};     ///< of it, with no kernel
    Joules outside;           ///< trusted joules outside the metered time
    Joules unexplained_half_width{0};  ///< of the 95 % interval of `unexplained`
    std::vector<ClockRest> rests{};    ///< `idle_time` by clock, the longest first
    EnergyEstimate together{};         ///< `kernels` and `idle`, where they are not told apart, too
    std::optional<ReferenceTotals> reference{};  ///< where `GpuOptions::reference` names a sensor
};

/// How readings most likely see the power of the board; docs/measuring.md has the model.
struct FoundSensor {
    Seconds delay{0};   ///< from the moment that a reading shows to its timestamp
    Seconds memory{0};  ///< time constant of a filter of first order; 0: none
    Seconds window{0};  ///< length of a mean; 0: none, or that of a counter's row
    Seconds rise{0};    ///< time constant with which the power follows the load
};

/// What the attribution rests on.
struct AttributionFit {
    std::string source = "energy counter";
    std::uint64_t rows = 0;          ///< metered counter intervals
    std::uint64_t refused_rows = 0;  ///< more of them, whose reading is impossible
    double autocorrelation = 0;      ///< of what a row leaves unexplained with the row before
    Watts scatter{0};       ///< standard deviation of an interval's power from what is explained
    bool whitened = false;  ///< rows were fitted less what those before them foretell
    /// Where kernels were repeated: what their powers are in place, as a multiple of those
    /// repeated, and the relative standard deviation of one kernel's from that multiple.
    double repeated_scale = 1;
    double repeated_spread = 0;
    std::optional<FoundSensor> sensor{};  ///< where it was sought
    /// Of the energies' errors, J^2: of all kernels, as `Report::rows` has them, then of idle.
    std::vector<std::vector<double>> covariance;

    [[nodiscard]] double refused_share() const {
        const auto all = static_cast<double>(rows + refused_rows);
        return all > 0 ? static_cast<double>(refused_rows) / all : 0;
    }
};

/// What became of the scopes: each is in exactly one of the counts from `switches` to `followed`.
struct ScopeCounts {
    std::uint64_t scopes = 0;
    std::uint64_t switches = 0;          ///< the device was changed for them
    std::uint64_t stream_redundant = 0;  ///< an enclosing scope asked the same, or none is lower
    std::uint64_t device_redundant = 0;  ///< the verified state already held
    std::uint64_t not_worth_it = 0;      ///< the gate refused: see each kernel's `scopes.gate`
    std::uint64_t missed = 0;            ///< over between two looks of the listener
    std::uint64_t overtaken = 0;         ///< over before their turn came
    std::uint64_t pending = 0;           ///< not yet reached by their stream, or under way
    std::uint64_t refused = 0;           ///< the controller is disarmed
    std::uint64_t kept = 0;              ///< `KeepClock`
    std::uint64_t captured = 0;          ///< recorded into a graph; its replays are not counted
    std::uint64_t measured = 0;          ///< of a GPU that is measured only
    std::uint64_t followed = 0;          ///< between two boundaries of a plan that is followed
    std::uint64_t unmetered = 0;         ///< of all scopes, those without an interval
    std::uint64_t writes = 0;            ///< clock points written to the device
};

/// How well a plan of segments was followed. Times are those of the plan's own figures.
struct FollowedShare {
    std::uint64_t launches = 0;
    std::uint64_t lost_launches = 0;  ///< that came while their place in the plan was not known
    Seconds time{0};
    Seconds lost_time{0};
    std::uint64_t left_out = 0;  ///< launches of the plan that did not come
    std::uint64_t added = 0;
    std::uint64_t swapped = 0;
    std::uint64_t replaced = 0;
    std::uint64_t times_lost = 0;
    std::vector<std::pair<std::string, std::uint64_t>> mismatch;  ///< most often first
    bool given_up = false;  ///< the plan is of another program

    /// Of the time, or of the launches where the plan knows no times.
    [[nodiscard]] double share() const {
        if (time > Seconds{0}) return 1 - lost_time / time;
        if (launches == 0) return 0;
        return 1 - static_cast<double>(lost_launches) / static_cast<double>(launches);
    }
};

/// What `GpuOptions::idle_clock` did. The energy of the time without work is that of
/// `EnergyTotals::idle`.
struct IdleClockShare {
    ClockPoint clock{};
    std::uint64_t times = 0;  ///< the clock was lowered
    Seconds time{0};          ///< at it
    Seconds waking{0};        ///< from work to the clocks' return, at most, of all wakes
};

/// What a GPU did under kdvfs.
struct Report {
    DeviceInfo device;
    bool measure_only = false;  ///< clocks were not set, by explicit choice
    ScopeCounts scopes;
    std::vector<ReportRow> rows;
    std::vector<KernelGroup> groups;
    std::vector<EnergyLevel> levels;  ///< the iteration first, then the longest first
    EnergyTotals totals;
    AttributionFit fit;
    std::optional<FollowedShare> followed;     ///< where a plan of segments is followed
    std::optional<IdleClockShare> idle_clock;  ///< where one was asked for
    std::vector<std::string> notes;            ///< sentences a reader must not miss
};

/// "12.3 J +- 0.4", or "unresolved".
KDVFS_INLINE std::string to_string(const EnergyEstimate& energy);

/// A plain, aligned table. Simulated joules are called simulated in the heading.
KDVFS_INLINE std::ostream& operator<<(std::ostream& out, const Report& report);

}  // namespace kdvfs::inline v0_3::measure

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/report_text.hpp>
#endif
