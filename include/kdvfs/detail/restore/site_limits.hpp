// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/pci_address.hpp>
#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/options.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

namespace kdvfs::inline v0_3::restore {

/// The limits that the administrator of a machine sets for what programs request.
struct SiteLimits {
    ClockPoint floor{};    ///< `auto_clock`: none
    ClockPoint ceiling{};  ///< `auto_clock`: none
    std::string path{};    ///< of the file; empty where none of its lines is for the device

    /// "core 800 to 1600 MHz, memory up to 1300 MHz (/run/kdvfs/limits)".
    [[nodiscard]] std::string words() const {
        std::string text;
        const auto say = [&](const char* domain, Megahertz low, Megahertz high) {
            if (low == auto_clock && high == auto_clock) return;
            text += (text.empty() ? "" : ", ") + std::string{domain};
            if (low != auto_clock) text += " from " + to_string(low);
            if (high != auto_clock) text += " up to " + to_string(high);
        };
        say("core", floor.core, ceiling.core);
        say("memory", floor.memory, ceiling.memory);
        return text + " (" + path + ")";
    }
};

/// Reads the lines of a limits file that are for a device. A line is "DEVICE DOMAIN FLOOR CEILING":
/// a PCI address with its domain, or "all"; "core" or "memory"; MHz, or "-" for none. Several lines
/// for one device are all obeyed. "#" begins a comment.
/// @param path for errors
/// @throws Error (invalid_input) naming the line that is none
inline SiteLimits parse_site_limits(std::string_view text, const std::string& path,
                                    const std::string& device) {
    SiteLimits limits;
    std::istringstream lines{std::string{text}};
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        std::istringstream words{line.substr(0, line.find('#'))};
        std::string who;
        std::string domain;
        std::string low;
        std::string high;
        std::string more;
        if (!(words >> who)) continue;
        const auto clock = [](const std::string& word) -> std::optional<Megahertz> {
            if (word == "-") return auto_clock;
            std::uint32_t value = 0;
            const auto [end, error] =
                std::from_chars(word.data(), word.data() + word.size(), value);
            const bool whole = error == std::errc{} && end == word.data() + word.size();
            constexpr std::uint32_t highest = 100'000;
            return whole && value > 0 && value <= highest ? std::optional{Megahertz{value}}
                                                          : std::nullopt;
        };
        words >> domain >> low >> high;
        const auto floor = clock(low);
        const auto ceiling = clock(high);
        const bool is_domain = domain == "core" || domain == "memory";
        const auto address = io::parse_pci_address(who);
        const bool is_device = who == "all" || address;
        if (!is_device || !is_domain || !floor || !ceiling || words >> more) {
            throw Error{Errc::invalid_input,
                        {.action = "read the limits that the administrator set",
                         .object = path + ":" + std::to_string(number),
                         .vendor_words = "\"" + line + "\"",
                         .remedy = "ask the administrator to write: DEVICE core|memory FLOOR "
                                   "CEILING, in MHz or -; DEVICE as all or 0000:c1:00.0"}};
        }
        if (address && address != io::parse_pci_address(device)) continue;
        limits.path = path;
        const auto member = domain == "core" ? &ClockPoint::core : &ClockPoint::memory;
        limits.floor.*member = std::max(limits.floor.*member, *floor);
        ClockPoint most;
        most.*member = *ceiling;
        limits.ceiling = lowered_to(limits.ceiling, most);
    }
    return limits;
}

/// The administrator's limits for a device: the file `limits` in the machine's folder, which root
/// writes (a scheduler's prolog, say) and nobody else may. No file: no limits.
/// @throws Error (refused) where others may write the file or the machine's folder, (invalid_input)
/// where it makes no sense
inline SiteLimits read_site_limits(const std::string& device,
                                   const std::string& machine = RestorePlace::machine_root) {
    RestorePlace::require_closed(machine);
    const std::string path = machine + "/limits";
    const Descriptor file{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    if (!file.is_open()) {
        if (errno == ENOENT || errno == ENOTDIR) return {};
        reject(path, errno == ELOOP ? "it is a link" : std::generic_category().message(errno));
    }
    struct stat status {};
    if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
        reject(path, "it is no file");
    }
    if (status.st_uid != 0) reject(path, "it does not belong to root");
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) reject(path, "others may write to it");
    std::string text(static_cast<std::size_t>(std::min<off_t>(status.st_size, 1 << 20)), '\0');
    const ssize_t count = ::pread(file.get(), text.data(), text.size(), 0);
    if (count < 0) reject(path, std::generic_category().message(errno));
    text.resize(static_cast<std::size_t>(count));
    return parse_site_limits(text, path, device);
}

/// A program's limits together with those of the site: the stricter of each.
inline ControllerOptions within(ControllerOptions program, const SiteLimits& site) {
    program.never_below = {std::max(program.never_below.core, site.floor.core),
                           std::max(program.never_below.memory, site.floor.memory)};
    program.never_above = lowered_to(program.never_above, site.ceiling);
    return program;
}

}  // namespace kdvfs::inline v0_3::restore
