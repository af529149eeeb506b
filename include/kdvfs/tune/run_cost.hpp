// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/profile.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <istream>
#include <string>
#include <vector>

/// How a program reports what its run took to `kdvfs validate --counter program`. Programs on
/// simulated GPUs must, since no counter of this machine knows; others may, to leave out what is
/// not work.
namespace kdvfs::inline v0_3::tune {

/// A run's cost as the text `time_s,energy_j`, a header line and a line of numbers.
inline std::string to_csv(const Cost& cost) {
    return "time_s,energy_j\n" + kdvfs::detail::to_text(cost.time.count()) + ',' +
           kdvfs::detail::to_text(cost.energy.count) + '\n';
}

/// Writes a run's cost to the file that the environment variable `KDVFS_COST` names; does nothing
/// where it is not set. @throws Error (io)
inline void report_cost(const Cost& cost) {
    const std::string path{kdvfs::detail::environment("KDVFS_COST")};
    if (!path.empty()) kdvfs::detail::write_file_atomically(path, to_csv(cost));
}

/// Reads what `report_cost` writes. Errors call the input `name`.
/// @throws Error (invalid_input) naming file and line
inline Cost read_cost(std::istream& input, const std::string& name) {
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

/// @throws Error (invalid_input) where there is no such file, else as above
inline Cost read_cost(const std::filesystem::path& path) {
    std::ifstream input{path, std::ios::binary};
    if (!input)
        throw Error{Errc::invalid_input,
                    {"read what a run took", path.string(), "the program did not report it",
                     "call kdvfs::tune::report_cost at its end, or name a counter"}};
    return read_cost(input, path.string());
}

}  // namespace kdvfs::inline v0_3::tune
