// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/plan_json.hpp>
#include <kdvfs/tune/segment_planner.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <string>

namespace kdvfs::tune {
namespace detail {

inline nlohmann::ordered_json cost_json(const Cost& cost, const Cost& baseline) {
    return {{"time_s", cost.time.count()},
            {"energy_j", cost.energy.count},
            {"time_pct", time_percent(cost, baseline)},
            {"energy_pct", energy_percent(cost, baseline)}};
}

}  // namespace detail

/// A plan of segments as JSON: totals as in plan files, and `segments` in order, with the launch
/// before which each clock is asked for (`first`), the one in which it arrives, and its `lead_s`.
inline std::string to_json(const SegmentPlan& plan) {
    nlohmann::ordered_json json{{"gpu", plan.gpu}, {"objective", plan.objective}};
    json["max_slowdown_pct"] = nullptr;
    if (std::isfinite(plan.max_slowdown)) json["max_slowdown_pct"] = 100 * plan.max_slowdown;
    json["baseline"] = {{"time_s", plan.baseline.time.count()},
                        {"energy_j", plan.baseline.energy.count},
                        {"core_mhz", detail::clock_json(plan.baseline_clock.core)},
                        {"mem_mhz", detail::clock_json(plan.baseline_clock.memory)}};
    json["plan"] = detail::cost_json(plan.expected, plan.baseline);
    json["plan"]["aggregate"] = "segments";
    json["plan"]["gap_pct"] = plan.gap_pct;
    json["without_latency"] = detail::cost_json(plan.without_latency, plan.baseline);
    json["single"] = detail::cost_json(plan.single, plan.baseline);
    json["single"]["core_mhz"] = detail::clock_json(plan.single_clock.core);
    json["single"]["mem_mhz"] = detail::clock_json(plan.single_clock.memory);
    if (!plan.reason.empty()) json["reason"] = plan.reason;
    json["segments"] = nlohmann::ordered_json::array();
    for (const Segment& segment : plan.segments) {
        json["segments"].push_back({{"first", segment.first},
                                    {"last", segment.last},
                                    {"arrives_in", segment.arrives_in},
                                    {"lead_s", segment.lead.count()},
                                    {"core_mhz", detail::clock_json(segment.clock.core)},
                                    {"mem_mhz", detail::clock_json(segment.clock.memory)},
                                    {"time_s", segment.expected.time.count()},
                                    {"energy_j", segment.expected.energy.count}});
    }
    return json.dump(2) + '\n';
}

}  // namespace kdvfs::tune
