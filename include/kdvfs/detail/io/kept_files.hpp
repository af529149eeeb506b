// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace kdvfs::inline v0_3::io {

/// Where what has been measured of a GPU is kept: the user's folder (`$XDG_DATA_HOME/kdvfs`, or
/// `~/.local/share/kdvfs`), then the machine's.
/// @param folder  what was measured
/// @param name    whose it is; letters, digits and hyphens are kept
inline std::vector<std::filesystem::path> kept_paths(const char* folder, std::string name) {
    for (char& c : name) {
        const bool kept =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
        if (!kept) c = '_';
    }
    const std::filesystem::path file = std::filesystem::path{folder} / (name + ".csv");
    std::vector<std::filesystem::path> paths;
    const auto variable = [](const char* which) {
        return std::filesystem::path{environment(which)};
    };
    if (const auto data = variable("XDG_DATA_HOME"); data.is_absolute())
        paths.push_back(data / "kdvfs" / file);
    else if (const auto home = variable("HOME"); home.is_absolute())
        paths.push_back(home / ".local/share/kdvfs" / file);
    paths.push_back(std::filesystem::path{"/var/lib/kdvfs"} / file);
    return paths;
}

/// The first of them that is there.
inline std::optional<std::filesystem::path> find_kept(
    const std::vector<std::filesystem::path>& paths) {
    for (const std::filesystem::path& path : paths) {
        std::error_code unreadable;
        if (std::filesystem::is_regular_file(path, unreadable)) return path;
    }
    return std::nullopt;
}

}  // namespace kdvfs::inline v0_3::io
