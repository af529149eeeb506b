// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace kdvfs::measure {

/// A sensor outside the GPU that counts joules, to hold the board's own counter against: all else
/// that kdvfs says of joules is relative to the board's sensor.
struct ReferenceSensor {
    std::string name;
    /// Joules since any origin, which only grow. May take milliseconds; called on the user's
    /// threads alone, one at a time. @throws Error where it cannot be read
    std::function<Joules()> read;
};

/// The joules at the beginning of a text: "1234567 J 1700000000000000 us", "12.5".
inline std::optional<Joules> leading_joules(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    double joules = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), joules);
    if (error != std::errc{} || !std::isfinite(joules) || joules < 0) return {};
    const std::string_view rest{end, static_cast<std::size_t>(text.data() + text.size() - end)};
    const std::size_t unit = std::min(rest.find_first_not_of(" \t"), rest.size());
    const bool bare = unit == rest.size() || rest[unit] == '\n';
    if (!bare && (rest[unit] != 'J' || (unit + 1 < rest.size() && rest[unit + 1] > ' '))) return {};
    return Joules{joules};
}

/// HPE Cray's counter of an accelerator, by the blade's controller: `accelN_energy`, ten times a
/// second ("PM counters" in HPE's Cray EX documentation; "JOULES J MICROSECONDS us"). For all
/// users.
inline ReferenceSensor pm_counters(int accelerator,
                                   const std::filesystem::path& folder = "/sys/cray/pm_counters") {
    const std::filesystem::path path = folder / ("accel" + std::to_string(accelerator) + "_energy");
    return {"pm_counters " + path.filename().string(), [path] {
                std::ifstream in{path};
                std::string line;
                std::getline(in, line);
                if (const auto joules = leading_joules(line)) return *joules;
                throw Error{Errc::io,
                            {.action = "read the reference sensor",
                             .object = path.string(),
                             .vendor_words = line,
                             .remedy = "name a sensor that this machine has"}};
            }};
}

/// What a program prints: joules at the beginning of its first line, "12.5" or "12.5 J". It is run
/// by the shell for each reading.
inline ReferenceSensor joules_printed_by(const std::string& command) {
    return {command, [command] {
                std::array<char, 256> line{};
                int status = -1;
                if (std::FILE* const pipe = popen(command.c_str(), "r")) {
                    if (std::fgets(line.data(), line.size(), pipe) == nullptr) line[0] = '\0';
                    while (std::fgetc(pipe) != EOF) {
                    }
                    status = pclose(pipe);
                }
                const auto joules = leading_joules(line.data());
                if (joules && status == 0) return *joules;
                throw Error{Errc::io,
                            {.action = "read the reference sensor",
                             .object = command,
                             .vendor_words = line.data(),
                             .remedy = "name a program that prints joules and ends with status 0"}};
            }};
}

}  // namespace kdvfs::measure
