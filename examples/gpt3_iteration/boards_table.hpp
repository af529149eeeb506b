// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_iteration/published_plans.hpp>
#include <examples/gpt3_xl/boards.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The same iteration on five simulated boards.
namespace gpt3 {

/// What clocks save on one board within one bound. Energies in % against auto, negative = saved.
struct BoardSaving {
    std::string name;
    bool fitted = false;
    double bound_pct = 0;
    double best_static_pct = 0;
    double kernels_pct = 0;
    /// The range of `kernels_pct` over the assumptions of a board that was not fitted.
    double least_pct = 0, most_pct = 0;
    std::string accuracy{};  ///< as `simulated::Board`

    [[nodiscard]] double beyond_static_pct() const {
        return 100 * ((100 + kernels_pct) / (100 + best_static_pct) - 1);
    }
};

/// The error of a fitted kernel's energy at best points that were not fitted: median of the RTX
/// 3080 Ti by two-fold cross-validation (docs/fit.md).
inline constexpr double held_out_energy_error_pct = 2.39;

/// The costs of each kernel at each clock point, in steady state.
inline kdvfs::tune::CostTable steady_costs(const Case& job) {
    kdvfs::tune::Profile profile{"simulated " + job.board.name};
    for (std::size_t entry = 0; entry < kernel_count; ++entry) {
        kdvfs::tune::ProfileRow row;
        row.key.name = published_table[entry].name;
        row.group = pass_of(entry);
        row.count = static_cast<std::uint32_t>(published_table[entry].repeats);
        for (const kdvfs::ClockPoint point : job.points) {
            const auto run = kdvfs::simulated::operate(job.board, job.kernels[entry], point);
            row.clock = point;
            row.cost = {run.time, {run.power.count * run.time.count()}};
            profile.add(row);
        }
    }
    return kdvfs::tune::mean_costs(profile);
}

inline double saving_pct(const kdvfs::tune::CostTable& table, double bound_pct,
                         kdvfs::tune::Aggregate aggregate) {
    const auto objective =
        bound_pct > 0 ? kdvfs::tune::relaxed_waste(bound_pct / 100) : kdvfs::tune::strict_waste();
    return kdvfs::tune::make_plan(table, objective, aggregate).energy_pct();
}

/// The board with its assumptions moved: how far volts rise, and what core work costs.
/// @param volts, work factors around 1
inline Case with_assumptions(const Case& job, double volts, double work) {
    Case moved = job;
    for (auto& knot : moved.board.voltage.knots)
        knot.relative_volts = 1 + volts * (knot.relative_volts - 1);
    for (auto& kernel : moved.kernels) kernel.core_energy.count *= work;
    return moved;
}

/// Best static point and a clock for each kernel, at no slowdown, 1 and 5 %, on each board.
inline std::vector<BoardSaving> board_savings() {
    using kdvfs::tune::Aggregate;
    std::vector<BoardSaving> savings;
    for (const std::string_view gpu : {"rtx_3080_ti", "a100", "h100", "mi250x", "mi300x"}) {
        const Case job = *find_case(gpu);
        std::vector<kdvfs::tune::CostTable> variants;
        if (!job.fitted)
            for (const double volts : {0.7, 1.3})
                for (const double work : {0.7, 1.3})
                    variants.push_back(steady_costs(with_assumptions(job, volts, work)));
        const kdvfs::tune::CostTable table = steady_costs(job);
        for (const double bound_pct : {0.0, 1.0, 5.0}) {
            BoardSaving saving{job.board.name, job.fitted, bound_pct};
            saving.best_static_pct = saving_pct(table, bound_pct, Aggregate::single);
            saving.kernels_pct = saving_pct(table, bound_pct, Aggregate::global);
            saving.least_pct = saving.most_pct = saving.kernels_pct;
            for (const auto& variant : variants) {
                const double pct = saving_pct(variant, bound_pct, Aggregate::global);
                saving.least_pct = std::max(saving.least_pct, pct);
                saving.most_pct = std::min(saving.most_pct, pct);
            }
            saving.accuracy = job.board.accuracy;
            savings.push_back(saving);
        }
    }
    return savings;
}

}  // namespace gpt3
