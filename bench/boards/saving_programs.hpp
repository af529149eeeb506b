// SPDX-License-Identifier: MIT
#pragma once

#include <bench/boards/measured_rows.hpp>
#include <examples/gpt3_xl/boards.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// What clocks could save of programs whose kernels were measured at all clocks.
namespace savings {

/// The kernels of a board at all its core clocks, with the memory clock as found or at all of them,
/// relative to the clocks as found.
struct Sweep {
    struct Kernel {
        double power_share = 0;      ///< as found, of the board's power limit
        std::vector<double> time;    ///< by clock, of that as found
        std::vector<double> energy;  ///< by clock, of that as found
    };
    std::string board;
    std::string group;  ///< left out together
    std::vector<Kernel> kernels;
    double limit_watts = 0;                   ///< of the board
    std::vector<kdvfs::ClockPoint> clocks{};  ///< by index of a kernel's times
    kdvfs::ClockPoint as_found{};
    kdvfs::Megahertz highest_core = kdvfs::auto_clock;
};

/// The memory clocks of a sweep.
enum class MemoryClocks { as_found, all };

/// What could be changed.
enum class Way {
    one_clock,  ///< for all kernels
    power_cap,  ///< each kernel at the core clock at which it is fastest within it
    by_kernel,  ///< a clock for each kernel, switching free
};
inline constexpr std::array ways{Way::one_clock, Way::power_cap, Way::by_kernel};
inline constexpr std::array bounds_pct{0.0, 1.0, 5.0};

/// A program of a few kernels: what it shows as found, and what it could save.
struct Program {
    std::string board;
    std::string group;
    double power_share = 0;
    std::array<std::array<double, bounds_pct.size()>, ways.size()> saved_pct{};
};

namespace detail {

/// The costs of kernels by clock, absolute.
using Costs = std::map<std::string, std::map<kdvfs::ClockPoint, kdvfs::tune::Cost>>;

/// Clocks that not all kernels have are left out, and the highest are those as found.
inline Sweep to_sweep(Sweep sweep, const Costs& costs, MemoryClocks memory) {
    std::map<kdvfs::ClockPoint, std::size_t> met;
    for (const auto& [kernel, points] : costs)
        for (const auto& [clock, cost] : points) ++met[clock];
    std::erase_if(met, [&](const auto& clock) { return clock.second < costs.size(); });
    sweep.as_found = met.rbegin()->first;
    for (const auto& [clock, count] : met)
        if (memory == MemoryClocks::all || clock.memory == sweep.as_found.memory)
            sweep.clocks.push_back(clock);
    for (const auto& [kernel, points] : costs) {
        const kdvfs::tune::Cost found = points.at(sweep.as_found);
        sweep.kernels.push_back({(found.energy / found.time).count / sweep.limit_watts, {}, {}});
        Sweep::Kernel& relative = sweep.kernels.back();
        for (const kdvfs::ClockPoint clock : sweep.clocks) {
            relative.time.push_back(points.at(clock).time / found.time);
            relative.energy.push_back(points.at(clock).energy / found.energy);
        }
    }
    return sweep;
}

}  // namespace detail

/// Reads a full grid with the columns kernel, core_mhz, mem_mhz, time_s, energy_j.
inline Sweep read_grid(const std::filesystem::path& file, const std::string& board,
                       double limit_watts, MemoryClocks memory) {
    std::ifstream input{file};
    kdvfs::io::CsvReader reader{input, file.string()};
    std::vector<std::string> fields;
    if (!reader.next(fields)) throw std::runtime_error{"cannot read " + file.string()};
    std::map<std::string, std::size_t> column;
    for (std::size_t i = 0; i < fields.size(); ++i) column[fields[i]] = i;
    const auto number = [&](const std::string& of) {
        return kdvfs::io::parse_number<double>(fields.at(column.at(of))).value();
    };
    const auto megahertz = [&](const std::string& of) {
        return kdvfs::Megahertz{static_cast<std::uint32_t>(number(of))};
    };
    detail::Costs costs;
    while (reader.next(fields))
        costs[fields.at(column.at("kernel"))][{megahertz("core_mhz"), megahertz("mem_mhz")}] = {
            kdvfs::Seconds{number("time_s")}, {number("energy_j")}};
    return detail::to_sweep({board, board, {}, limit_watts}, costs, memory);
}

/// Reads a sweep of the core clock alone, without what `leave_out_broken` leaves out.
inline Sweep read_sweep(const std::filesystem::path& file, const std::string& board,
                        double limit_watts) {
    board_fit::Measurements data = board_fit::read_measurements(file.string());
    board_fit::leave_out_broken(data);
    detail::Costs costs;
    for (const board_fit::Workload& workload : data.workloads)
        for (const board_fit::Row& row : workload.rows)
            costs[workload.name][{{static_cast<std::uint32_t>(row.core_mhz)}, kdvfs::auto_clock}] =
                {kdvfs::Seconds{row.time_s}, {row.watts * row.time_s}};
    return detail::to_sweep({board, board, {}, limit_watts}, costs, MemoryClocks::as_found);
}

/// The kernels of a GPT-3-XL iteration on a simulated board.
inline Sweep simulated_sweep(const std::string& preset, const std::string& group,
                             MemoryClocks memory) {
    const auto found = gpt3::find_case(preset);
    if (!found) throw std::runtime_error{"no preset " + preset};
    Sweep sweep{found->board.name + " (simulated)", group, {}, found->board.power_cap.count};
    sweep.highest_core = found->board.core_max;
    for (const kdvfs::ClockPoint clock : found->points)
        if (memory == MemoryClocks::all || clock.memory == kdvfs::auto_clock)
            sweep.clocks.push_back(clock);
    for (std::size_t k = 0; k < gpt3::kernel_count; ++k) {
        const auto as_found = operate(found->board, found->kernels[k], {});
        sweep.kernels.push_back({as_found.power.count / sweep.limit_watts, {}, {}});
        Sweep::Kernel& relative = sweep.kernels.back();
        for (const kdvfs::ClockPoint clock : sweep.clocks) {
            const auto point = operate(found->board, found->kernels[k], clock);
            relative.time.push_back(point.time / as_found.time);
            relative.energy.push_back(point.power * point.time / (as_found.power * as_found.time));
        }
    }
    return sweep;
}

/// A mix of 5 to 20 kernels of a sweep.
class Mix {
public:
    struct Part {
        const Sweep::Kernel* kernel = nullptr;
        double time = 0;    ///< of the program's, as found
        double energy = 0;  ///< of the program's, as found
    };

