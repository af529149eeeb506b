// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/plan_json.hpp>
#include <kdvfs/tune/validation.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

/// Validation files: `{"gpu","pairs","too_few_pairs","verdict","time_bound_pct",`
/// `"promised":{"time_pct","energy_pct"},"time":{"verdict","limit_pct","mean_pct","low_pct",`
/// `"high_pct"},"energy":{...}}`, percent against the baseline; a verdict is "kept", "broken" or
/// "undecided"; `time_bound_pct` is null where the plan had no bound.
namespace kdvfs::tune {
namespace detail {

inline nlohmann::ordered_json interval_json(const PercentInterval& interval, Verdict verdict,
                                            double limit) {
    return {{"verdict", to_string(verdict)},
            {"limit_pct", limit},
            {"mean_pct", interval.mean},
            {"low_pct", interval.low},
            {"high_pct", interval.high}};
}

inline PercentInterval read_interval(const PlanFields& fields) {
    constexpr double lowest = -1e300;
    return {fields.number("mean_pct", lowest), fields.number("low_pct", lowest),
            fields.number("high_pct", lowest)};
}

}  // namespace detail

/// What a validation found, as a validation file.
inline std::string to_json(const Validation& found, const std::string& gpu) {
    nlohmann::ordered_json json{
        {"gpu", gpu},
        {"pairs", found.pairs},
        {"too_few_pairs", found.too_few_pairs()},
        {"verdict", to_string(found.verdict())},
        {"time_bound_pct", nullptr},
        {"promised",
         {{"time_pct", found.promised_time_pct}, {"energy_pct", found.promised_energy_pct}}},
        {"time", detail::interval_json(found.time, found.time_verdict(), found.time_limit_pct())},
        {"energy",
         detail::interval_json(found.energy, found.energy_verdict(), found.energy_limit_pct())}};
    if (std::isfinite(found.time_bound_pct)) json["time_bound_pct"] = found.time_bound_pct;
    return json.dump(2) + '\n';
}

/// Reads a validation file; errors call the input `file`.
/// @throws Error (invalid_input) naming file and line, or file and field
inline Validation parse_validation(std::string_view text, const std::string& file) {
    const nlohmann::json json = detail::parse_json(text, file);
    const detail::PlanFields root{json, file, ""};
    const detail::PlanFields promised = root.object("promised");
    Validation found{root.integer("pairs", 0), promised.number("time_pct", -1e300),
                     promised.number("energy_pct", -1e300),
                     detail::read_interval(root.object("time")),
                     detail::read_interval(root.object("energy"))};
    if (json.contains("time_bound_pct") && !json["time_bound_pct"].is_null())
        found.time_bound_pct = root.number("time_bound_pct", 0);
    return found;
}

}  // namespace kdvfs::tune
