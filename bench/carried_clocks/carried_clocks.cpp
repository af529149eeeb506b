// SPDX-License-Identifier: MIT
//
// carried_clocks
// Clocks that were found for one batch size, carried over to smaller batches (data parallel) and to
// layers split over GPUs (tensor parallel), beside the published figures of arXiv 2601.08539.
//
// Two sets of clocks: those that the paper found (its Table 1), and the strict global plan of the
// simulated RTX 3080 Ti, fitted to that table at batch 40. How kernels change with their shape is a
// prediction (`gpt3::carried_kernels`).
// Communication is in neither: the paper has one GPU, and splits shapes.
#include <examples/gpt3_xl/carried_kernels.hpp>
#include <examples/gpt3_xl/clock_points.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>

namespace {

using namespace kdvfs;
using Kernels = std::array<simulated::KernelModel, gpt3::kernel_count>;

constexpr ClockPoint automatic{};

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
    const tune::Plan plan = tune::make_plan(table_of(board, gpt3::carried_kernels(40, 1)),
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
        const Kernels kernels = gpt3::carried_kernels(c.batch, c.split);
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
