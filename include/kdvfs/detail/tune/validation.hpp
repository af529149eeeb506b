// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/tune/plan_fields.hpp>
#include <kdvfs/tune/validation.hpp>

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/tune/plan_file.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/plan_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <utility>

namespace kdvfs::inline v0_3::tune {

namespace detail {

inline PercentInterval unknown_around(double mean) {
    constexpr double anything = std::numeric_limits<double>::infinity();
    return {mean, -anything, anything};
}

inline nlohmann::ordered_json interval_json(const PercentInterval& interval, Verdict verdict,
                                            double limit) {
    return {{"verdict", to_string(verdict)},
            {"limit_pct", limit},
            {"mean_pct", interval.mean},
            {"low_pct", interval.low},  // the text of an infinite number is null
            {"high_pct", interval.high}};
}

inline PercentInterval read_interval(const PlanFields& fields) {
    constexpr double lowest = -1e300;
    const double mean = fields.number("mean_pct", lowest);
    if (fields.get("low_pct").is_null() && fields.get("high_pct").is_null())
        return unknown_around(mean);
    return {mean, fields.number("low_pct", lowest), fields.number("high_pct", lowest)};
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE double Validation::time_limit_pct() const {
    return (std::isfinite(time_bound_pct) ? time_bound_pct : promised_time_pct) +
           time_tolerance_pct;
}

KDVFS_INLINE double Validation::energy_limit_pct() const {
    return promised_energy_pct + energy_tolerance_pct;
}

KDVFS_INLINE Verdict Validation::verdict() const {
    if (time_verdict() == Verdict::broken) return Verdict::broken;
    const Verdict verdict = time_verdict() == Verdict::kept || energy_verdict() == Verdict::broken
                                ? energy_verdict()
                                : Verdict::undecided;
    return verdict == Verdict::kept && promised_energy_pct > -least_saving_pct
               ? Verdict::nothing_to_gain
               : verdict;
}

KDVFS_INLINE Verdict Validation::judge(const PercentInterval& found, double limit) const {
    if (too_few_pairs()) return Verdict::undecided;
    if (found.high <= limit) return Verdict::kept;
    return found.low > limit ? Verdict::broken : Verdict::undecided;
}

KDVFS_INLINE PercentInterval anytime_interval(const std::vector<double>& changes) {
    constexpr double prior_variance = 3;
    const auto n = static_cast<double>(changes.size());
    double mean = 0;
    for (const double change : changes) mean += change / n;
    double squares = 0;
    for (const double change : changes) squares += (change - mean) * (change - mean);
    const double width = detail::t_sequence_half_width(changes.size(), prior_variance);
    if (!std::isfinite(width)) return detail::unknown_around(mean);
    const double half = std::sqrt(squares / (n - 1)) * width;
    return {mean, mean - half, mean + half};
}

KDVFS_INLINE Validation validate(const Plan& plan, std::size_t pairs,
                                 const std::function<Cost(bool planned)>& measure,
                                 std::uint64_t seed) {
    if (pairs < 2) {
        throw Error{Errc::invalid_input,
                    {"validate a plan", std::to_string(pairs) + " pairs of runs",
                     "they give no interval", "ask for at least two, better ten"}};
    }
    std::vector<double> times;
    std::vector<double> energies;
    Validation found{0, plan.time_pct(), plan.energy_pct(), {}, {}, 100 * plan.max_slowdown};
    std::mt19937_64 random{seed};
    bool plan_first = false;
    for (std::size_t pair = 0; pair < pairs && found.verdict() == Verdict::undecided; ++pair) {
        plan_first = pair % 2 == 0 ? random() % 2 == 0 : !plan_first;
        Cost first = measure(plan_first);
        Cost second = measure(!plan_first);
        if (!plan_first) std::swap(first, second);
        times.push_back(time_percent(first, second));
        energies.push_back(energy_percent(first, second));
        if (pair == 0) continue;
        found.pairs = pair + 1;
        found.time = anytime_interval(times);
        found.energy = anytime_interval(energies);
    }
    return found;
}

KDVFS_INLINE std::string to_json(const Validation& found, const std::string& gpu) {
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

KDVFS_INLINE Validation parse_validation(std::string_view text, const std::string& file) {
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

KDVFS_INLINE std::string to_csv(const Cost& cost) {
    return "time_s,energy_j\n" + kdvfs::detail::to_text(cost.time.count()) + ',' +
           kdvfs::detail::to_text(cost.energy.count) + '\n';
}

KDVFS_INLINE void report_cost(const Cost& cost) {
    const std::string path{kdvfs::detail::environment("KDVFS_COST")};
    if (!path.empty()) kdvfs::detail::write_file_atomically(path, to_csv(cost));
}

KDVFS_INLINE Cost read_cost(std::istream& input, const std::string& name) {
    kdvfs::detail::CsvReader reader{input, name};
    std::vector<std::string> fields;
    if (!reader.next(fields) || fields != std::vector<std::string>{"time_s", "energy_j"})
        reader.fail("the first line is not time_s,energy_j");
    if (!reader.next(fields) || fields.size() != 2) reader.fail("there are no two numbers");
    const auto number = [&](const std::string& field) {
        const auto value = kdvfs::detail::parse_number<double>(field);
        if (!value || !std::isfinite(*value) || *value <= 0)
            reader.fail("\"" + field.substr(0, 40) + "\" is no number above 0");
        return *value;
    };
    const Cost cost{Seconds{number(fields[0])}, Joules{number(fields[1])}};
    if (const auto fault = find_fault(cost)) reader.fail(*fault);
    return cost;
}

KDVFS_INLINE Cost read_cost(const std::filesystem::path& path) {
    std::ifstream input{path, std::ios::binary};
    if (!input)
        throw Error{Errc::invalid_input,
                    {"read what a run took", path.string(), "the program did not report it",
                     "call kdvfs::tune::report_cost at its end, or name a counter"}};
    return read_cost(input, path.string());
}

#endif

}  // namespace kdvfs::inline v0_3::tune
