// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/fitted_kernels.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <examples/gpt3_xl/kernel_work.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace gpt3 {

namespace carried {

/// The output of the matrix products of an entry of the table.
struct Product {
    std::size_t kernel;
    double rows;
    double columns;
    double count = 1;
};

inline std::array<Product, 21> products_of(double batch, double split) {
    const double tokens = batch * 1024;
    const double part = 2048 / split;
    const double up = 4 * part;
    const double words = 50304 / split;
    const double heads = batch * 16 / split;
    return {{{2, tokens, 3 * part},   {4, 1024, 1024, heads}, {6, 1024, 128, heads},
             {8, tokens, 2048},       {10, tokens, up},       {12, tokens, 2048},
             {14, tokens, words},     {16, tokens, 2048},     {17, words, 2048},
             {22, tokens, up},        {24, 2048, up},         {26, tokens, 2048},
             {27, up, 2048},          {31, tokens, part},     {32, part, 2048},
             {34, 1024, 1024, heads}, {35, 1024, 128, heads}, {37, 1024, 128, heads},
             {38, 1024, 128, heads},  {41, tokens, 2048},     {42, 3 * part, 2048}}};
}

/// How much of the multiprocessors' time is work: tiles of 128 x 128 (CUTLASS's default for the
/// tensor cores of Ampere) on 80 multiprocessors (GA102 whitepaper).
inline double used(const Product& product) {
    const double high = product.rows / 128;
    const double wide = product.columns / 128;
    const double waves = std::ceil(high) * std::ceil(wide) * product.count / 80;
    return high * wide * product.count / 80 / std::ceil(waves);
}

}  // namespace carried

/// The iteration's kernels at other sizes, predicted from those fitted at batch 40:
/// - Core time and core energy follow a kernel's FLOPs, where it has matrix products, else its
///   bytes. Memory time follows the bytes that must be moved, and what is moved on top, by reading
///   tiles again, the FLOPs.
/// - A matrix product is computed in tiles, a wave of one tile on each multiprocessor at a time:
/// the
///   last wave of a small one leaves most of them without work. That takes time and no energy, so
///   the board draws less, its power cap no longer lowers the clock on auto, and a cap on the clock
///   costs more time and saves more energy than at batch 40.
/// - Of the energy that the fit found to be independent of the core's voltage, traffic to the
/// memory
///   explains a part; that follows the bytes, the rest the FLOPs.
/// - Of the time that a launch takes at any clock 5 us stay.
/// @param batch sequences
/// @param split GPUs that share each layer
inline std::array<kdvfs::simulated::KernelModel, kernel_count> carried_kernels(double batch,
                                                                               double split) {
    using namespace kdvfs;
    auto kernels = fitted_kernels;
    const auto work = kernel_work_of(batch, split);
    constexpr double bandwidth = 912e9;  // the board's data sheet
    const double joules_per_byte =
        1e-12 * simulated::rtx_3080_ti().throughput.memory_picojoules_per_byte;
    for (std::size_t k = 0; k < kernels.size(); ++k) {
        simulated::KernelModel& kernel = kernels[k];
        const simulated::KernelWork& known = kernel_work[k];
        const double bytes = work[k].memory_bytes / known.memory_bytes;
        const double core =
            known.matrix_flops > 0 ? work[k].matrix_flops / known.matrix_flops : bytes;
        const double must = known.memory_bytes / bandwidth / kernel.memory_time.count();
        const double moved = must < 1 ? must * bytes + (1 - must) * core : bytes;
        const Seconds launch = std::min(kernel.fixed_time, Seconds{5e-6});
        const Joules traffic = std::min(
            kernel.memory_energy, Joules{kernel.memory_time.count() * bandwidth * joules_per_byte});
        kernel.memory_energy = traffic * moved + (kernel.memory_energy - traffic) * core;
        kernel.memory_time *= moved;
        kernel.core_time *= core;
        kernel.core_energy = kernel.core_energy * core;
        kernel.fixed_time = launch + (kernel.fixed_time - launch) * core;
    }
    const auto found = carried::products_of(40, 1);
    const auto now = carried::products_of(batch, split);
    for (std::size_t i = 0; i < now.size(); ++i)
        kernels[now[i].kernel].core_time *= carried::used(found[i]) / carried::used(now[i]);
    return kernels;
}

}  // namespace gpt3
