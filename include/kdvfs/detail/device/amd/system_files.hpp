// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::device::amd {

/// What a file said: a text, or the errno that stands for it.
struct FileText {
    int error = 0;
    std::string text;
};

/// Opens a file; the descriptor is not open on failure, and errno says why.
inline kdvfs::detail::Descriptor open_file(const std::string& path, int flags) {
    int fd = -1;
    do {
        fd = ::open(path.c_str(), flags | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return kdvfs::detail::Descriptor{fd};
}

/// Reads a file of sysfs, which answers at most one page, with one call. Never throws an `Error`.
inline FileText read_file(const std::string& path) {
    const kdvfs::detail::Descriptor file = open_file(path, O_RDONLY);
    if (!file.is_open()) return {errno, {}};
    std::array<char, 4096> page;
    const ssize_t count = ::read(file.get(), page.data(), page.size());
    if (count < 0) return {errno, {}};
    return {0, {page.data(), static_cast<std::size_t>(count)}};
}

/// Writes a text to a file of sysfs with one call, as its handlers expect. Returns 0 or an errno.
inline int write_file(const std::string& path, std::string_view text) {
    const kdvfs::detail::Descriptor file = open_file(path, O_WRONLY);
    if (!file.is_open()) return errno;
    const ssize_t count = ::write(file.get(), text.data(), text.size());
    if (count < 0) return errno;
    return static_cast<std::size_t>(count) == text.size() ? 0 : EIO;
}

/// What an errno of a clock file means. EINVAL and EOPNOTSUPP are the driver's ways to refuse.
constexpr Errc errc_of(int error) {
    switch (error) {
        case EACCES:
        case EPERM:
        case EROFS:
        case EINVAL:
        case EOPNOTSUPP: return Errc::refused;
        case ENOENT: return Errc::not_supported;
        case ENODEV:
        case ENXIO: return Errc::vanished;
        case EBUSY:
        case EAGAIN:
        case EINTR: return Errc::busy;
        case ETIMEDOUT: return Errc::timed_out;
        default: return Errc::io;
    }
}

/// What to do about an errno of a clock file.
inline std::string remedy_of(int error) {
    switch (error) {
        case EACCES:
        case EPERM:
            return "run as root, or let an administrator hand the GPU's clock files to this user";
        case EROFS: return "the container mounts /sys read-only; mount it writable";
        case EINVAL:
        case EOPNOTSUPP: return "the driver does not accept this clock or mode on this board";
        case ENOENT: return "this board or driver has no such file";
        case ENODEV:
        case ENXIO: return "the GPU has left the bus, or is being reset";
        default: return "see the kernel log";
    }
}

/// The error of a file access. `object` names the device; the path goes with the words.
inline Error file_error(std::string action, std::string object, const std::string& path,
                        int error) {
    return Error{errc_of(error),
                 {std::move(action), std::move(object),
                  path + ": " + std::generic_category().message(error), remedy_of(error)}};
}

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
/// @param first number of the list's first line
inline bool add_line(ClockList& list, std::string_view line, std::size_t first = 0) {
    const auto index = take_number(line);
    if (!index || *index != first + list.clocks.size() || !line.starts_with(':')) return false;
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
    bool starts_at_0 = false;  // the memory's section
    while (!text.empty()) {
        auto line = detail::take_line(text);
        if (line == "OD_SCLK:" || line == "GFXCLK:") {
            section = &table.core;
        } else if (line == "OD_MCLK:" || line == "MCLK:") {
            section = &table.memory;
            table.memory_is_settable = line == "OD_MCLK:";
        } else if (line.starts_with("OD_") && line.ends_with(':')) {
            section = nullptr;  // a voltage curve, the board's ranges
        } else if (line.starts_with("SCLK:")) {
            line.remove_prefix(5);
            table.core_min = detail::take_clock(line);
        } else if (section != nullptr && !line.empty() && !line.starts_with("S:")) {
            // Vega20 shows the upper limit of the memory alone, under its number, 1.
            const bool only_upper = section == &table.memory && table.memory_is_settable &&
                                    !(starts_at_0 = starts_at_0 || line.starts_with("0:"));
            if (!detail::add_line(*section, line, only_upper ? 1 : 0)) return std::nullopt;
        }
    }
    if (table.core.clocks.empty()) return std::nullopt;
    return table;
}

}  // namespace kdvfs::inline v0_3::device::amd
