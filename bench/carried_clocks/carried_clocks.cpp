// SPDX-License-Identifier: MIT
//
// carried_clocks
// Clocks that were found for one batch size, carried over to smaller batches (data parallel) and to
// layers split over GPUs (tensor parallel), beside the published figures of arXiv 2601.08539.
//
// Two sets of clocks: those that the paper found (its Table 1), and the strict global plan of the
// simulated RTX 3080 Ti, fitted to that table at batch 40. How kernels change with their shape is a
// prediction:
// - Core time and core energy follow a kernel's FLOPs, where it has matrix products, else its
// bytes.
//   Memory time follows the bytes that must be moved, and what is moved on top, by reading tiles
//   again, the FLOPs.
// - A matrix product is computed in tiles, a wave of one tile on each multiprocessor at a time: the
//   last wave of a small one leaves most of them without work. That takes time and no energy, so
//   the board draws less, its power cap no longer lowers the clock on auto, and a cap on the clock
//   costs more time and saves more energy than at batch 40.
// - Of the energy that the fit found to be independent of the core's voltage, traffic to the memory
//   explains a part; that follows the bytes, the rest the FLOPs.
// - Of the time that a launch takes at any clock 5 us stay.
// Communication is in neither: the paper has one GPU, and splits shapes.
#include <examples/gpt3_xl/clock_points.hpp>
#include <examples/gpt3_xl/fitted_kernels.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <examples/gpt3_xl/kernel_work.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>

namespace {

using namespace kdvfs;
using Kernels = std::array<simulated::KernelModel, gpt3::kernel_count>;

constexpr ClockPoint automatic{};

/// The output of the matrix products of an entry of the table.
struct Product {
    std::size_t kernel;
    double rows;
    double columns;
    double count = 1;
};

std::array<Product, 21> products_of(double batch, double split) {
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
double used(const Product& product) {
    const double high = product.rows / 128;
    const double wide = product.columns / 128;
    const double waves = std::ceil(high) * std::ceil(wide) * product.count / 80;
    return high * wide * product.count / 80 / std::ceil(waves);
}

Kernels kernels_of(double batch, double split) {
    Kernels kernels = gpt3::fitted_kernels;
    const auto work = gpt3::kernel_work_of(batch, split);
    constexpr double bandwidth = 912e9;  // the board's data sheet
    const double joules_per_byte =
        1e-12 * simulated::rtx_3080_ti().throughput.memory_picojoules_per_byte;
    for (std::size_t k = 0; k < kernels.size(); ++k) {
        simulated::KernelModel& kernel = kernels[k];
        const simulated::KernelWork& known = gpt3::kernel_work[k];
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
    const auto found = products_of(40, 1);
    const auto now = products_of(batch, split);
    for (std::size_t i = 0; i < now.size(); ++i)
        kernels[now[i].kernel].core_time *= used(found[i]) / used(now[i]);
    return kernels;
}

tune::Cost cost_of(const simulated::Board& board, const simulated::KernelModel& kernel,
                   ClockPoint clock) {
    const simulated::OperatingPoint point = simulated::operate(board, kernel, clock);
    return {point.time, point.power * point.time};
}

tune::CostTable table_of(const simulated::Board& board, const Kernels& kernels) {
    tune::CostTable table{"simulated " + board.name, automatic, {}};
    for (std::size_t k = 0; k < kernels.size(); ++k) {
        const gpt3::PublishedKernel& published = gpt3::published_table[k];
        tune::KernelCosts costs;
        costs.key.name = published.name;
        costs.group = gpt3::pass_of(k);
        costs.count = static_cast<std::uint32_t>(published.repeats);
        auto points = gpt3::paper_clock_points();
        std::sort(points.begin(), points.end());
        for (const ClockPoint clock : points) {
            if (clock == automatic) costs.baseline = costs.points.size();
            costs.points.push_back({clock, cost_of(board, kernels[k], clock)});
        }
        table.kernels.push_back(std::move(costs));
    }
    return table;
}

/// What an iteration costs with each kernel at its clock.
tune::Cost iteration(const simulated::Board& board, const Kernels& kernels,
                     const std::array<ClockPoint, gpt3::kernel_count>& clocks) {
    tune::Cost sum;
    for (std::size_t k = 0; k < kernels.size(); ++k)
        sum += cost_of(board, kernels[k], clocks[k]) *
               static_cast<double>(gpt3::published_table[k].repeats);
    return sum;
}

}  // namespace

int main() {
    const simulated::Board board = simulated::rtx_3080_ti();
    const tune::Plan plan = tune::make_plan(table_of(board, kernels_of(40, 1)),
                                            tune::strict_waste(), tune::Aggregate::global);
    std::array<ClockPoint, gpt3::kernel_count> own{};
    std::array<ClockPoint, gpt3::kernel_count> papers{};
    for (std::size_t k = 0; k < own.size(); ++k) {
        papers[k] = gpt3::published_table[k].best;
        for (const tune::PlannedKernel& planned : plan.kernels)
            if (planned.key.name == gpt3::published_table[k].name) own[k] = planned.clock;
    }

    struct Case {
        const char* name;
        double batch;
        double split;
        const char* published;
    };
    constexpr Case cases[] = {
        {"batch 40, one GPU", 40, 1, "+0.6 / -14.6 % (re-measured)"},
        {"batch 20", 20, 1, ""},
        {"batch 8", 8, 1, "+0.5 / -14.2 %"},
        {"batch 4", 4, 1, ""},
        {"batch 2", 2, 1, ""},
        {"batch 1", 1, 1, "+3 / -15.3 % (its smallest)"},
        {"tensor parallel 4", 40, 4, "+2.1 / -16.6 %"},
        {"tensor parallel 8", 40, 8, "+2.7 / -17.3 %"},
        {"tensor parallel 16", 40, 16, "+6.5 / -16.2 %"},
    };
    std::printf(
        "Clocks of batch 40 carried over, time and energy against auto; simulated RTX 3080 Ti, a "
        "prediction\n%-20s %18s %16s %16s   %s\n",
        "", "auto", "the paper's", "our plan's", "published");
    for (const Case& c : cases) {
        const Kernels kernels = kernels_of(c.batch, c.split);
        const tune::Cost found = iteration(board, kernels, {});
        std::printf("%-20s %7.3f s %6.0f J", c.name, found.time.count(), found.energy.count);
        for (const auto* clocks : {&papers, &own}) {
            const tune::Cost carried = iteration(board, kernels, *clocks);
            std::printf("  %+5.2f %+6.2f %%", tune::time_percent(carried, found),
                        tune::energy_percent(carried, found));
        }
        std::printf("   %s\n", c.published);
    }
    return 0;
}
