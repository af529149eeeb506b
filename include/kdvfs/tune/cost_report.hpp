// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/atomic_file.hpp>
#include <kdvfs/core/error.hpp>
#include <kdvfs/tune/cost.hpp>
#include <kdvfs/tune/csv.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <istream>
#include <string>
#include <vector>

/// How a program tells `kdvfs validate --counter program` what its run took: programs on simulated
/// GPUs must, since no counter of this machine knows; others may, to leave out what is not work.
namespace kdvfs::tune {

/// A run's cost as the text `time_s,energy_j`, a header line and a line of numbers.
inline std::string to_csv(const Cost& cost) {
    return "time_s,energy_j\n" + to_text(cost.time.count()) + ',' + to_text(cost.energy.count) +
           '\n';
}

/// Writes a run's cost to the file that the environment variable `KDVFS_COST` names; does nothing
/// where it is not set. @throws Error (io)
inline void report_cost(const Cost& cost) {
    const char* path = std::getenv("KDVFS_COST");
    if (path != nullptr && *path != '\0') write_file_atomically(path, to_csv(cost));
}

/// Reads what `report_cost` writes. Errors call the input `name`.
/// @throws Error (invalid_input) naming file and line
inline Cost read_cost(std::istream& input, const std::string& name) {
    CsvReader reader{input, name};
    std::vector<std::string> fields;
    if (!reader.next(fields) || fields != std::vector<std::string>{"time_s", "energy_j"})
        reader.fail("the first line is not time_s,energy_j");
    if (!reader.next(fields) || fields.size() != 2) reader.fail("there are no two numbers");
    const auto number = [&](const std::string& field) {
        const auto value = parse_number<double>(field);
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

}  // namespace kdvfs::tune
