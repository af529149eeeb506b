// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::device::amdgpu {

/// The clocks listed by pp_dpm_sclk, pp_dpm_mclk or a section of pp_od_clk_voltage.
struct ClockList {
    std::vector<Megahertz> clocks;
    bool one_current = false;  ///< exactly one numbered line bears the star
    bool plain = true;         ///< nothing but numbered lines
};

/// The limits that pp_od_clk_voltage shows.
struct OverdriveTable {
    ClockList core;
    ClockList memory;
    std::optional<Megahertz> core_min;  ///< the lowest clock the board allows, where it says so
    bool memory_is_settable = false;    ///< MI300 says OD_MCLK, MI200 a mere MCLK
};

namespace detail {

inline std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// The first line of a text, taken off it.
inline std::string_view take_line(std::string_view& text) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return trimmed(line);
}

/// A number at the front of a text, taken off it.
inline std::optional<std::uint32_t> take_number(std::string_view& text) {
    std::uint32_t value = 0;
    const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(next - text.data()));
    return value;
}

/// "1700Mhz" at the front of a text, taken off it. The driver's spelling of the unit varies.
inline std::optional<Megahertz> take_clock(std::string_view& text) {
    text = trimmed(text);
    const auto clock = take_number(text);
    if (!clock || text.size() < 3) return std::nullopt;
    const auto unit = text.substr(0, 3);
    if (unit != "Mhz" && unit != "MHz") return std::nullopt;
    text.remove_prefix(3);
    return Megahertz{*clock};
}

/// Adds the line "1: 1700Mhz *"; false where it is none.
inline bool add_line(ClockList& list, std::string_view line) {
    const auto index = take_number(line);
    if (!index || *index != list.clocks.size() || !line.starts_with(':')) return false;
    line.remove_prefix(1);
    const auto clock = take_clock(line);
    if (!clock) return false;
    const auto star = trimmed(line);
    if (!star.empty() && star != "*") return false;
    list.clocks.push_back(*clock);
    if (star == "*") {
        list.plain = list.plain && !list.one_current;
        list.one_current = true;
    }
    return true;
}

}  // namespace detail

/// Reads pp_dpm_sclk and its siblings: "0: 500Mhz \n1: 1700Mhz *\n". A sleeping MI300 puts
/// "S: 19Mhz *" before them, which is skipped and makes the list not `plain`. Nothing is returned
/// for any other text; "unavailable" is what the driver says after a fatal memory error.
inline std::optional<ClockList> parse_clock_list(std::string_view text) {
    ClockList list;
    while (!text.empty()) {
        const auto line = detail::take_line(text);
        if (line.empty()) continue;
        if (line.starts_with("S:")) {
            list.plain = false;
        } else if (!detail::add_line(list, line)) {
            return std::nullopt;
        }
    }
    if (list.clocks.empty()) return std::nullopt;
    return list;
}

/// The words for pp_dpm_sclk that allow the levels from 0 to this one: "0 1 2".
inline std::string levels_up_to(unsigned highest) {
    std::string text = "0";
    for (unsigned level = 1; level <= highest; ++level) text += " " + std::to_string(level);
    return text;
}

/// Reads pp_od_clk_voltage, in the words of MI200 (GFXCLK, MCLK) or of others (OD_SCLK, OD_MCLK,
/// OD_RANGE). Sections it does not know are skipped; nothing is returned without a core section.
inline std::optional<OverdriveTable> parse_overdrive_table(std::string_view text) {
    OverdriveTable table;
    ClockList* section = nullptr;
    while (!text.empty()) {
        auto line = detail::take_line(text);
        if (line == "OD_SCLK:" || line == "GFXCLK:") {
            section = &table.core;
        } else if (line == "OD_MCLK:" || line == "MCLK:") {
            section = &table.memory;
            table.memory_is_settable = line == "OD_MCLK:";
        } else if (line.starts_with("OD_") && line.ends_with(':')) {
            section = nullptr;
        } else if (line.starts_with("SCLK:")) {
            line.remove_prefix(5);
            table.core_min = detail::take_clock(line);
        } else if (section != nullptr && !line.empty() && !line.starts_with("S:") &&
                   !detail::add_line(*section, line)) {
            return std::nullopt;
        }
    }
    if (table.core.clocks.empty()) return std::nullopt;
    return table;
}

}  // namespace kdvfs::device::amdgpu
