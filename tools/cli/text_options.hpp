// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/cost_table.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

/// Options whose values have a notation of their own.
namespace cli {

[[noreturn]] inline void reject(const std::string& option, const std::string& value,
                                const std::string& remedy) {
    throw kdvfs::Error{
        kdvfs::Errc::invalid_input,
        {"read the option " + option, '"' + value + '"', "it makes no sense", remedy}};
}

inline constexpr double most_slowdown_pct = 1000;

/// What an option with a number may be. CLI11's ranges let NaN pass.
inline CLI::Validator finite_range(double least, double most) {
    const std::string range =
        "[" + kdvfs::io::to_text(least) + " - " + kdvfs::io::to_text(most) + "]";
    const auto fault = [=](std::string& text) {
        double value = 0;
        const char* const end = text.data() + text.size();
        const auto [behind, error] =
            std::from_chars(text.data() + (text.starts_with('+') ? 1 : 0), end, value);
        const bool is_number = error == std::errc{} && behind == end && std::isfinite(value);
        return is_number && value >= least && value <= most ? std::string{}
                                                            : "Value " + text + " not in " + range;
    };
    return CLI::Validator{fault, "in " + range};
}

/// What a power in W may be.
inline CLI::Validator watts_range(double least = 1) { return finite_range(least, 1e6); }

/// What `--seed` may be: CLI11 takes a larger number for the largest.
inline CLI::Range seeds() {
    return CLI::Range{std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max() / 2};
}

/// Refuses an option that would have no effect.
inline void refuse_without_effect(const CLI::App& app, const std::string& option,
                                  const std::string& why) {
    if (app.count(option) > 0)
        throw kdvfs::Error{
            kdvfs::Errc::invalid_input,
            {"take the option " + option, "", "it has no effect " + why, "leave it out"}};
}

/// "1%" or "1" as 0.01; up to `most` percent.
inline double parse_percent(const std::string& option, const std::string& text, double most) {
    std::string_view digits = text;
    if (digits.ends_with('%')) digits.remove_suffix(1);
    const auto percent = kdvfs::io::parse_number<double>(digits);
    if (!percent || !(*percent >= 0 && *percent <= most))
        reject(option, text,
               "give a percentage such as 1%, from 0 to " + kdvfs::io::to_text(most) + "%");
    return *percent / 100;
}

/// "6ms", "10us", "0.2s"; nothing where the text does not begin with a digit: a file's name.
/// @param or_else what else the option takes
inline std::optional<kdvfs::Seconds> parse_duration(const std::string& option,
                                                    const std::string& text,
                                                    const std::string& or_else = "") {
    if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
    const std::size_t unit = text.find_first_not_of("0123456789.");
    const auto number = kdvfs::io::parse_number<double>(std::string_view{text}.substr(0, unit));
    const std::string name = unit == std::string::npos ? "" : text.substr(unit);
    const double scale = name == "s" ? 1 : name == "ms" ? 1e-3 : name == "us" ? 1e-6 : 0;
    constexpr double longest = 100;  // seconds
    if (!number || scale == 0 || !(*number * scale <= longest))
        reject(option, text, "give a time such as 6ms, up to 100s" + or_else);
    return kdvfs::Seconds{*number * scale};
}

/// "90s", "30min", "2h". @throws Error (invalid_input) for anything else, and for no time at all
inline kdvfs::Seconds parse_long_time(const std::string& option, const std::string& text) {
    const std::size_t unit = text.find_first_not_of("0123456789.");
    const auto number = kdvfs::io::parse_number<double>(std::string_view{text}.substr(0, unit));
    const std::string name = unit == std::string::npos ? "" : text.substr(unit);
    const double scale = name == "s" ? 1 : name == "min" ? 60 : name == "h" ? 3600 : 0;
    if (!number || !(*number * scale > 0 && *number * scale < 1e9))
        reject(option, text, "give a time such as 90s, 30min or 2h");
    return kdvfs::Seconds{*number * scale};
}

/// The highest mean power of any kernel at any point: stands for the board's limit in Zeus' cost.
inline kdvfs::Watts highest_power(const kdvfs::tune::CostTable& table) {
    double highest = 0;
    for (const auto& kernel : table.kernels)
        for (const auto& point : kernel.points)
            highest = std::max(highest, (point.cost.energy / point.cost.time).count);
    return {highest};
}

/// `waste`, `edp`, `ed2p`, `energy` or `zeus:ETA`.
inline kdvfs::tune::Objective parse_objective(const std::string& text,
                                              const kdvfs::tune::CostTable& table) {
    using namespace kdvfs::tune;
    if (text == "waste") return strict_waste();
    if (text == "edp") return energy_delay();
    if (text == "ed2p") return energy_delay_squared();
    if (text == "energy") return minimum_energy();
    if (text.starts_with("zeus:")) {
        const auto eta = kdvfs::io::parse_number<double>(std::string_view{text}.substr(5));
        if (eta) return zeus_cost(*eta, highest_power(table));
    }
    reject("--objective", text, "give waste, edp, ed2p, energy or zeus:ETA");
}

}  // namespace cli
