// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/kernel_model.hpp>

#include <gsl/assert>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kdvfs::inline v0_3::simulated {

namespace detail {

/// A core clock (a real number: firmware dithers between steps), the memory state it runs with,
/// and whether the memory clock was left to the board.
struct HeldClocks {
    double core_mhz;
    const MemoryState* memory;
    bool memory_auto;
};

/// Caps are soft: the highest memory state not above the cap, and the lowest of all core limits.
inline HeldClocks held_clocks(const Board& board, ClockPoint cap) {
    const auto& states = board.memory_states;
    auto state = states.end() - 1;
    if (cap.memory != auto_clock) {
        while (state != states.begin() && state->clock > cap.memory) --state;
    }
    Megahertz core = board.core_max;
    if (cap.core != auto_clock) core = std::min(core, cap.core);
    if (state->core_limit != auto_clock) core = std::min(core, state->core_limit);
    core = std::max(core, board.core_min);
    return {static_cast<double>(core.count), &*state, cap.memory == auto_clock};
}

inline double relative_volts(const Board& board, const HeldClocks& held) {
    const AutoMemoryVoltage& extra = board.auto_memory_voltage;
    double volts = board.voltage.at(held.core_mhz);
    if (held.memory_auto && extra.rise > 0 && held.core_mhz > extra.onset_mhz) {
        volts += extra.rise *
                 std::pow((held.core_mhz - extra.onset_mhz) / extra.span_mhz, extra.exponent);
    }
    return volts;
}

/// (a^p + b^p)^(1/p), scaled so that no power overflows.
inline double smooth_max(double a, double b, double p) {
    const double high = std::max(a, b);
    if (high <= 0) return 0;
    return high * std::pow(1 + std::pow(std::min(a, b) / high, p), 1 / p);
}

inline double kernel_seconds(const Board& board, const KernelModel& kernel,
                             const HeldClocks& held) {
    const double highest = board.memory_states.back().clock.count;
    const double bandwidth = held.memory->clock.count * held.memory->efficiency / highest;
    const double core = kernel.core_time.count() * board.reference_core.count / held.core_mhz;
    const double memory = kernel.memory_time.count() / bandwidth;
    return smooth_max(core, memory, kernel.overlap) + kernel.fixed_time.count();
}

/// What the board draws at these clocks before any work is done.
inline double overhead_watts(const Board& board, const HeldClocks& held, double volts) {
    const CoreOverhead& core = board.core_overhead;
    return board.static_power.count + held.memory->power.count +
           core.leakage.count * std::pow(volts, core.leakage_exponent) +
           core.clock_tree_watts_per_ghz * 1e-3 * held.core_mhz * volts * volts;
}

struct TimeAndPower {
    double seconds;
    double watts;
};

inline TimeAndPower run_at(const Board& board, const KernelModel& kernel, const HeldClocks& held) {
    const double volts = relative_volts(board, held);
    const double seconds = kernel_seconds(board, kernel, held);
    double watts = overhead_watts(board, held, volts);
    if (seconds > 0) {
        watts += (kernel.core_energy.count * volts * volts + kernel.memory_energy.count) / seconds;
    }
    return {seconds, watts};
}

/// Lowers the core clock until `excess` of clock and watts, which rises with the clock, is zero,
/// and returns what then runs. The Illinois variant of false position.
/// @param high what runs at the clock that is held so far
template <class Excess>
TimeAndPower run_lowered(const Board& board, const KernelModel& kernel, HeldClocks& held,
                         TimeAndPower high, double scale, Excess excess) {
    double above_mhz = held.core_mhz;
    double above = excess(above_mhz, high.watts);
    held.core_mhz = board.core_min.count;
    TimeAndPower result = run_at(board, kernel, held);
    double below_mhz = held.core_mhz;
    double below = excess(below_mhz, result.watts);
    if (below >= 0) return result;  // nothing left to lower
    for (int step = 0, side = 0; step < 60; ++step) {
        held.core_mhz = (above_mhz * below - below_mhz * above) / (below - above);
        result = run_at(board, kernel, held);
        const double off = excess(held.core_mhz, result.watts);
        if (std::abs(off) <= 1e-9 * scale) break;
        if (off > 0) {
            above_mhz = held.core_mhz;
            above = off;
            if (side == 1) below /= 2;
            side = 1;
        } else {
            below_mhz = held.core_mhz;
            below = off;
            if (side == -1) above /= 2;
            side = -1;
        }
    }
    return result;
}

/// The core clock that holds under a requested limit, and what runs at it.
inline TimeAndPower run_below_limit(const Board& board, const KernelModel& kernel, HeldClocks& held,
                                    ClockPoint cap) {
    const TimeAndPower at_limit = run_at(board, kernel, held);
    if (board.limit_droop <= 0 || cap.core == auto_clock || cap.core >= board.core_max ||
        held.core_mhz <= board.core_min.count)
        return at_limit;
    const double limit = held.core_mhz;
    return run_lowered(board, kernel, held, at_limit, limit, [&](double mhz, double watts) {
        const double load = std::min(watts / board.power_cap.count, 1.0);
        return mhz - limit * (1 - board.limit_droop * load);
    });
}

inline Megahertz rounded(double mhz) { return {static_cast<std::uint32_t>(mhz + 0.5)}; }

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE KernelModel roofline(const Board& board, const KernelWork& work,
                                  const Utilisation& utilisation) {
    const Throughput& peak = board.throughput;
    Expects(peak.matrix_flops_per_cycle > 0 && peak.vector_flops_per_cycle > 0);
    Expects(peak.cache_bytes_per_cycle > 0 && peak.memory_bytes_per_second > 0);
    const double cycles_per_second = 1e6 * board.reference_core.count;
    const double matrix_cycles =
        work.matrix_flops / (peak.matrix_flops_per_cycle * utilisation.matrix);
    const double vector_cycles =
        work.vector_flops / (peak.vector_flops_per_cycle * utilisation.vector);
    const double cache_cycles =
        work.memory_bytes / (peak.cache_bytes_per_cycle * utilisation.memory);
    constexpr double picojoule = 1e-12;

    KernelModel model;
    model.core_time =
        Seconds{std::max({matrix_cycles, vector_cycles, cache_cycles}) / cycles_per_second};
    model.memory_time =
        Seconds{work.memory_bytes / (peak.memory_bytes_per_second * utilisation.memory)};
    model.fixed_time = peak.launch_overhead;
    model.overlap = 6;  // the middle of the 4 to 10 found for kernels that overlap well
    model.core_energy = {picojoule * work.toggling *
                         (work.matrix_flops * peak.matrix_picojoules_per_flop +
                          work.vector_flops * peak.vector_picojoules_per_flop +
                          work.memory_bytes * peak.cache_picojoules_per_byte)};
    model.memory_energy = {picojoule * work.memory_bytes * peak.memory_picojoules_per_byte};
    return model;
}

KDVFS_INLINE OperatingPoint operate(const Board& board, const KernelModel& kernel, ClockPoint cap) {
    detail::HeldClocks held = detail::held_clocks(board, cap);
    detail::TimeAndPower run = detail::run_below_limit(board, kernel, held, cap);
    const double watts = board.power_cap.count;
    const bool power_limited = run.watts > watts && held.core_mhz > board.core_min.count;
    if (power_limited && board.limited_memory != auto_clock) {
        const auto lowered = lowered_to(cap, {auto_clock, board.limited_memory});
        held.memory = detail::held_clocks(board, lowered).memory;
        run = detail::run_at(board, kernel, held);
    }
    if (power_limited && run.watts > watts) {
        run = detail::run_lowered(board, kernel, held, run, watts,
                                  [&](double, double drawn) { return drawn - watts; });
    }
    return {Seconds{run.seconds}, Watts{run.watts}, detail::rounded(held.core_mhz),
            held.memory->clock, power_limited};
}

KDVFS_INLINE OperatingPoint operate_below(const Board& board, const KernelModel& kernel,
                                          ClockPoint cap, double ceiling_mhz) {
    detail::HeldClocks held = detail::held_clocks(board, cap);
    detail::TimeAndPower run = detail::run_below_limit(board, kernel, held, cap);
    const double allowed = std::max(ceiling_mhz, static_cast<double>(board.core_min.count));
    const bool power_limited = allowed < held.core_mhz;
    if (power_limited) {
        held.core_mhz = allowed;
        run = detail::run_at(board, kernel, held);
    }
    return {Seconds{run.seconds}, Watts{run.watts}, detail::rounded(held.core_mhz),
            held.memory->clock, power_limited};
}

KDVFS_INLINE Board at_temperature(const Board& board, double celsius) {
    Board other = board;
    other.core_overhead.leakage =
        board.core_overhead.leakage *
        std::exp(board.thermal.leakage_per_kelvin * (celsius - board.thermal.given_at_celsius));
    return other;
}

KDVFS_INLINE KernelModel sharing_the_board(const Board& board, std::span<const KernelModel> kernels,
                                           std::span<double> launches) {
    Expects(!kernels.empty() && launches.size() == kernels.size());
    const detail::HeldClocks top{static_cast<double>(board.reference_core.count),
                                 &board.memory_states.back(), true};
    KernelModel all{};
    all.overlap = 0;
    double first = 0;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        const KernelModel& one = kernels[i];
        const double alone = detail::kernel_seconds(board, one, top);
        launches[i] = std::numeric_limits<double>::infinity();
        if (alone <= 0) continue;
        if (first <= 0) first = alone;
        const double n = launches[i] = first / alone;
        all.core_time = all.core_time + one.core_time * n;
        all.memory_time = all.memory_time + one.memory_time * n;
        all.fixed_time = all.fixed_time + one.fixed_time * n;
        all.core_energy = all.core_energy + one.core_energy * n;
        all.memory_energy = all.memory_energy + one.memory_energy * n;
        all.overlap += one.overlap / static_cast<double>(kernels.size());
    }
    return all;
}

KDVFS_INLINE Watts idle_power(const Board& board, ClockPoint cap) {
    const ClockPoint idle_cap = lowered_to(cap, {auto_clock, board.idle_memory});
    detail::HeldClocks held = detail::held_clocks(board, idle_cap);
    if (board.idle_core != auto_clock) {
        held.core_mhz = std::min(held.core_mhz, static_cast<double>(board.idle_core.count));
    }
    return {detail::overhead_watts(board, held, detail::relative_volts(board, held))};
}

#endif

}  // namespace kdvfs::inline v0_3::simulated
