// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/tune/excluded_clocks.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/switch_costs.hpp>
#include <kdvfs/units.hpp>
#include <tools/cli/tuning_folder.hpp>

#include <cstddef>
#include <string>

/// The plan of a program, from what a tuning has measured.
namespace cli {

/// What the plan, or the plans of unequal ranks together, promise.
struct Promise {
    kdvfs::tune::Plan plan;    ///< of an iteration
    std::string hash;          ///< of the plan files
    std::size_t segments = 0;  ///< of all plans; 0 where kernels are planned one by one
    std::size_t plans = 0;
};

/// How a program that followed plans differed from what they promised.
struct PlanCorrection {
    kdvfs::Seconds per_switch{0};  ///< that an iteration took longer, by switches of a clock
    kdvfs::Watts power{};          ///< in that time
    double time = 1;               ///< of launches at other clocks than the baseline
    double energy = 1;

    void apply(kdvfs::tune::CostTable& table) const;
    void apply(kdvfs::tune::SwitchCosts& costs) const;
};

/// What plans are made with.
struct PlanningOptions {
    kdvfs::tune::Objective objective;
    kdvfs::tune::ExcludedClocks excluded;
    std::string switch_latency;
    PlanCorrection correction{};

    /// What launches are taken to cost.
    [[nodiscard]] kdvfs::tune::CostTable costs(const kdvfs::tune::Profile& profile) const;
};

/// Plans what has been measured; ranks that are equal share a plan.
/// @throws Error (invalid_input, io)
Promise make_plan(const TuningFolder& folder, const PlanningOptions& planning);

}  // namespace cli