    Mix(const Sweep& sweep, std::mt19937_64& random) : board_{sweep.board}, group_{sweep.group} {
        std::exponential_distribution<double> share{1};
        const std::size_t most = std::min<std::size_t>(20, sweep.kernels.size());
        const std::size_t count = 5 + random() % (most - 4);
        double sum = 0;
        for (std::size_t i = 0; i < count; ++i) {
            parts_.push_back({&sweep.kernels[random() % sweep.kernels.size()], share(random)});
            sum += parts_.back().time;
        }
        for (Part& part : parts_) part.time /= sum;
        for (const Part& part : parts_) power_share_ += part.time * part.kernel->power_share;
        for (Part& part : parts_) part.energy = part.time * part.kernel->power_share / power_share_;
    }

    [[nodiscard]] Program program() const {
        Program program{board_, group_, power_share_, {}};
        for (std::size_t b = 0; b < bounds_pct.size(); ++b) {
            const double limit = (1 + bounds_pct[b] / 100) * (1 + 1e-9);
            program.saved_pct[0][b] = one_clock(limit);
            program.saved_pct[1][b] = power_cap(limit);
            program.saved_pct[2][b] = by_kernel(limit);
        }
        return program;
    }

    [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
    /// Mean watts, of the limit.
    [[nodiscard]] double power_share() const { return power_share_; }

    /// Time and energy at one clock, of those as found.
    [[nodiscard]] std::pair<double, double> at(std::size_t clock) const {
        std::pair<double, double> sum{0, 0};
        for (const Part& part : parts_) {
            sum.first += part.time * part.kernel->time[clock];
            sum.second += part.energy * part.kernel->energy[clock];
        }
        return sum;
    }

private:
    [[nodiscard]] std::size_t clocks() const { return parts_.front().kernel->time.size(); }

    [[nodiscard]] double one_clock(double limit) const {
        double least = 1;
        for (std::size_t c = 0; c < clocks(); ++c) {
            const auto [time, energy] = at(c);
            if (time <= limit) least = std::min(least, energy);
        }
        return 100 * (1 - least);
    }

    /// Each kernel at the clock where it is fastest among those that draw no more than the cap.
    [[nodiscard]] double power_cap(double limit) const {
        double least = 1;
        for (double cap = 1; cap > 0.3; cap -= 0.01) {
            double time = 0;
            double energy = 0;
            for (const Part& part : parts_) {
                std::size_t best = clocks();
                for (std::size_t c = 0; c < clocks(); ++c) {
                    const double power =
                        part.kernel->power_share * part.kernel->energy[c] / part.kernel->time[c];
                    if (power > cap) continue;
                    if (best == clocks() || part.kernel->time[c] < part.kernel->time[best])
                        best = c;
                }
                const bool found = best < clocks() && part.kernel->power_share > cap;
                time += part.time * (found ? part.kernel->time[best] : 1);
                energy += part.energy * (found ? part.kernel->energy[best] : 1);
            }
            if (time <= limit) least = std::min(least, energy);
        }
        return 100 * (1 - least);
    }

    /// At the price of time that just keeps the limit.
    [[nodiscard]] double by_kernel(double limit) const {
        const auto at = [&](double price) {
            std::pair<double, double> sum{0, 0};
            for (const Part& part : parts_) {
                std::size_t best = 0;
                const auto score = [&](std::size_t c) {
                    return part.energy * part.kernel->energy[c] +
                           price * part.time * part.kernel->time[c];
                };
                for (std::size_t c = 1; c < clocks(); ++c)
                    if (score(c) < score(best)) best = c;
                sum.first += part.time * part.kernel->time[best];
                sum.second += part.energy * part.kernel->energy[best];
            }
            return sum;
        };
        double low = 0;
        double high = 1e4;
        if (at(low).first <= limit) return 100 * (1 - at(low).second);
        for (int step = 0; step < 60; ++step) {
            const double middle = 0.5 * (low + high);
            (at(middle).first <= limit ? high : low) = middle;
        }
        const auto found = at(high);
        return found.first <= limit ? std::max(0.0, 100 * (1 - found.second)) : 0;
    }

    std::string board_;
    std::string group_;
    std::vector<Part> parts_;
    double power_share_ = 0;
};

}  // namespace savings
