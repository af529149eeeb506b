// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_iteration/boards_table.hpp>
#include <examples/gpt3_iteration/followed_run.hpp>
#include <examples/gpt3_iteration/live_run.hpp>
#include <examples/gpt3_iteration/paper_figures.hpp>
#include <examples/gpt3_iteration/published_plans.hpp>
#include <examples/gpt3_iteration/scope_costs.hpp>
#include <examples/gpt3_xl/boards.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>

#include <optional>
#include <vector>

namespace gpt3 {

/// Plans for the same work under both of the paper's objectives, and with 1 % more time allowed.
struct PlansByObjective {
    kdvfs::tune::Plans waste;
    kdvfs::tune::Plans edp;
    kdvfs::tune::Plans relaxed;
};

inline PlansByObjective plan(const kdvfs::tune::Profile& profile) {
    const kdvfs::tune::CostTable table = kdvfs::tune::mean_costs(profile);
    return {kdvfs::tune::make_plans(table, kdvfs::tune::strict_waste()),
            kdvfs::tune::make_plans(table, kdvfs::tune::energy_delay()),
            kdvfs::tune::make_plans(table, kdvfs::tune::relaxed_waste(0.01))};
}

/// What the planner makes of the published measurements.
struct PublishedOutcome {
    PlansByObjective points = plan(published_points_profile());
    PlansByObjective passes = plan(published_passes_profile());
    /// The strict figure of the passes stands on a knife edge: what a little time buys.
    kdvfs::tune::Plan passes_relaxed = kdvfs::tune::make_plan(
        kdvfs::tune::mean_costs(published_passes_profile()), kdvfs::tune::relaxed_waste(0.001),
        kdvfs::tune::Aggregate::per_group);
};

/// Everything the program found out.
struct Outcome {
    PlansByObjective plans;
    PublishedOutcome published{};
    kdvfs::tune::Cost baseline;                ///< live, without scopes
    std::vector<LiveRun> live{};               ///< by switching latency, ascending
    std::vector<FollowedRun> live_followed{};  ///< the same, by plans that know the latency
    ScopeCosts costs{};                        ///< of scopes that never switch
    std::vector<BoardSaving> boards{};         ///< the same work on five boards
    std::optional<PaperFigures> paper{};       ///< of the fitted board
};

}  // namespace gpt3
