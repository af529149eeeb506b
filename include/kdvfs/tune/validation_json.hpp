// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/plan_json.hpp>
#include <kdvfs/tune/validation.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>

/// Validation files: `{"gpu","pairs","promised":{"time_pct","energy_pct"},`
/// `"time":{"mean_pct","low_pct","high_pct"},"energy":{...}}`, percent against the baseline.
namespace kdvfs::tune {
namespace detail {

inline nlohmann::ordered_json interval_json(const PercentInterval& interval) {
    return {{"mean_pct", interval.mean}, {"low_pct", interval.low}, {"high_pct", interval.high}};
}

inline PercentInterval read_interval(const PlanFields& fields) {
    constexpr double lowest = -1e300;
    return {fields.number("mean_pct", lowest), fields.number("low_pct", lowest),
            fields.number("high_pct", lowest)};
}

}  // namespace detail

/// What a validation found, as a validation file.
inline std::string to_json(const Validation& found, const std::string& gpu) {
    const nlohmann::ordered_json json{
        {"gpu", gpu},
        {"pairs", found.pairs},
        {"promised",
         {{"time_pct", found.promised_time_pct}, {"energy_pct", found.promised_energy_pct}}},
        {"time", detail::interval_json(found.time)},
        {"energy", detail::interval_json(found.energy)}};
    return json.dump(2) + '\n';
}

/// Reads a validation file; errors call the input `file`.
/// @throws Error (invalid_input) naming file and line, or file and field
inline Validation parse_validation(std::string_view text, const std::string& file) {
    const nlohmann::json json = detail::parse_json(text, file);
    const detail::PlanFields root{json, file, ""};
    const detail::PlanFields promised = root.object("promised");
    return {root.integer("pairs", 0), promised.number("time_pct", -1e300),
            promised.number("energy_pct", -1e300), detail::read_interval(root.object("time")),
            detail::read_interval(root.object("energy"))};
}

}  // namespace kdvfs::tune
