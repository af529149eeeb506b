// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/kernel.hpp>
#include <kdvfs/core/units.hpp>
#include <kdvfs/device/device_info.hpp>

#include <cstdint>
#include <optional>
#include <string>
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
    Joules counter;                    ///< trusted joules of the metered time
    EnergyEstimate kernels;            ///< all kernels together, told or not one by one
    EnergyEstimate idle;               ///< time with no kernel
    Joules unexplained;                ///< the rest: printed, never spread
    Seconds counted_time{0};           ///< metered time under trusted samples
    Seconds idle_time{0};              ///< of it, with no kernel
    Joules outside;                    ///< trusted joules outside the metered time
    Joules unexplained_half_width{0};  ///< of the 95 % interval of `unexplained`
};

/// What the attribution rests on.
struct AttributionFit {
    std::string source = "energy counter";
    std::uint64_t rows = 0;          ///< metered counter intervals
    std::uint64_t refused_rows = 0;  ///< more of them, whose reading is impossible
    double autocorrelation = 0;      ///< of what a row leaves unexplained with the row before
    Watts scatter{0};       ///< standard deviation of an interval's power from what is explained
    bool whitened = false;  ///< rows were fitted less what those before them foretell
    /// Of the energies' errors, J^2: of all kernels, as `Report::rows` has them, then of idle.
    std::vector<std::vector<double>> covariance;

    [[nodiscard]] double refused_share() const {
        const auto all = static_cast<double>(rows + refused_rows);
        return all > 0 ? static_cast<double>(refused_rows) / all : 0;
    }
};

/// What became of the scopes: each is in exactly one of the counts from `switches` to `captured`.
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
    std::uint64_t unmetered = 0;  ///< of all scopes, those without an interval
};

/// What a GPU did under kdvfs.
struct Report {
    DeviceInfo device;
    bool measure_only = false;  ///< clocks were not set, by explicit choice
    ScopeCounts scopes;
    std::vector<ReportRow> rows;
    std::vector<KernelGroup> groups;
    EnergyTotals totals;
    AttributionFit fit;
    std::vector<std::string> notes;  ///< sentences a reader must not miss
};

}  // namespace kdvfs::measure
