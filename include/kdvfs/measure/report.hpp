// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/kernel.hpp>
#include <kdvfs/core/units.hpp>
#include <kdvfs/device/device_info.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// An energy with its 95 % interval, joules +- half_width; or, where the samples do not say, not a
/// number at all: `told` is false, `joules` is 0, and reports print "too_short_to_tell".
struct EnergyEstimate {
    Joules joules;
    Joules half_width;
    bool told = false;
};

/// One kernel and variant. Energies and times are those of the metered calls.
struct ReportRow {
    KernelKey kernel;
    std::uint64_t calls = 0;          ///< scopes that ended, metered or not
    std::uint64_t metered_calls = 0;  ///< calls whose interval is known
    Seconds time{0};                  ///< wall time of the metered calls
    Seconds counted_time{0};          ///< of it, under trusted counter samples, shared by 1/n
    EnergyEstimate energy;            ///< over `counted_time`
    ClockPoint asked;                 ///< for most of the time
    ClockPoint applied;               ///< for most of the time
    Megahertz held = auto_clock;      ///< median over time of cycles / wall time; 0 = not counted
    double held_share = 0;            ///< share of the time within 2 % of `held`, 0 to 1
    /// Mean power by interpolated counter differences, of scopes longer than 20 counter periods.
    std::optional<Watts> direct_power;
    bool direct_disagrees = false;  ///< `direct_power` lies outside the attributed interval
    bool kept = false;              ///< bound to `KeepClock`: listed, not counted
};

/// Kernels that always ran in the same mix: their energy is known together and not one by one.
struct KernelGroup {
    std::vector<KernelKey> kernels;
    bool with_idle = false;  ///< the time between kernels belongs to the mix as well
    EnergyEstimate energy;
};

/// Where the joules of the counter went: `kernels + idle + unexplained = counter`.
struct EnergyTotals {
    Joules counter;           ///< trusted joules of the metered time
    EnergyEstimate kernels;   ///< all kernels together, told or not one by one
    EnergyEstimate idle;      ///< time with no kernel
    Joules unexplained;       ///< the rest: printed, never spread
    Seconds counted_time{0};  ///< metered time under trusted samples
    Seconds idle_time{0};     ///< of it, with no kernel
    Joules outside;           ///< trusted joules outside the metered time
};

/// What became of the scopes: each is in exactly one of the counts from `switches` to `followed`.
struct ScopeCounts {
    std::uint64_t scopes = 0;
    std::uint64_t switches = 0;
    std::uint64_t stream_elided = 0;  ///< an enclosing scope had the same request
    std::uint64_t device_elided = 0;  ///< the verified state already held
    std::uint64_t not_worth_it =
        0;                        ///< shorter than a switch takes, beforehand or as it turned out
    std::uint64_t refused = 0;    ///< the controller is disarmed
    std::uint64_t kept = 0;       ///< `KeepClock`
    std::uint64_t captured = 0;   ///< recorded into a graph; its replays are not counted
    std::uint64_t followed = 0;   ///< between two boundaries of a plan that is followed
    std::uint64_t unmetered = 0;  ///< of all scopes, those without an interval
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
    std::vector<std::pair<std::string, std::uint64_t>> stumbled_over;  ///< most often first
    bool given_up = false;  ///< the plan is of another program

    /// Of the time, or of the launches where the plan knows no times.
    [[nodiscard]] double share() const {
        if (time > Seconds{0}) return 1 - lost_time / time;
        if (launches == 0) return 0;
        return 1 - static_cast<double>(lost_launches) / static_cast<double>(launches);
    }
};

/// What a GPU did under kdvfs.
struct Report {
    DeviceInfo device;
    bool measure_only = false;  ///< clocks were not set, by explicit choice
    ScopeCounts scopes;
    std::vector<ReportRow> rows;
    std::vector<KernelGroup> groups;
    EnergyTotals totals;
    std::optional<FollowedShare> followed;  ///< where a plan of segments is followed
    std::vector<std::string> notes;  ///< sentences a reader must not miss
};

}  // namespace kdvfs::measure
