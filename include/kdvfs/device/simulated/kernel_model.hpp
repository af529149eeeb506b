// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/units.hpp>

#include <span>

namespace kdvfs::inline v0_3::simulated {

/// One launch of a kernel as the simulated GPU sees it. Its time is
///     T = (Tc^p + Tm^p)^(1/p) + t0
/// with Tc scaling with the core clock and Tm with the memory's bandwidth; its energy beyond the
/// board's own is `core_energy * v^2 + memory_energy`: work costs joules, so that power follows
/// the rate of work.
struct KernelModel {
    Seconds core_time{0};    ///< Tc at the board's reference core clock
    Seconds memory_time{0};  ///< Tm at the board's highest memory state
    Seconds fixed_time{0};   ///< t0, at any clock
    double overlap = 4;      ///< p: 1 = one after the other, large = the longer one hides the other
    Joules core_energy{};    ///< per launch at relative voltage 1
    Joules memory_energy{};  ///< per launch
};

/// What one launch computes and moves.
struct KernelWork {
    double matrix_flops = 0;  ///< on the matrix units, 16-bit inputs
    double vector_flops = 0;  ///< on the vector units, 32-bit; a transcendental counts as several
    double memory_bytes = 0;  ///< read and written, past the caches
    /// Energy of core work against random data: measured 0.5 to 0.65 on buffers of one value
    /// (MI300X), assumed 0.5 to 1.1 for other data.
    double toggling = 1;
};

/// How much of a board's peaks a kernel reaches, 0 to 1.
struct Utilisation {
    double matrix = 0.9;
    double vector = 0.8;
    double memory = 0.9;
};

/// A kernel described by its work, on a board with a `throughput`: a prediction, not a fit.
/// Memory traffic also passes the cache, which runs at the core clock: that is why bandwidth
/// bends down at low core clocks.
/// @pre every peak of the board's throughput is positive.
KDVFS_INLINE KernelModel roofline(const Board& board, const KernelWork& work,
                                  const Utilisation& utilisation = {});

/// How one kernel runs under one cap. Its energy is `power * time`.
struct OperatingPoint {
    Seconds time{0};
    Watts power{};
    Megahertz core{};            ///< that holds, rounded; below the cap where the board says so
    Megahertz memory{};          ///< that holds
    bool power_limited = false;  ///< the power cap lowered the core clock
};

/// The clocks that really hold, the time of one launch and the power drawn meanwhile, for a
/// kernel that has the board to itself in steady state. Pure and allocation-free. Where even
/// `core_min` draws more than the power cap, the excess stays: firmware has nothing left to lower.
KDVFS_INLINE OperatingPoint operate(const Board& board, const KernelModel& kernel, ClockPoint cap);

/// The same at one moment of a board whose power limit is one of the mean: whatever is drawn, the
/// core clock stays below the ceiling that the limiter has set.
KDVFS_INLINE OperatingPoint operate_below(const Board& board, const KernelModel& kernel,
                                          ClockPoint cap, double ceiling_mhz);

/// The same board with its chip at another temperature.
/// @param celsius in steady state `coolant_celsius + kelvin_per_watt * power`
KDVFS_INLINE Board at_temperature(const Board& board, double celsius);

/// One kernel that stands for several that share the board: all get on at once, in equal shares of
/// their own time at the highest clocks. Those that need the same units take turns; a kernel that
/// needs the core and one that needs memory overlap.
/// @param launches filled with how many launches of each kernel the returned one contains
/// @pre not empty
KDVFS_INLINE KernelModel sharing_the_board(const Board& board, std::span<const KernelModel> kernels,
                                           std::span<double> launches);

/// What the board draws under a cap while no kernel runs.
KDVFS_INLINE Watts idle_power(const Board& board, ClockPoint cap);

}  // namespace kdvfs::inline v0_3::simulated

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/device/simulated/kernel_model.hpp>
#endif
