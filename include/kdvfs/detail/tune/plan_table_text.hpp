// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/io/text_stream.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/segments.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iomanip>
#include <ostream>
#include <string>

namespace kdvfs::inline v0_3::tune {

/// Of plans whose savings differ by less, in percent of the energy, the simplest is recommended.
inline constexpr double simplest_within_pct = 0.3;

namespace detail {

inline std::string heading_text(const std::string& gpu, const std::string& objective,
                                double max_slowdown, const Cost& baseline,
                                Seconds launch_limit = Objective{}.launch_limit) {
    kdvfs::io::TextStream text;
    text << gpu << ", " << objective;
    if (std::isfinite(launch_limit.count()))
        text << ", each launch under " << launch_limit.count() * 1e3 << " ms";
    if (std::isfinite(max_slowdown)) text << ", slowdown up to " << 100 * max_slowdown << " %";
    text << "\nbaseline " << baseline.time.count() << " s, " << baseline.energy.count
         << " J an iteration; % against it, negative = saved\n\n";
    return text.str();
}

inline void add_totals(std::ostream& text, const std::string& name, const Cost& cost,
                       const Cost& baseline) {
    text << std::left << std::setw(16) << name << std::right << std::showpos << std::fixed
         << std::setprecision(2) << std::setw(9) << time_percent(cost, baseline) << std::setw(9)
         << energy_percent(cost, baseline) << std::noshowpos;
}

/// The column that compares with the best static point.
inline std::string against_static(const Cost& cost, const Cost& single) {
    kdvfs::io::TextStream text;
    text << std::showpos << std::fixed << std::setprecision(2) << std::setw(12)
         << energy_percent(cost, single);
    return text.str();
}

}  // namespace detail

/// What plans of one kind save by how much slower they may be, for people: a bound of 0 is a knife
/// edge, and a little more often gives most of what there is. The objective's own bound is not
/// looked at.
inline std::string bounds_text(const CostTable& table, const Objective& objective,
                               Aggregate aggregate) {
    kdvfs::io::TextStream text;
    text << "slowdown up to     time %  energy %   (" << to_string(aggregate) << " plans)\n";
    for (const double percent : {0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0}) {
        const Plan plan = make_plan(table, with_max_slowdown(objective, percent / 100), aggregate);
        detail::add_totals(text, kdvfs::detail::to_text(percent) + " %", plan.expected,
                           plan.baseline);
        text << '\n';
    }
    text << '\n';
    return text.str();
}

/// Recommends the simplest of: the clocks as found, one static point, a plan. A more complex one
/// must save `simplest_within_pct` more.
inline std::string recommendation_text(const Cost& plan, const Cost& single, ClockPoint point,
                                       const Cost& baseline) {
    const double best = std::min(energy_percent(plan, baseline), energy_percent(single, baseline));
    if (best > -simplest_within_pct) return "recommended: nothing to gain, leave the clocks\n\n";
    if (energy_percent(single, baseline) <= best + simplest_within_pct)
        return "recommended: set this one clock, " + to_string(point) + ", and use no scopes\n\n";
    return "recommended: the plan\n\n";
}

/// Plans side by side, and the chosen one kernel by kernel, for people.
inline std::string to_text_table(const Plans& plans, Aggregate chosen) {
    const Plan& plan = plans[chosen];
    kdvfs::io::TextStream text;
    text << detail::heading_text(plan.gpu, plan.objective, plan.max_slowdown, plan.baseline,
                                 plan.launch_limit)
         << "plan               time %  energy %   gap %  energy % of best static\n";
    for (const Aggregate aggregate : all_aggregates) {
        detail::add_totals(
            text, std::string{to_string(aggregate)} + (aggregate == chosen ? " (chosen)" : ""),
            plans[aggregate].expected, plan.baseline);
        text << std::setprecision(4) << std::setw(10) << plans[aggregate].gap_pct
             << detail::against_static(plans[aggregate].expected, plans.single.expected);
        if (aggregate == Aggregate::automatic) text << "  as found";
        if (aggregate == Aggregate::single)
            text << "  best static point, " << to_string(plans.single.kernels.front().clock);
        text << '\n';
    }
    if (plan.predicted_within)
        text << "\npredicted, not validated: energy may be off by " << std::fixed
             << std::setprecision(1) << *plan.predicted_within << " points\n";
    text << '\n'
         << recommendation_text(plan.expected, plans.single.expected,
                                plans.single.kernels.front().clock, plan.baseline);
    std::size_t width = 6;
    for (const PlannedKernel& kernel : plan.kernels)
        width = std::max(width, kdvfs::detail::shortened(to_string(kernel.key)).size());
    const int name_width = static_cast<int>(width) + 2;
    text << '\n'
         << std::left << std::setw(name_width) << "kernel" << std::right
         << "    core  memory   time %  energy %\n";
    for (const PlannedKernel& kernel : plan.kernels) {
        text << std::left << std::setw(name_width)
             << kdvfs::detail::shortened(to_string(kernel.key)) << std::right << std::setw(8)
             << io::to_csv_field(kernel.clock.core) << std::setw(8)
             << io::to_csv_field(kernel.clock.memory) << std::showpos << std::fixed
             << std::setprecision(2) << std::setw(9)
             << time_percent(kernel.expected, kernel.baseline) << std::setw(10)
             << energy_percent(kernel.expected, kernel.baseline) << std::noshowpos << '\n';
    }
    return text.str();
}

namespace detail {

/// The launches of a segment; of one that begins in a gap, how long after the launch before.
inline std::string launches_column(const Segment& segment) {
    if (!segment.after)
        return std::to_string(segment.first) + " to " + std::to_string(segment.last - 1);
    kdvfs::io::TextStream text;
    text << "gap+" << std::setprecision(4) << 1e3 * segment.after->count() << "ms, "
         << segment.first;
    return text.str();
}

}  // namespace detail

/// A plan of segments, for people.
inline std::string to_text_table(const SegmentPlan& plan) {
    kdvfs::io::TextStream text;
    text << detail::heading_text(plan.gpu, plan.objective, plan.max_slowdown, plan.baseline)
         << "                   time %  energy %  of best static\n";
    const auto row = [&](const char* name, const Cost& cost) {
        detail::add_totals(text, name, cost, plan.baseline);
        text << detail::against_static(cost, plan.single);
    };
    row("as found", plan.baseline);
    text << '\n';
    row("best static", plan.single);
    text << "   " << to_string(plan.single_clock) << '\n';
    row("plan", plan.expected);
    text << "   proven to " << std::setprecision(4) << plan.gap_pct << " %\n";
    row("without latency", plan.without_latency);
    text << "\n\n"
         << recommendation_text(plan.expected, plan.single, plan.single_clock, plan.baseline);
    if (plan.predicted) text << "predicted, not validated\n\n";
    if (!plan.reason.empty()) text << "one clock is as good: " << plan.reason << "\n\n";
    if (!plan.level.empty()) text << plan.level << "\n\n";
    text << "launches           core  memory    lead ms\n";
    for (const Segment& segment : plan.segments) {
        text << std::left << std::setw(15) << detail::launches_column(segment) << std::right
             << std::setw(8) << io::to_csv_field(segment.clock.core) << std::setw(8)
             << io::to_csv_field(segment.clock.memory) << std::fixed << std::setprecision(3)
             << std::setw(11) << 1e3 * segment.lead.count() << '\n';
    }
    return text.str();
}

}  // namespace kdvfs::inline v0_3::tune
