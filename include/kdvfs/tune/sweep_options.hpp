// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/tune/excluded_clocks.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// Clock points to measure a device at: core clocks over its whole range and auto, at each memory
/// clock and at auto.
/// @param most_core core clocks at most; fewer where the device lists fewer. About 16 are enough:
///                  24 points of both clocks were found to reach 80 to 98 % of the optimum
KDVFS_INLINE std::vector<ClockPoint> clock_grid(const SupportedClocks& clocks,
                                                std::size_t most_core = 16);

/// How long work runs at a clock point before it is measured, and while it is.
struct BlockOptions {
    /// From a change of clocks to the measurement, at least: for temperatures to follow.
    Duration settle = std::chrono::seconds{1};
    /// From a request to its effect on this device; ten times that is waited, at least.
    Duration switch_latency = std::chrono::milliseconds{10};
    /// Work is measured for so long, and for `counter_rows` samples of the energy counter.
    Duration measured = std::chrono::milliseconds{500};
    std::size_t counter_rows = 200;

    [[nodiscard]] Duration settling() const { return std::max(settle, 10 * switch_latency); }
    /// @param sample_period of the energy counter; 0 where unknown
    [[nodiscard]] Duration measuring(Duration sample_period) const;
};

/// How a program is swept while it does its work (`Sweeping`).
struct SweepOptions {
    /// Sweep file to append to, or to go on with. Empty: the profile stays in memory.
    std::filesystem::path file{};
    /// What to measure at; empty: `clock_grid` of the device. The baseline is added.
    std::vector<ClockPoint> points{};
    /// What the program must not run at; the baseline always may be.
    ExcludedClocks excluded{};
    /// What plans will be compared with, and what runs between measurements.
    ClockPoint baseline{};
    /// What the plan is to make small: decides which points are worth measuring.
    Objective objective = relaxed_waste(0.01);
    /// The sweep ends when so much of the baseline's energy is expected to be left in points that
    /// were not measured.
    double regret_pct = 0.1;
    /// How much longer the program is taken to run: the sweep also ends when the points that are
    /// left promise less in that time than what is known would save while the sweep goes on, once
    /// those between measured ones have been measured, too, as far as `start_loss` allows.
    /// 0: for as long as it takes.
    Seconds horizon{0};
    /// How much longer the run may take than at the baseline: 0.05 is 5 %. Blocks at low clocks
    /// wait until enough iterations have gone by.
    double max_slowdown = 0.05;
    /// Time that the run may lose before its slowdown is bounded.
    Duration start_loss{0};
    /// Measurements of each point; noise can be told from two.
    std::uint32_t samples = 2;
    BlockOptions block{};
    /// The sweep begins once time and power of an iteration are steady (within 0.5 %), or after so
    /// long. arXiv 2601.08539 warms up for 25 s.
    Duration longest_warm_up = std::chrono::seconds{60};
    std::uint32_t warm_up_iterations = 0;  ///< at least
    /// The sweep ends after so long with what it has measured; where that is no clock point besides
    /// the baseline, `next_iteration` throws and says what it would take. So it does where not even
    /// an iteration at the baseline could be measured in `longest_without_any`.
    Duration longest = std::chrono::hours{24};
    Duration longest_without_any = std::chrono::minutes{10};
    /// The group of a kernel, for plans of one clock per pass; none by default.
    std::function<std::string(const KernelKey&)> group_of{};
    std::uint64_t seed = 1;  ///< of the order of blocks
};

/// About how long a sweep takes, in the GPU's time: a guess for people, made before anything has
/// been measured.
struct ExpectedSweep {
    Seconds warm_up{0};    ///< of each run that has a part in it
    Seconds measuring{0};  ///< of all runs together, behind their warm-ups

    /// Runs that take so long each.
    [[nodiscard]] double runs(Seconds run) const {
        const Seconds of_use = std::max(run - warm_up, run * 0.1);
        return std::max(1.0, std::ceil(measuring / of_use));
    }
};

/// @param points of the grid
/// @param iteration of the program, at the baseline
/// @param sample_period of the energy counter, as it is read
KDVFS_INLINE ExpectedSweep expected_sweep(const SweepOptions& options, std::size_t points,
                                          Seconds iteration, Duration sample_period);

/// How far a sweep has come.
struct SweepProgress {
    std::size_t points_measured = 0;
    std::size_t points = 0;
    std::size_t points_given_up = 0;  ///< their clocks did not hold while they were measured
    std::uint64_t blocks_dropped = 0;
    std::uint64_t iterations = 0;
    double slowdown_pct = 0;         ///< of the run so far, against the baseline
    Seconds lost{0};                 ///< by the run so far, against the baseline
    Joules used{};                   ///< by blocks at other clocks, beyond the baseline's energy
    double expected_regret_pct = 0;  ///< of the baseline's energy; 100 before it can be told
    bool done = false;
};

/// "sweep: 9 of 18 clock points, expected regret 0.4 %, run slowed by 3.1 %".
KDVFS_INLINE std::string to_string(const SweepProgress& progress);

/// Sweep options with what the environment says: `KDVFS_MAX_SLOWDOWN`, the slowdown that the plan
/// may cost, and `KDVFS_RUN_SLOWDOWN`, what the swept run may, in percent; `KDVFS_SWEEP_ROWS`, how
/// many samples of the energy counter a measurement takes: fewer for a first look;
/// `KDVFS_SWEEP_SEED`, a number that draws the order of blocks; and in seconds
/// `KDVFS_SWEEP_BLOCK`, how long clocks settle before a measurement and how long it takes, at
/// least, and `KDVFS_SWEEP_WARM_UP`, how long the sweep waits for steady iterations, at most;
/// `KDVFS_SWEEP_EXCLUDE`, clocks that the program must not run at, as `parse_excluded_clocks`.
/// @throws Error (invalid_input) for what is no percentage, count, time or clock
KDVFS_INLINE SweepOptions sweep_options_from_environment(SweepOptions options = {});

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/sweep_options.hpp>
#endif
