// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/units.hpp>
#include <kdvfs/device/simulated/board.hpp>

#include <gsl/assert>

#include <algorithm>

namespace kdvfs::simulated {

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
inline KernelModel roofline(const Board& board, const KernelWork& work,
                            const Utilisation& utilisation = {}) {
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
    model.core_energy = {picojoule * (work.matrix_flops * peak.matrix_picojoules_per_flop +
                                      work.vector_flops * peak.vector_picojoules_per_flop +
                                      work.memory_bytes * peak.cache_picojoules_per_byte)};
    model.memory_energy = {picojoule * work.memory_bytes * peak.memory_picojoules_per_byte};
    return model;
}

}  // namespace kdvfs::simulated
