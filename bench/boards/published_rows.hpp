// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>

#include <cstddef>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace board_fit {

/// One published operating point; 0 = not stated.
struct PublishedRow {
    std::string source, board, workload, note;
    double core_mhz = 0;     ///< that was read, or the limit requested, as the note says
    double power_cap_w = 0;  ///< in force
    double time_rel = 0;     ///< of the board's default
    double watts = 0;
    double energy_rel = 0;  ///< of the board's default
    double teraflops = 0;   ///< per second, where the note begins with it or names it

    [[nodiscard]] bool has(std::string_view in_note) const {
        return note.find(in_note) != std::string::npos;
    }
    [[nodiscard]] bool does(std::string_view in_workload) const {
        return workload.find(in_workload) != std::string::npos;
    }
};

/// The number before " TFLOP" in a note; 0 where there is none.
inline double teraflops_in(const std::string& note) {
    const std::size_t end = note.find(" TFLOP");
    if (end == std::string::npos) return 0;
    const std::size_t space = note.find_last_of(' ', end - 1);
    const std::size_t begin = space == std::string::npos ? 0 : space + 1;
    return kdvfs::io::parse_number<double>(note.substr(begin, end - begin)).value_or(0);
}

/// Reads published points: the columns source, board, workload, core_mhz, power_cap_w, time_rel,
/// power_w, energy_rel and note, in any order.
/// @throws std::runtime_error if a column is missing, kdvfs::Error for a broken line.
inline std::vector<PublishedRow> read_published(const std::string& path) {
    std::ifstream file{path};
    if (!file) throw std::runtime_error{"cannot read " + path};
    kdvfs::io::CsvReader reader{file, path};
    std::vector<std::string> fields;
    if (!reader.next(fields)) throw std::runtime_error{path + " is empty"};
    std::map<std::string, std::size_t> columns;
    for (std::size_t i = 0; i < fields.size(); ++i) columns[fields[i]] = i;
    const auto column = [&](const char* name) {
        const auto found = columns.find(name);
        if (found == columns.end())
            throw std::runtime_error{path + " has no column " + std::string{name}};
        return found->second;
    };
    const std::size_t width = columns.size();
    const std::size_t source = column("source"), board = column("board"),
                      workload = column("workload"), note = column("note"),
                      clock = column("core_mhz"), cap = column("power_cap_w"),
                      time = column("time_rel"), watts = column("power_w"),
                      energy = column("energy_rel");
    std::vector<PublishedRow> rows;
    while (reader.next(fields)) {
        if (fields.size() != width) reader.fail("its number of columns is not the header's");
        const auto number = [&](std::size_t at) {
            if (fields[at].empty()) return 0.0;
            const auto value = kdvfs::io::parse_number<double>(fields[at]);
            if (!value) reader.fail('"' + fields[at] + "\" is not a number");
            return *value;
        };
        rows.push_back({fields[source], fields[board], fields[workload], fields[note],
                        number(clock), number(cap), number(time), number(watts), number(energy),
                        teraflops_in(fields[note])});
    }
    return rows;
}

}  // namespace board_fit
