// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/sweep_options.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kdvfs::inline v0_3::tune {

namespace detail {

/// A number from the environment; nothing where it is not set.
/// @param is what a wrong one is not  @param give what to give instead
inline std::optional<double> number_from_environment(const std::string& name, double least,
                                                     double most, const char* is,
                                                     const std::string& give) {
    const std::string_view text = kdvfs::detail::environment(name.c_str());
    if (text.empty()) return std::nullopt;
    const auto number = kdvfs::detail::parse_number<double>(text);
    if (number && *number >= least && *number <= most) return number;
    throw Error{Errc::invalid_input, {"begin a session", name + '=' + std::string{text}, is, give}};
}

/// A percentage, such as "2" for 0.02, from the environment; nothing where it is not set.
inline std::optional<double> percent_from_environment(const char* name) {
    const auto percent = number_from_environment(name, 0, 1000, "this is no percentage",
                                                 "give a number such as 2, from 0 to 1000");
    return percent ? std::optional{*percent / 100} : std::nullopt;
}

/// A time in seconds, from the environment; nothing where it is not set.
inline std::optional<Duration> seconds_from_environment(const char* name) {
    const auto seconds = number_from_environment(name, 1e-9, 86400, "this is no time in seconds",
                                                 "give a number such as 0.5, to 86400");
    if (!seconds) return std::nullopt;
    return std::chrono::duration_cast<Duration>(Seconds{*seconds});
}

inline std::uint64_t count_from_environment(const char* name, std::uint64_t otherwise) {
    const auto count =
        number_from_environment(name, 1, 1e15, "this is no count",
                                "give 1 or more; " + std::to_string(otherwise) + " is the default");
    if (!count) return otherwise;
    if (*count == std::floor(*count)) return static_cast<std::uint64_t>(*count);
    throw Error{
        Errc::invalid_input,
        {"begin a session", std::string{name} + '=' + std::string{kdvfs::detail::environment(name)},
         "this is no count", "give an integer"}};
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::vector<ClockPoint> clock_grid(const SupportedClocks& clocks,
                                                std::size_t most_core) {
    std::vector<Megahertz> core{auto_clock};
    const std::vector<Megahertz>& listed = clocks.core.listed;
    if (clocks.core.continuous && most_core > 1) {
        const auto steps = static_cast<std::uint32_t>(most_core - 1);
        const std::uint32_t first = listed.front().count;
        const std::uint32_t range = listed.back().count - first;
        for (std::uint32_t i = 0; i <= steps; ++i) core.push_back({first + i * range / steps});
    } else {
        const std::size_t stride = (listed.size() + most_core - 1) / most_core;
        for (std::size_t i = 0; i < listed.size(); i += stride) core.push_back(listed[i]);
    }
    std::vector<Megahertz> memory = clocks.memory.listed;
    memory.push_back(auto_clock);
    std::vector<ClockPoint> points;
    for (const Megahertz m : memory)
        for (const Megahertz c : core) points.push_back({c, m});
    return points;
}

KDVFS_INLINE Duration BlockOptions::measuring(Duration sample_period) const {
    return std::max(measured, static_cast<Duration::rep>(counter_rows) * sample_period);
}

KDVFS_INLINE ExpectedSweep expected_sweep(const SweepOptions& options, std::size_t points,
                                          Seconds iteration, Duration sample_period) {
    const auto whole = [&](Duration time) {
        return iteration * std::max(1.0, std::ceil(Seconds{time} / iteration));
    };
    const Seconds measuring = whole(options.block.measuring(sample_period)) + iteration;
    const Seconds block = whole(options.block.settling()) + measuring;
    // Small grids are measured as a whole, large ones to a tenth or so (bench/adaptive).
    const auto count = static_cast<double>(points);
    const double measured = std::min(count, 16 + count / 16);
    // Each block has a stretch at the baseline before it, and more to make up for its slowdown.
    constexpr double typical_slowdown = 0.2;
    const double baseline = std::max(1.0, typical_slowdown / options.max_slowdown);
    constexpr double warm_up_blocks = 6;
    return {std::clamp(Seconds{options.longest_warm_up}, measuring, measuring * warm_up_blocks),
            block * (1 + baseline) * measured * options.samples};
}

KDVFS_INLINE std::string to_string(const SweepProgress& progress) {
    return kdvfs::io::format_text(
        "sweep%s: %zu of %zu clock points, expected regret %.2f %%, run slowed by %.1f %%",
        progress.done ? " done" : "", progress.points_measured, progress.points,
        progress.expected_regret_pct, progress.slowdown_pct);
}

KDVFS_INLINE SweepOptions sweep_options_from_environment(SweepOptions options) {
    if (const auto plan = detail::percent_from_environment("KDVFS_MAX_SLOWDOWN"))
        options.objective = relaxed_waste(*plan);
    if (const auto run = detail::percent_from_environment("KDVFS_RUN_SLOWDOWN"))
        options.max_slowdown = *run;
    options.block.counter_rows =
        detail::count_from_environment("KDVFS_SWEEP_ROWS", options.block.counter_rows);
    options.seed = detail::count_from_environment("KDVFS_SWEEP_SEED", options.seed);
    if (const auto block = detail::seconds_from_environment("KDVFS_SWEEP_BLOCK"))
        options.block.settle = options.block.measured = *block;
    if (const auto warm_up = detail::seconds_from_environment("KDVFS_SWEEP_WARM_UP"))
        options.longest_warm_up = *warm_up;
    if (const auto clocks = kdvfs::detail::environment("KDVFS_SWEEP_EXCLUDE"); !clocks.empty())
        options.excluded = parse_excluded_clocks(clocks);
    return options;
}

#endif

}  // namespace kdvfs::inline v0_3::tune
