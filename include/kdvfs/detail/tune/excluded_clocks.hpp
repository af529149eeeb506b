// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/cost_table.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// Clock points that a program must not run at.
struct ExcludedClocks {
    Megahertz below = auto_clock;      ///< core clocks below this one; `auto_clock`: none
    std::vector<ClockPoint> points{};  ///< beside those

    [[nodiscard]] bool empty() const { return below == auto_clock && points.empty(); }
    [[nodiscard]] bool contains(ClockPoint clock) const {
        return (clock.core != auto_clock && clock.core < below) ||
               std::find(points.begin(), points.end(), clock) != points.end();
    }
};

/// "<900,1100/auto": core clocks below 900 MHz, and the point of 1100 MHz with the memory clock
/// left to the board.
inline std::string to_string(const ExcludedClocks& excluded) {
    std::string text;
    if (excluded.below != auto_clock) text += '<' + std::to_string(excluded.below.count);
    for (const ClockPoint point : excluded.points)
        text += (text.empty() ? "" : ",") + kdvfs::io::to_csv_field(point.core) + '/' +
                kdvfs::io::to_csv_field(point.memory);
    return text;
}

/// Reads what `to_string` writes. @throws Error (invalid_input)
inline ExcludedClocks parse_excluded_clocks(std::string_view text) {
    ExcludedClocks excluded;
    for (std::string_view rest = text; !rest.empty();) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        const std::string_view item = rest.substr(0, comma);
        rest.remove_prefix(std::min(comma + 1, rest.size()));
        const std::size_t slash = item.find('/');
        const bool is_floor = item.starts_with('<');
        const auto core = kdvfs::io::parse_clock(is_floor ? item.substr(1) : item.substr(0, slash));
        const auto memory = slash == std::string_view::npos
                                ? std::optional{auto_clock}
                                : kdvfs::io::parse_clock(item.substr(slash + 1));
        if (!core || !memory || (is_floor && *core == auto_clock))
            throw Error{Errc::invalid_input,
                        {"exclude clocks", std::string{text}, "this is no list of clocks",
                         "give core clocks such as <900, or points such as 1100/auto, with commas "
                         "between them"}};
        if (is_floor)
            excluded.below = std::max(excluded.below, *core);
        else
            excluded.points.push_back({*core, *memory});
    }
    return excluded;
}

/// Removes excluded points from a table, so that no plan has them. The baseline stays.
inline void exclude(CostTable& table, const ExcludedClocks& excluded) {
    for (KernelCosts& kernel : table.kernels) {
        KernelCosts kept = kernel;
        kept.points.clear();
        kept.time_errors.clear();
        for (std::size_t p = 0; p < kernel.points.size(); ++p) {
            const ClockPoint clock = kernel.points[p].clock;
            if (clock != table.baseline && excluded.contains(clock)) continue;
            if (p == kernel.baseline) kept.baseline = kept.points.size();
            kept.points.push_back(kernel.points[p]);
            if (!kernel.time_errors.empty()) kept.time_errors.push_back(kernel.time_errors[p]);
        }
        kernel = kept;
    }
}

/// Where a sweep notes the clock point that the program runs at, beside the profile that it writes,
/// for as long as that is not the baseline: what is left of it after a crash says where it was.
inline std::filesystem::path current_clock_path(std::filesystem::path profile) {
    return profile.replace_extension(".clock");
}

}  // namespace kdvfs::inline v0_3::tune
