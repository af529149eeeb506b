// SPDX-License-Identifier: MIT
//
// A translation unit of its own: the specifications of charts take a compiler's time.
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/tune/shrunk_costs.hpp>
#include <kdvfs/tune/planner.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/report/frontier_chart.hpp>
#include <tools/cli/report/heat_chart.hpp>
#include <tools/cli/report/inputs.hpp>
#include <tools/cli/report/pipeline_chart.hpp>
#include <tools/cli/report/power_chart.hpp>
#include <tools/cli/report/savings_chart.hpp>
#include <tools/cli/report/waste_chart.hpp>
#include <tools/cli/report_command.hpp>

#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

namespace cli {
namespace report {

/// The plans that a profile allows for the least waste, when no plan file says which were made.
struct KnownPlans {
    std::vector<PlanePoint> points;
    kdvfs::tune::Plan chosen;
};

inline KnownPlans plans_of_file(const PlanInput& input, const kdvfs::tune::CostTable* table,
                                const Noise* noise) {
    using namespace kdvfs::tune;
    KnownPlans known{{{"auto", 0, 0, 0, 0}}, input.plan};
    const auto known_point = [&](Aggregate aggregate, const Cost& cost) {
        PlanePoint point{std::string{to_string(aggregate)}, time_percent(cost, input.plan.baseline),
                         energy_percent(cost, input.plan.baseline), 0, 0};
        if (table == nullptr) return point;
        if (aggregate == input.plan.aggregate) return plan_point(input.plan, *table, *noise);
        if (input.plan.objective != "waste") return point;
        // The file has only totals of it: where the profile leads to the same, its intervals hold.
        const Plan again = make_plan(*table, relaxed_waste(input.plan.max_slowdown), aggregate);
        return again.expected == cost ? plan_point(again, *table, *noise) : point;
    };
    bool has_chosen = input.plan.aggregate == Aggregate::automatic;
    for (const auto& [aggregate, cost] : input.alternatives) {
        known.points.push_back(known_point(aggregate, cost));
        has_chosen = has_chosen || aggregate == input.plan.aggregate;
    }
    if (!has_chosen) known.points.push_back(known_point(input.plan.aggregate, input.plan.expected));
    return known;
}

/// @param bound on the slowdown
inline KnownPlans plans_of_profile(const kdvfs::tune::CostTable& table, const Noise& noise,
                                   double bound) {
    using namespace kdvfs::tune;
    const Plans plans = make_plans(table, relaxed_waste(bound));
    KnownPlans known{{}, plans.global};
    for (const Aggregate aggregate : all_aggregates)
        known.points.push_back(plan_point(plans[aggregate], table, noise));
    return known;
}

inline void add_plan_table(Page& page, const std::vector<PlanePoint>& plans) {
    const auto cell = [](double percent, double half) {
        char text[32];
        std::snprintf(text, sizeof text, " \u00b1 %.2f", half);
        return percent_text(percent) + (half > 0 ? text : "");
    };
    page.table.push_back({"plan", "time", "energy"});
    for (const PlanePoint& plan : plans)
        page.table.push_back(
            {plan.name, cell(plan.time, plan.time_half), cell(plan.energy, plan.energy_half)});
}

inline void add_plan_charts(Page& page, const Inputs& inputs) {
    using namespace kdvfs::tune;
    std::optional<CostTable> table;
    std::optional<Noise> noise;
    if (inputs.profile) {
        table = shrunk_costs(*inputs.profile);
        noise.emplace(*inputs.profile);
    }
    const bool noise_known = noise && noise->known();
    const Plan* const segments = inputs.segments ? &inputs.segments->promise : nullptr;
    const bool bounded = segments != nullptr && std::isfinite(segments->max_slowdown);
    KnownPlans plans =
        inputs.plan
            ? plans_of_file(*inputs.plan, table ? &*table : nullptr, noise ? &*noise : nullptr)
        : table ? plans_of_profile(*table, *noise, bounded ? segments->max_slowdown : 0)
                : KnownPlans{{{"auto", 0, 0, 0, 0}}, *segments};
    std::vector<LaunchStretch> iteration;
    if (segments != nullptr) {
        plans.points.push_back({"segments", segments->time_pct(), segments->energy_pct(), 0, 0});
        if (table) iteration = planned_iteration(*inputs.segments, *table);
        if (!iteration.empty()) {  // what is followed is what is drawn
            plans.chosen = *segments;
            plans.chosen.kernels = followed_kernels(iteration);
        }
    }
    page.title = plans.chosen.gpu;
    page.remarks.push_back(
        "Plans for " + plans.chosen.objective +
        (std::isfinite(plans.chosen.max_slowdown)
             ? ", slowdown up to " + kdvfs::io::to_text(100 * plans.chosen.max_slowdown) + " %"
             : "") +
        ". Percentages are against the baseline (" + to_string(plans.chosen.baseline_clock) +
        "), negative is saved.");
    add_plan_table(page, plans.points);
    Plane plane{{}, {}, plans.points};
    const auto half_width = [](const kdvfs::tune::PercentInterval& found) {
        return found.is_known() ? (found.high - found.low) / 2 : 0;
    };
    for (const auto& [name, found] : inputs.validations)
        plane.plans.push_back({"kept: " + name, found.time.mean, found.energy.mean,
                               half_width(found.time), half_width(found.energy)});
    if (table) {
        plane.frontier = frontier_points(*table, *noise);
        plane.clocks = shared_clock_points(*table, *noise);
    }
    for (Chart& chart : frontier_charts(plane, noise_known))
        page.charts.push_back(std::move(chart));
    if (table) page.charts.push_back(bounds_chart(*table));
    if (table) page.charts.push_back(waste_chart(*table));
    if (!iteration.empty()) page.charts.push_back(iteration_chart(iteration, *inputs.segments));
    if (plans.chosen.kernels.empty()) return;  // segments alone
    page.charts.push_back(savings_chart(
        kernel_savings(plans.chosen, table ? &*table : nullptr, noise ? &*noise : nullptr),
        noise_known));
    page.charts.push_back(plan_power_chart(plans.chosen, table ? &*table : nullptr));
    if (table)
        for (Chart& chart : heat_charts(*table, &plans.chosen))
            page.charts.push_back(std::move(chart));
}

/// A page of all that the inputs tell.
inline Page make_page(const Inputs& inputs) {
    Page page;
    page.title = inputs.pipeline ? inputs.pipeline->name : "kdvfs";
    if (inputs.profile || inputs.plan || inputs.segments) add_plan_charts(page, inputs);
    if (!inputs.validations.empty()) page.charts.push_back(promise_chart(inputs.validations));
    for (Chart& chart : pipeline_charts(inputs.pipeline ? &*inputs.pipeline : nullptr,
                                        inputs.pipeline_plan ? &*inputs.pipeline_plan : nullptr))
        page.charts.push_back(std::move(chart));
    if (inputs.energy) add_energy_charts(page.charts, *inputs.energy);
    if (inputs.trace) page.charts.push_back(trace_chart(*inputs.trace));
    if (inputs.switches) page.charts.push_back(switch_chart(*inputs.switches));
    if (inputs.power_profile) page.charts.push_back(*inputs.power_profile);
    return page;
}

}  // namespace report

void ReportCommand::run() const {
    write(output, to_html(report::make_page(report::read_inputs(inputs))));
}

}  // namespace cli
