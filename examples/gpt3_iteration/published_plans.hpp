// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_iteration/published_passes.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <examples/gpt3_xl/published_table.hpp>
#include <kdvfs/tune/profile.hpp>

#include <cstddef>
#include <string>

/// The published measurements as profiles, for the same planner that plans the simulated GPU.
namespace gpt3 {

/// The effect of a plan in the paper, in percent against auto.
struct PublishedEffect {
    double time_pct;
    double energy_pct;
};

/// arXiv 2601.08539, its table of plans on one RTX 3080 Ti. Single clocks are not in it.
struct PublishedPlans {
    PublishedEffect pass_waste{-0.10, -2.07};
    PublishedEffect pass_edp{10.21, -25.42};
    PublishedEffect local_waste{-1.78, -11.54};
    PublishedEffect local_edp{10.03, -27.34};
    PublishedEffect global_waste{0.00, -15.64};
    PublishedEffect global_edp{10.28, -27.52};
    PublishedEffect measured_again{0.6, -14.6};  ///< the global plan, 100 pairs of best and auto
};

inline kdvfs::tune::Cost published_cost(const PublishedKernel& kernel) {
    return {kdvfs::Seconds{1e-3 * kernel.time_auto_ms}, {kernel.energy_auto_j}};
}

inline kdvfs::tune::Cost changed(const kdvfs::tune::Cost& cost, double time_pct,
                                 double energy_pct) {
    return {cost.time * (1 + time_pct / 100), cost.energy * (1 + energy_pct / 100)};
}

/// Each kernel at auto and at its published best point.
inline kdvfs::tune::Profile published_points_profile() {
    kdvfs::tune::Profile profile{"RTX 3080 Ti, arXiv 2601.08539, best points"};
    for (const PublishedKernel& kernel : published_table) {
        kdvfs::tune::ProfileRow row;
        row.key.name = kernel.name;
        row.cost = published_cost(kernel);
        row.count = static_cast<std::uint32_t>(kernel.repeats);
        profile.add(row);
        if (kernel.best.is_auto()) continue;
        row.clock = kernel.best;
        row.cost = changed(row.cost, kernel.best_time_pct, kernel.best_energy_pct);
        profile.add(row);
    }
    return profile;
}

/// The two passes at all clock points, each weighing as the kernels do that belong to it.
inline kdvfs::tune::Profile published_passes_profile() {
    kdvfs::tune::Cost forward;
    kdvfs::tune::Cost backward;
    for (std::size_t entry = 0; entry < kernel_count; ++entry) {
        const PublishedKernel& kernel = published_table[entry];
        (pass_of(entry) == "forward" ? forward : backward) +=
            published_cost(kernel) * kernel.repeats;
    }
    kdvfs::tune::Profile profile{"RTX 3080 Ti, arXiv 2601.08539, passes"};
    const auto add = [&](const char* name, kdvfs::ClockPoint point, const kdvfs::tune::Cost& cost) {
        kdvfs::tune::ProfileRow row;
        row.key.name = name;
        row.group = name;
        row.clock = point;
        row.cost = cost;
        profile.add(row);
    };
    for (const PublishedPass& pass : published_passes) {
        add("forward", pass.point,
            changed(forward, pass.forward_time_pct, pass.forward_energy_pct));
        add("backward", pass.point,
            changed(backward, pass.backward_time_pct, pass.backward_energy_pct));
    }
    return profile;
}

}  // namespace gpt3
