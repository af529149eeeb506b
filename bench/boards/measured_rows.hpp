// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace board_fit {

/// One measured clock of one workload.
struct Row {
    double core_mhz = 0;  ///< requested
    double time_s = 0;    ///< of one pass or call
    double watts = 0;     ///< mean over it
    double held_mhz = 0;  ///< mean measured core clock; 0 = not recorded
};

/// All clocks of one workload, ascending.
struct Workload {
    std::string name;
    std::vector<Row> rows;

    [[nodiscard]] const Row& top() const { return rows.back(); }
};

/// A row or a workload that is neither fitted nor judged, and the rule that says so.
struct LeftOut {
    std::string workload;
    double core_mhz = 0;  ///< 0 = all its rows
    std::string rule;
};

/// A file of measurements.
struct Measurements {
    std::string board;  ///< the name in the column `gpu`, or empty
    std::vector<Workload> workloads;
    std::vector<LeftOut> left_out;
};

inline std::vector<std::string> split(const std::string& line) {
    std::vector<std::string> cells;
    std::istringstream text{line};
    for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
    return cells;
}

/// Reads sweeps with the columns workload (or kernel), core_mhz, time_s, energy_j and optionally
/// gpu and mean_core_mhz, in any order.
/// @throws std::runtime_error if the file cannot be read or a column or number is missing.
inline Measurements read_measurements(const std::string& path) {
    std::ifstream file{path};
    std::string line;
    if (!std::getline(file, line)) throw std::runtime_error{"cannot read " + path};
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::vector<std::string> columns = split(line);
    const auto column = [&](const std::string& name) {
        return static_cast<std::size_t>(std::find(columns.begin(), columns.end(), name) -
                                        columns.begin());
    };
    const std::size_t name = std::min(column("workload"), column("kernel"));
    const std::size_t clock = column("core_mhz"), time = column("time_s"),
                      energy = column("energy_j"), held = column("mean_core_mhz"),
                      gpu = column("gpu");
    if (std::max({name, clock, time, energy}) >= columns.size())
        throw std::runtime_error{
            path + ": needs the columns workload or kernel, core_mhz, time_s, energy_j"};
    Measurements result;
    std::map<std::string, std::size_t> index;
    for (std::size_t number = 2; std::getline(file, line); ++number) {
        if (!line.empty() && line.back() == '\r') line.pop_back();
        if (line.empty()) continue;
        const std::vector<std::string> cells = split(line);
        try {
            Row row;
            row.core_mhz = std::stod(cells.at(clock));
            row.time_s = std::stod(cells.at(time));
            row.watts = std::stod(cells.at(energy)) / row.time_s;
            if (held < columns.size()) row.held_mhz = std::stod(cells.at(held));
            if (gpu < columns.size()) result.board = cells.at(gpu);
            if (!(row.core_mhz > 0 && row.time_s > 0 && row.watts > 0))
                throw std::runtime_error{"not positive"};
            const auto [it, added] = index.try_emplace(cells.at(name), result.workloads.size());
            if (added) result.workloads.push_back({cells.at(name), {}});
            result.workloads[it->second].rows.push_back(row);
        } catch (const std::exception& reason) {
            throw std::runtime_error{path + ", line " + std::to_string(number) +
                                     ": not a row of a sweep (" + reason.what() + ")"};
        }
    }
    for (Workload& workload : result.workloads)
        std::sort(workload.rows.begin(), workload.rows.end(),
                  [](const Row& a, const Row& b) { return a.core_mhz < b.core_mhz; });
    return result;
}

/// The rules of what is left out. They look at the rows alone, not at any prediction, and are the
/// same for fitting and for judging:
///  1. no row at the highest clock of the file: the workload has no row to be known by;
///  2. mean power falls by more than 10 % from a clock to the next higher one: the meter or the run
///     is broken, and the workload is left out;
///  3. a row that is more than 5 % faster than the row at the highest clock, or more than 5 %
///  slower
///     than a row at a lower clock: another mode of the workload's time, and the row is left out;
///  4. more than a third of a workload's rows left out by rule 3: its time does not follow its
///  clock,
///     and the workload is left out.
inline void leave_out_broken(Measurements& data) {
    constexpr double power_fall = 0.10, other_mode = 0.05;
    double highest = 0;
    for (const Workload& w : data.workloads) highest = std::max(highest, w.top().core_mhz);
    std::vector<Workload> kept;
    for (Workload& w : data.workloads) {
        if (w.top().core_mhz < highest) {
            data.left_out.push_back({w.name, 0, "no row at the highest clock"});
            continue;
        }
        const double top_time = w.top().time_s;
        std::vector<Row> rows;
        for (const Row& row : w.rows)
            if (row.time_s < top_time * (1 - other_mode))
                data.left_out.push_back({w.name, row.core_mhz, "faster than at the highest clock"});
            else
                rows.push_back(row);
        std::vector<Row> in_mode;
        for (const Row& row : rows) {
            const bool slower = std::any_of(in_mode.begin(), in_mode.end(), [&](const Row& low) {
                return row.time_s > low.time_s * (1 + other_mode);
            });
            if (slower)
                data.left_out.push_back({w.name, row.core_mhz, "slower than at a lower clock"});
            else
                in_mode.push_back(row);
        }
        if (3 * in_mode.size() < 2 * w.rows.size()) {
            data.left_out.push_back({w.name, 0, "more than a third of its rows in another mode"});
            continue;
        }
        bool broken = false;
        for (std::size_t i = 1; i < in_mode.size(); ++i)
            broken |= in_mode[i].watts < in_mode[i - 1].watts * (1 - power_fall);
        if (broken) {
            data.left_out.push_back({w.name, 0, "mean power falls when the clock rises"});
            continue;
        }
        w.rows = std::move(in_mode);
        kept.push_back(std::move(w));
    }
    data.workloads = std::move(kept);
}

}  // namespace board_fit
